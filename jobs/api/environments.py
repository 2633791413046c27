"""`/api/v1/environments/`: list, create, show, change, delete and prepare named environments."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import NamedPages, Pages, StrictSerializer, signed_in, validated
from core.roles import require_cluster_admin
from jobs.actions import environments as actions
from jobs.actions.prepared import build_again, build_ahead, forget_environment, keep_environment
from jobs.models import HostEnvironment, NamedEnvironment, RequiredEnvironment
from jobs.queries.environments import find_visible_environment, visible_environments
from jobs.queries.prepared import find_prepared, prepared_environments

__all__ = [
    "EnvironmentBuild",
    "EnvironmentDetail",
    "EnvironmentList",
    "PreparedDetail",
    "PreparedList",
    "PreparedRebuild",
]

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


class HostEnvironmentOutput(serializers.ModelSerializer[HostEnvironment]):
    host: Any = serializers.CharField(source="host.name")
    since = serializers.DateTimeField(help_text="Time since which it is in this state.")
    digest = serializers.CharField(help_text="Name on the host. Empty: the cluster's packages meet the requirements.")
    why = serializers.CharField(help_text="Last lines of a build that failed.")
    size_bytes = serializers.IntegerField(
        allow_null=True, help_text="Size of its files, some of which other environments may have in common with it."
    )
    memory_bytes = serializers.IntegerField(
        allow_null=True, help_text="Memory of the process that its trainings are forked from. Null: there is none."
    )

    class Meta:
        model = HostEnvironment
        fields = ["host", "state", "since", "digest", "why", "size_bytes", "memory_bytes"]


class EnvironmentOutput(serializers.ModelSerializer[NamedEnvironment]):
    groups: Any = serializers.SlugRelatedField(slug_field="name", many=True, read_only=True, help_text=_GROUPS)
    default_of = serializers.SerializerMethodField(help_text=_DEFAULT_OF)
    lines = serializers.SerializerMethodField(help_text="Requirements as hosts get them.")
    trainings = serializers.IntegerField(read_only=True, help_text="Number of trainings that were submitted with it.")
    hosts = serializers.SerializerMethodField(help_text="Hosts that have it, or were asked to prepare it.")

    class Meta:
        model = NamedEnvironment
        fields = [
            *("id", "name", "kind", "source", "lock", "folder", "lines", "groups", "default_of", "notes"),
            *("trainings", "hosts", "created_at", "changed_at"),
        ]

    def get_lines(self, row: NamedEnvironment) -> list[str]:
        return row.lines.splitlines()

    @extend_schema_field(HostEnvironmentOutput(many=True))
    def get_hosts(self, row: NamedEnvironment) -> Any:
        return HostEnvironmentOutput(row.required.hosts.all(), many=True).data

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


class BuildInput(StrictSerializer):
    resource_group = serializers.CharField(
        max_length=1000,
        allow_blank=True,
        required=False,
        default="",
        help_text="Resource group whose hosts prepare it. Default: all.",
    )


class EnvironmentBuild(GenericAPIView[NamedEnvironment]):
    serializer_class = EnvironmentOutput

    @extend_schema(request=BuildInput, responses={202: EnvironmentOutput})
    def post(self, request: Request, reference: str) -> Response:
        """Have hosts prepare the environment now, and keep it, so that no training waits for it."""
        row = find_visible_environment(request.user, reference)
        build_ahead(row, signed_in(request), **validated(BuildInput, request.data))
        return Response(EnvironmentOutput(find_visible_environment(request.user, row.pk)).data, status=202)


class PreparedOutput(serializers.ModelSerializer[RequiredEnvironment]):
    """Requirements of trainings, with or without a name, and the hosts that have them."""

    names = serializers.SerializerMethodField(help_text="Names of the environments that it is.")
    lines = serializers.SerializerMethodField(help_text="Requirements as hosts get them.")
    trainings = serializers.IntegerField(read_only=True, help_text="Number of trainings that require it.")
    active = serializers.IntegerField(read_only=True, help_text="Number of those that wait or run.")
    used_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="Time at which one was submitted last."
    )
    hosts: Any = HostEnvironmentOutput(many=True, read_only=True)

    class Meta:
        model = RequiredEnvironment
        fields = ["id", "key", "names", "lines", "trainings", "active", "used_at", "is_pinned", "hosts", "created_at"]

    def get_names(self, row: RequiredEnvironment) -> list[str]:
        return [named.name for named in row.names.all()]

    def get_lines(self, row: RequiredEnvironment) -> list[str]:
        return row.lines.splitlines()


class PreparedChange(StrictSerializer):
    is_pinned = serializers.BooleanField(help_text="Whether hosts keep it although no training uses it.")


class PreparedList(ListAPIView[RequiredEnvironment]):
    """Requirements of trainings, with or without a name, and the hosts that have them; for administrators."""

    serializer_class = PreparedOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        require_cluster_admin(self.request.user)
        return prepared_environments()


class PreparedDetail(GenericAPIView[RequiredEnvironment]):
    serializer_class = PreparedOutput

    def get(self, request: Request, environment_id: int) -> Response:
        require_cluster_admin(request.user)
        return Response(PreparedOutput(find_prepared(environment_id)).data)

    @extend_schema(request=PreparedChange, responses=PreparedOutput)
    def patch(self, request: Request, environment_id: int) -> Response:
        """Have hosts keep it although no training uses it, or not any longer."""
        keep_environment(environment_id, signed_in(request), **validated(PreparedChange, request.data))
        return Response(PreparedOutput(find_prepared(environment_id)).data)

    @extend_schema(responses={204: OpenApiResponse(description="Hosts remove it.")})
    def delete(self, request: Request, environment_id: int) -> Response:
        """Have all hosts remove it. Refused while trainings use it."""
        forget_environment(environment_id, signed_in(request))
        return Response(status=204)


class PreparedRebuild(GenericAPIView[RequiredEnvironment]):
    serializer_class = PreparedOutput

    @extend_schema(request=None, responses={202: PreparedOutput})
    def post(self, request: Request, environment_id: int) -> Response:
        """Have its hosts build it again from nothing. Refused while trainings use it."""
        build_again(environment_id, signed_in(request))
        return Response(PreparedOutput(find_prepared(environment_id)).data, status=202)
