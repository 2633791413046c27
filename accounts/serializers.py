"""Shapes of users, tokens and what is handed out once."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from accounts.models import ApiToken
from core.rest import StrictSerializer
from core.roles import Role

__all__ = [
    "HandoutOutput",
    "InviteInput",
    "NewTokenOutput",
    "PasswordInput",
    "RoleInput",
    "TokenInput",
    "TokenOutput",
    "UserOutput",
]

_STATES = ["active", "invited", "password reset", "no password", "deactivated"]


class UserOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    username = serializers.CharField()
    role = serializers.ChoiceField(Role.choices)
    state = serializers.ChoiceField(_STATES)
    link_expires_at = serializers.DateTimeField(allow_null=True, help_text="Of the open one-time link; null: none.")
    instance_groups = serializers.ListField(
        child=serializers.CharField(), help_text="Groups with members that the user is one of. Others are open to all."
    )
    administers = serializers.ListField(child=serializers.CharField(), help_text="Instance groups.")
    tokens = serializers.IntegerField(help_text="How many API tokens.")
    last_login = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class InviteInput(StrictSerializer):
    username = serializers.CharField(max_length=1000, trim_whitespace=False)
    role = serializers.ChoiceField(Role.choices, default=Role.DATA_SCIENTIST)


class RoleInput(StrictSerializer):
    role = serializers.ChoiceField(Role.choices)


class HandoutOutput(serializers.Serializer[Any]):
    user = UserOutput()
    link = serializers.CharField(help_text="The one-time link to hand on. Shown only now.")
    expires_at = serializers.DateTimeField()


class PasswordInput(StrictSerializer):
    old_password = serializers.CharField(max_length=4096, trim_whitespace=False)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)


class TokenInput(StrictSerializer):
    name = serializers.CharField(max_length=1000, trim_whitespace=False)
    expires_at = serializers.DateTimeField(allow_null=True, default=None, help_text="null: never.")


class TokenOutput(serializers.ModelSerializer[ApiToken]):
    class Meta:
        model = ApiToken
        fields = ["id", "name", "created_at", "expires_at", "last_used_at"]


class NewTokenOutput(TokenOutput):
    token = serializers.CharField(help_text="Shown only now.")

    class Meta(TokenOutput.Meta):
        fields = [*TokenOutput.Meta.fields, "token"]
