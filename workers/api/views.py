"""`/api/v1/hosts/`, `slots/` and `resource-groups/`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import NamedPages, Pages, found, signed_in
from core.roles import require_cluster_admin
from workers import actions, queries
from workers.api.serializers import HostOutput, ResourceGroupChange, ResourceGroupInput, ResourceGroupOutput, SlotOutput
from workers.models import Host, ResourceGroup, Slot

__all__ = [
    "HostDetail",
    "HostDrain",
    "HostList",
    "HostRestore",
    "HostResume",
    "ResourceGroupDetail",
    "ResourceGroupList",
    "SlotList",
]


class HostList(ListAPIView[Host]):
    serializer_class = HostOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return queries.hosts()


class HostDetail(GenericAPIView[Host]):
    serializer_class = HostOutput

    def get(self, request: Request, reference: str) -> Response:
        return Response(HostOutput(found(queries.find_host(reference), "host")).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """Removes a host that is drained, or gone, and on which nothing runs.

        It comes back when its executor is started again, or by `restore/`.
        """
        require_cluster_admin(request.user)
        actions.remove_host(found(queries.find_host(reference), "host").name, signed_in(request))
        return Response(status=204)


class HostDrain(GenericAPIView[Host]):
    """No new ranks on this host: elastic ranks move off live, fixed-size jobs finish."""

    serializer_class = HostOutput

    @extend_schema(request=None, responses=HostOutput)
    def post(self, request: Request, reference: str) -> Response:
        require_cluster_admin(request.user)
        host = found(queries.find_host(reference), "host")
        actions.drain_host(host.name, signed_in(request))
        return Response(HostOutput(queries.find_host(host.name)).data)


class HostResume(GenericAPIView[Host]):
    """Takes a draining host back into service."""

    serializer_class = HostOutput

    @extend_schema(request=None, responses=HostOutput)
    def post(self, request: Request, reference: str) -> Response:
        require_cluster_admin(request.user)
        host = found(queries.find_host(reference), "host")
        actions.resume_host(host.name, signed_in(request))
        return Response(HostOutput(queries.find_host(host.name)).data)


class HostRestore(GenericAPIView[Host]):
    """Puts a removed host back into the lists."""

    serializer_class = HostOutput

    @extend_schema(request=None, responses=HostOutput)
    def post(self, request: Request, reference: str) -> Response:
        require_cluster_admin(request.user)
        host = found(queries.find_removed_host(reference), "removed host")
        actions.restore_host(host.name, signed_in(request))
        return Response(HostOutput(queries.find_host(host.name)).data)


class SlotList(ListAPIView[Slot]):
    serializer_class = SlotOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return queries.slots()


class ResourceGroupList(ListAPIView[ResourceGroup]):
    serializer_class = ResourceGroupOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return queries.resource_groups()

    @extend_schema(request=ResourceGroupInput, responses={201: ResourceGroupOutput})
    def post(self, request: Request) -> Response:
        require_cluster_admin(request.user)
        given = ResourceGroupInput(data=request.data)
        given.is_valid(raise_exception=True)
        group = actions.create_resource_group(given.spec(), signed_in(request))
        return Response(ResourceGroupOutput(group).data, status=201)


class ResourceGroupDetail(GenericAPIView[ResourceGroup]):
    serializer_class = ResourceGroupOutput

    def get(self, request: Request, reference: str) -> Response:
        return Response(ResourceGroupOutput(self._group(reference)).data)

    @extend_schema(request=ResourceGroupChange, responses=ResourceGroupOutput)
    def patch(self, request: Request, reference: str) -> Response:
        """Changes what is given. Trainings move off slots that leave the group; its name and kind stay."""
        require_cluster_admin(request.user)
        group = self._group(reference)
        given = ResourceGroupChange(data=request.data, partial=True)
        given.is_valid(raise_exception=True)
        spec = replace(actions.spec_of(group), **given.validated_data)
        actions.change_resource_group(group, spec, signed_in(request))
        return Response(ResourceGroupOutput(self._group(str(group.pk))).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """Refused while an instance group uses it."""
        require_cluster_admin(request.user)
        actions.delete_resource_group(self._group(reference), signed_in(request))
        return Response(status=204)

    def _group(self, reference: str) -> ResourceGroup:
        group: ResourceGroup = found(queries.find_resource_group(reference), "resource group")
        return group
