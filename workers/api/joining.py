"""`/api/v1/join-tokens/`, for administrators, and `/api/v1/join/`, for the machines that they give a token to."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import Pages, StrictSerializer, signed_in
from core.roles import require_cluster_admin
from workers.join_tokens import create_join_token, redeem, withdraw_join_token
from workers.models import JoinToken

__all__ = ["Join", "JoinTokenDetail", "JoinTokenList"]


class JoinTokenInput(StrictSerializer):
    hosts = serializers.IntegerField(help_text="How many machines may use it.")
    hours = serializers.FloatField(default=24.0, help_text="How long it is good for.")


class JoinTokenOutput(serializers.ModelSerializer[JoinToken]):
    class Meta:
        model = JoinToken
        fields = ["id", "hosts_left", "expires_at", "created_by", "created_at"]


class JoinTokenMade(JoinTokenOutput):
    token = serializers.CharField(help_text="Shown only now.")

    class Meta(JoinTokenOutput.Meta):
        fields = [*JoinTokenOutput.Meta.fields, "token"]


class JoinInput(StrictSerializer):
    token = serializers.CharField(max_length=200)
    host = serializers.CharField(max_length=200, help_text="What the machine shall be called.")


class JoinOutput(serializers.Serializer[Any]):
    host = serializers.CharField()
    broker_url = serializers.CharField(help_text="With the password of executors.")
    results = serializers.CharField(help_text="Folder that all hosts share.")
    data_roots = serializers.ListField(child=serializers.CharField())
    mark = serializers.CharField(help_text="What `.tidepool` in the folder of results holds.")
    protocol = serializers.IntegerField()


class JoinTokenList(ListAPIView[JoinToken]):
    """Tokens that are still good for a host."""

    serializer_class = JoinTokenOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        require_cluster_admin(signed_in(self.request))
        return JoinToken.objects.all()

    @extend_schema(request=JoinTokenInput, responses={201: JoinTokenMade})
    def post(self, request: Request) -> Response:
        """Make a token with which machines join."""
        require_cluster_admin(signed_in(request))
        given = JoinTokenInput(data=request.data)
        given.is_valid(raise_exception=True)
        token, row = create_join_token(signed_in(request), **given.validated_data)
        return Response({**JoinTokenOutput(row).data, "token": token}, status=201)


class JoinTokenDetail(GenericAPIView[JoinToken]):
    serializer_class = JoinTokenOutput

    @extend_schema(responses={204: OpenApiResponse(description="It is withdrawn.")})
    def delete(self, request: Request, token: int) -> Response:
        require_cluster_admin(signed_in(request))
        withdraw_join_token(signed_in(request), token)
        return Response(status=204)


class Join(GenericAPIView[Any]):
    """Exchange a join token for what an executor needs. The token is all that is asked for."""

    serializer_class = JoinOutput
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    @extend_schema(request=JoinInput, responses={201: JoinOutput})
    def post(self, request: Request) -> Response:
        given = JoinInput(data=request.data)
        given.is_valid(raise_exception=True)
        return Response(JoinOutput(asdict(redeem(**given.validated_data))).data, status=201)
