"""`/api/v1/secrets/`: list, add, show, replace and delete secrets. No answer contains a value."""

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import NamedPages, ReferenceField, StrictSerializer, signed_in, validated
from jobs.actions import secrets as actions
from jobs.models import Secret
from jobs.queries.secrets import find_visible_secret, visible_secrets

__all__ = ["SecretDetail", "SecretList"]

_LONGEST = 64 * 1024
_VALUE = "At least 8 characters and at most 32 KiB. It is never shown."


def _value() -> serializers.CharField:
    return serializers.CharField(
        max_length=_LONGEST, trim_whitespace=False, allow_blank=True, write_only=True, help_text=_VALUE
    )


class SecretInput(StrictSerializer):
    name = serializers.CharField(
        max_length=10_000, trim_whitespace=False, help_text="Variable of the environment that trainings get."
    )
    value = _value()
    instance_group = ReferenceField(
        default=None, allow_null=True, help_text="Group whose trainings may use it. Absent: your own trainings."
    )
    is_file = serializers.BooleanField(
        default=False, help_text="Whether the variable has the path of a file with the value."
    )


class SecretChange(StrictSerializer):
    value = _value()


class SecretOutput(serializers.ModelSerializer[Secret]):
    instance_group = serializers.CharField(
        source="group.name", default=None, allow_null=True, help_text="Null: it is the user's own."
    )
    trainings = serializers.IntegerField(read_only=True, help_text="Number of trainings that were submitted with it.")
    changed_at = serializers.DateTimeField(help_text="Time at which the value was last entered.")

    class Meta:
        model = Secret
        fields = ["id", "name", "instance_group", "is_file", "trainings", "created_at", "changed_at"]


class SecretList(ListAPIView[Secret]):
    """The secrets that the user's trainings may get; for administrators, those of all groups as well."""

    serializer_class = SecretOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return visible_secrets(self.request.user)

    @extend_schema(request=SecretInput, responses={201: SecretOutput})
    def post(self, request: Request) -> Response:
        given = validated(SecretInput, request.data)
        made = actions.add_secret(actions.SecretSpec(**given), signed_in(request))
        return Response(SecretOutput(find_visible_secret(request.user, made.pk)).data, status=201)


class SecretDetail(GenericAPIView[Secret]):
    serializer_class = SecretOutput

    def get(self, request: Request, secret_id: int) -> Response:
        return Response(SecretOutput(find_visible_secret(request.user, secret_id)).data)

    @extend_schema(request=SecretChange, responses=SecretOutput)
    def patch(self, request: Request, secret_id: int) -> Response:
        """Replace the value. Trainings get it at their next start."""
        row = find_visible_secret(request.user, secret_id)
        actions.replace_secret(row.pk, **validated(SecretChange, request.data), actor=signed_in(request))
        return Response(SecretOutput(find_visible_secret(request.user, row.pk)).data)

    @extend_schema(responses={204: OpenApiResponse(description="The secret is deleted.")})
    def delete(self, request: Request, secret_id: int) -> Response:
        """Delete the secret. Refused while trainings wait or run that get it."""
        row = find_visible_secret(request.user, secret_id)
        actions.delete_secret(row.pk, signed_in(request))
        return Response(status=204)
