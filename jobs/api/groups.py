"""`/api/v1/instance-groups/`: list, create, change, start, stop and delete."""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import models
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import existing, field_error
from core.etags import seen_in, with_etag
from core.rest import NamedPages, ObjectField, ReferenceField, StrictSerializer, signed_in, validated
from core.roles import require_cluster_admin
from jobs.actions import groups as actions
from jobs.models import InstanceGroup
from jobs.queries.group_parameters import Given, ParameterError, read_values
from jobs.queries.group_terms import TERMS, Term, terms_of
from jobs.queries.groups import deployment, find_visible_group, visible_groups

__all__ = [
    "InstanceGroupDetail",
    "InstanceGroupList",
    "InstanceGroupStart",
    "InstanceGroupStop",
]


class TermsInput(StrictSerializer):
    """Input of the given terms; the action checks their values."""

    parameters = ObjectField(
        required=False, help_text="Parameters of WMLA, such as SPARK_EGO_ENABLE_PREEMPTION, instead of these fields."
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {**{term.column: _field_of(term) for term in TERMS}, **super().get_fields()}


def _field_of(term: Term) -> serializers.Field[Any, Any, Any, Any]:
    column = term.field
    shown: dict[str, Any] = {"required": False, "help_text": term.help or None}
    match column:
        case models.BooleanField():
            return serializers.BooleanField(**shown)
        case models.IntegerField():
            return serializers.IntegerField(allow_null=column.null, **shown)
        case models.ForeignKey():
            return ReferenceField(**shown)
        case models.ManyToManyField():
            names = shown | {"help_text": f"User names. {term.help}"}
            return serializers.ListField(child=serializers.CharField(), **names)
        case _ if column.choices:
            return serializers.ChoiceField(column.choices, **shown)
    return serializers.CharField(allow_blank=True, trim_whitespace=False, **shown)


class CreateInput(TermsInput):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    resource_group = ReferenceField()
    template = serializers.CharField(
        required=False, allow_blank=True, default="", help_text="Name of a preset, Tidepool's or WMLA's."
    )
    deploy = serializers.BooleanField(default=True, help_text="Start it, if any of its hosts is ready.")


class ChangeInput(TermsInput):
    revision = serializers.IntegerField(
        required=False, help_text="Revision as read: 409 if the group has been changed since."
    )


class DeploymentOutput(serializers.Serializer[Any]):
    ready = serializers.IntegerField(help_text="Hosts that are reachable and offer GPUs.")
    blocked = serializers.IntegerField(help_text="Other hosts of the resource group.")
    slots = serializers.IntegerField()
    text = serializers.CharField()


class InstanceGroupOutput(serializers.ModelSerializer[InstanceGroup]):
    resource_group = serializers.CharField(source="resource_group.name")
    members: Any = serializers.SlugRelatedField(slug_field="username", many=True, read_only=True)
    admins: Any = serializers.SlugRelatedField(slug_field="username", many=True, read_only=True)

    class Meta:
        model = InstanceGroup
        fields = ["id", "name", "state", "template", "revision", *(term.column for term in TERMS), "created_at"]


class WrittenOutput(InstanceGroupOutput):
    deployment = DeploymentOutput(read_only=True)
    without_effect = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text="Sentences about given parameters without effect."
    )

    class Meta(InstanceGroupOutput.Meta):
        fields = [*InstanceGroupOutput.Meta.fields, "deployment", "without_effect"]


class InstanceGroupList(ListAPIView[InstanceGroup]):
    """The instance groups that the user may submit to or administers; for administrators of the cluster, all."""

    serializer_class = InstanceGroupOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return visible_groups(self.request.user).prefetch_related("members", "admins")

    @extend_schema(request=CreateInput, responses={201: WrittenOutput})
    def post(self, request: Request) -> Response:
        require_cluster_admin(request.user)
        values = validated(CreateInput, request.data)
        given = given_parameters(values)
        spec = actions.InstanceGroupSpec(
            values.pop("name"), values.pop("resource_group"), values.pop("template"), joined_terms(values, given)
        )
        make = actions.create_and_deploy if values.pop("deploy") else actions.create_instance_group
        return _written(make(spec, signed_in(request)), given, status=201)


class InstanceGroupDetail(GenericAPIView[InstanceGroup]):
    serializer_class = InstanceGroupOutput
    has_etag = True

    def get(self, request: Request, reference: str) -> Response:
        group = group_to_see(request, reference)
        return with_etag(Response(InstanceGroupOutput(group).data), terms_of(group))

    @extend_schema(request=ChangeInput, responses=WrittenOutput)
    def patch(self, request: Request, reference: str) -> Response:
        """Change all given terms or none."""
        group, values = group_to_see(request, reference), validated(ChangeInput, request.data)
        given, revision = given_parameters(values), values.pop("revision", None)
        change = actions.change_instance_group(
            group.pk, joined_terms(values, given), signed_in(request), revision=revision, seen=seen_in(request)
        )
        return with_etag(_written(change.group, given), terms_of(change.group))

    @extend_schema(responses={204: OpenApiResponse(description="The group is deleted.")})
    def delete(self, request: Request, reference: str) -> Response:
        """Delete the group. Refused if it has any trainings, running or finished."""
        actions.delete_instance_group(group_to_see(request, reference).pk, signed_in(request))
        return Response(status=204)


class InstanceGroupCommand(GenericAPIView[InstanceGroup]):
    serializer_class = InstanceGroupOutput
    command: Callable[[int, User], InstanceGroup]

    @extend_schema(request=None, responses=InstanceGroupOutput)
    def post(self, request: Request, reference: str) -> Response:
        group = type(self).command(group_to_see(request, reference).pk, signed_in(request))
        return Response(InstanceGroupOutput(group).data)


class InstanceGroupStart(InstanceGroupCommand):
    """Allow its trainings to start. Refused if none of its hosts is ready."""

    command = staticmethod(actions.start_instance_group)


class InstanceGroupStop(InstanceGroupCommand):
    """Refuse new trainings and start no waiting ones; running ones continue."""

    command = staticmethod(actions.stop_instance_group)


def group_to_see(request: Request, reference: str) -> InstanceGroup:
    group: InstanceGroup = existing(find_visible_group(request.user, reference), "instance group")
    return group


def given_parameters(values: dict[str, Any]) -> Given:
    """Remove WMLA's parameters from the values and return the terms that they set."""
    texts = values.pop("parameters", {})
    if not isinstance(texts, Mapping) or not all(isinstance(text, str | int) for text in texts.values()):
        raise field_error("parameters", "Give an object of names and values.")
    try:
        return read_values({name: str(text) for name, text in texts.items()})
    except ParameterError as error:
        raise field_error("parameters", str(error)) from error


def joined_terms(values: Mapping[str, Any], given: Given) -> dict[str, Any]:
    columns = {term.column for term in TERMS}
    terms = {name: value for name, value in values.items() if name in columns}
    if twice := sorted(terms.keys() & given.terms.keys()):
        raise field_error("parameters", f"They give {twice[0]}, which is given by its own field, too: keep one.")
    return {**terms, **given.terms}


def _written(group: InstanceGroup, given: Given, status: int = 200) -> Response:
    group.deployment = deployment(group.resource_group)  # type: ignore[attr-defined]
    group.without_effect = given.sentences  # type: ignore[attr-defined]
    return Response(WrittenOutput(group).data, status=status)
