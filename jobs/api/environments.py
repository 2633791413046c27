"""`/api/v1/environments/`: list, create, show, change and delete named environments."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import NamedPages, StrictSerializer, signed_in, validated
from core.roles import require_cluster_admin
from jobs.actions import environments as actions
from jobs.models import NamedEnvironment
from jobs.queries.environments import find_visible_environment, visible_environments

__all__ = ["EnvironmentDetail", "EnvironmentList"]

_LONGEST = 1024 * 1024
_SOURCE = "Requirements in pip's format; with lock, the text of pyproject.toml."
_FOLDER = "Path of a virtual or conda environment on the hosts, instead of source and lock. Empty: there is none."
_LOCK = "Text of uv.lock. Empty: the requirements are not locked."
_GROUPS = "Names of the instance groups whose trainings may use it. Empty: all."
_DEFAULT_OF = "Names of the instance groups whose trainings get it if they choose none and require nothing."


def _names(words: str, **given: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField(max_length=1000), help_text=words, **given)


class EnvironmentChange(StrictSerializer):
    """The given fields; the action checks them together."""

    name = serializers.CharField(max_length=10_000, trim_whitespace=False, required=False)
    source = serializers.CharField(
        max_length=_LONGEST, allow_blank=True, trim_whitespace=False, required=False, help_text=_SOURCE
    )  # type: ignore[assignment]
    lock = serializers.CharField(
        max_length=_LONGEST, allow_blank=True, trim_whitespace=False, required=False, help_text=_LOCK
    )
    folder = serializers.CharField(max_length=10_000, allow_blank=True, required=False, help_text=_FOLDER)
    groups = _names(_GROUPS, required=False)
    default_of = _names(_DEFAULT_OF, required=False)
    notes = serializers.CharField(max_length=10_000, allow_blank=True, required=False)


class EnvironmentInput(EnvironmentChange):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)


class EnvironmentOutput(serializers.ModelSerializer[NamedEnvironment]):
    groups: Any = serializers.SlugRelatedField(slug_field="name", many=True, read_only=True, help_text=_GROUPS)
    default_of = serializers.SerializerMethodField(help_text=_DEFAULT_OF)
    lines = serializers.SerializerMethodField(help_text="Requirements as hosts get them.")
    trainings = serializers.IntegerField(read_only=True, help_text="Number of trainings that were submitted with it.")

    class Meta:
        model = NamedEnvironment
        fields = [
            *("id", "name", "kind", "source", "lock", "folder", "lines", "groups", "default_of", "notes"),
            *("trainings", "created_at", "changed_at"),
        ]

    def get_lines(self, row: NamedEnvironment) -> list[str]:
        return row.lines.splitlines()

    def get_default_of(self, row: NamedEnvironment) -> list[str]:
        return sorted(default.group.name for default in row.default_of.all())


class EnvironmentList(ListAPIView[NamedEnvironment]):
    """The named environments that the user's trainings may use; for administrators, all."""

    serializer_class = EnvironmentOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return visible_environments(self.request.user)

    @extend_schema(request=EnvironmentInput, responses={201: EnvironmentOutput})
    def post(self, request: Request) -> Response:
        require_cluster_admin(request.user)
        made = actions.create_environment(
            actions.EnvironmentSpec(**validated(EnvironmentInput, request.data)), signed_in(request)
        )
        return Response(EnvironmentOutput(find_visible_environment(request.user, made.pk)).data, status=201)


class EnvironmentDetail(GenericAPIView[NamedEnvironment]):
    serializer_class = EnvironmentOutput

    def get(self, request: Request, reference: str) -> Response:
        return Response(EnvironmentOutput(find_visible_environment(request.user, reference)).data)

    @extend_schema(request=EnvironmentChange, responses=EnvironmentOutput)
    def patch(self, request: Request, reference: str) -> Response:
        """Change the given fields. Trainings that were submitted before keep what they began with."""
        row = find_visible_environment(request.user, reference)
        require_cluster_admin(request.user)
        actions.change_environment(row.pk, validated(EnvironmentChange, request.data), signed_in(request))
        return Response(EnvironmentOutput(find_visible_environment(request.user, row.pk)).data)

    @extend_schema(responses={204: OpenApiResponse(description="The environment is deleted.")})
    def delete(self, request: Request, reference: str) -> Response:
        """Delete the environment. Trainings that were submitted with it keep its requirements."""
        row = find_visible_environment(request.user, reference)
        actions.delete_environment(row.pk, signed_in(request))
        return Response(status=204)
