"""`/api/v1/hosts/`, `slots/` and `resource-groups/`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.lib.rest import NamedPages, Pages, found, require_staff
from workers import actions, queries
from workers.api.serializers import HostOutput, ResourceGroupInput, ResourceGroupOutput, SlotOutput
from workers.models import Host, ResourceGroup, Slot

__all__ = [
    "HostDetail",
    "HostDrain",
    "HostList",
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


class HostDrain(GenericAPIView[Host]):
    """No new ranks on this host: elastic ranks move off live, fixed-size jobs finish."""

    serializer_class = HostOutput

    @extend_schema(request=None, responses=HostOutput)
    def post(self, request: Request, reference: str) -> Response:
        require_staff(request)
        host = found(queries.find_host(reference), "host")
        actions.drain_host(host.name)
        return Response(HostOutput(queries.find_host(host.name)).data)


class HostResume(GenericAPIView[Host]):
    """Takes a draining host back into service."""

    serializer_class = HostOutput

    @extend_schema(request=None, responses=HostOutput)
    def post(self, request: Request, reference: str) -> Response:
        require_staff(request)
        host = found(queries.find_host(reference), "host")
        actions.resume_host(host.name)
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
        require_staff(request)
        given = ResourceGroupInput(data=request.data)
        given.is_valid(raise_exception=True)
        group = actions.create_resource_group(given.spec())
        return Response(ResourceGroupOutput(group).data, status=201)


class ResourceGroupDetail(GenericAPIView[ResourceGroup]):
    serializer_class = ResourceGroupOutput

    def get(self, request: Request, reference: str) -> Response:
        return Response(ResourceGroupOutput(found(queries.find_resource_group(reference), "resource group")).data)
