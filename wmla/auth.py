"""Log-on of WMLA's clients: those of Conductor and EGO start a session, Cloud Pak's returns a token."""

from typing import Any

from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import URLPattern
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import BACKEND, BasicLogin
from accounts.models import ApiToken
from accounts.tokens import log_off, log_on
from core.errors import UserError
from core.rest import signed_in
from core.text import is_storable
from wmla.base_view import ConductorView, WmlaView, csrf_token_of, json_body, route

__all__ = ["auth_urls", "conductor_urls", "ego_urls", "preauth_urls"]

#: Lifetime of a session, as in Conductor.
SESSION_SECONDS = 8 * 3600


class ConductorLogonOutput(serializers.Serializer[Any]):
    csrftoken = serializers.CharField(help_text="Send it with each change that only the session cookie authenticates.")
    username = serializers.CharField()


class WebTokenOutput(serializers.Serializer[Any]):
    accessToken = serializers.CharField(help_text="A JSON web token with `username`, `sub`, `iat` and `exp`.")


class LogonInput(serializers.Serializer[Any]):
    username = serializers.CharField()
    password = serializers.CharField()


class CredentialsInBody(BasicLogin):
    """Credentials as the JSON `{"username", "password"}`, which some clients send even with GET."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        try:
            given = json_body(request)
        except UserError:
            return None
        name, password = given.get("username"), given.get("password")
        if not isinstance(name, str) or not isinstance(password, str) or not is_storable(name):
            return None
        return self.authenticate_credentials(name, password, request)


class ConductorLogon(ConductorView):
    authentication_classes: list[type[BaseAuthentication]] = [BasicLogin]

    @extend_schema(responses=ConductorLogonOutput)
    def get(self, request: Request) -> Response:
        """Start a session of 8 hours; its cookie is valid for every port of this host."""
        user, plain = signed_in(request), request._request
        login(plain, user, backend=BACKEND)
        plain.session.set_expiry(SESSION_SECONDS)
        plain.session.save()
        token = csrf_token_of(plain.session.session_key or "")
        return Response({"csrftoken": token, "username": user.get_username()})


class Logon(WmlaView):
    # Only a password, in the body or by Basic, yields a token: a cookie or token does not.
    authentication_classes: list[type[BaseAuthentication]] = [BasicLogin, CredentialsInBody]

    @extend_schema(responses=WebTokenOutput)
    def get(self, request: Request) -> Response:
        """Return a token for `Authorization: Bearer` or `X-Auth-Token`, for 12 hours or until the password changes."""
        return Response({"accessToken": log_on(signed_in(request)).text})

    @extend_schema(request=LogonInput, responses=WebTokenOutput)
    def post(self, request: Request) -> Response:
        """Return a token, as GET does."""
        return self.get(request)


class ValidateAuth(WmlaView):
    """Log-on URL of clients of Cloud Pak's own services; returns the same kind of token."""

    authentication_classes: list[type[BaseAuthentication]] = [BasicLogin]

    @extend_schema(responses=WebTokenOutput)
    def get(self, request: Request) -> Response:
        """Return a token for Basic credentials."""
        return Response({"accessToken": log_on(signed_in(request)).text})


class Logoff(WmlaView):
    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request) -> HttpResponse:
        """Revoke the token of this request."""
        if isinstance(request.auth, ApiToken):
            log_off(request.auth)
        return HttpResponse(status=204)


conductor_urls: list[URLPattern] = [route("auth/logon", ConductorLogon, "conductor-logon")]
ego_urls: list[URLPattern] = [route("auth/logon", ConductorLogon, "ego-logon")]
auth_urls: list[URLPattern] = [route("logon", Logon, "logon"), route("logoff", Logoff, "logoff")]
preauth_urls: list[URLPattern] = [route("validateAuth", ValidateAuth, "validate-auth")]


class _BodyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """OpenAPI scheme for credentials in a body: OpenAPI has none, and Basic is the closest."""

    target_class = CredentialsInBody
    name = "credentialsInBody"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "basic"}
