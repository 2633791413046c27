"""REST API of accounts: `/api/v1/me/…` for one's own account, `/api/v1/users/…` for administrators."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.urls import path, reverse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import actions, device_login
from accounts.models import ApiToken
from accounts.passwords import Handout, change_own_password
from accounts.queries import find_user, user_row, users
from accounts.tokens import UNNAMED, create_token, make_token, withdraw_token
from core.errors import NotFound, existing
from core.rest import ErrorSerializer, NamedPages, Pages, StrictSerializer, signed_in, validated
from core.roles import Role, is_cluster_admin, require_cluster_admin, role_of
from core.scopes import FULL, SUBMIT

__all__ = ["urlpatterns"]

_GONE = {204: OpenApiResponse(description="Deleted.")}
_SCOPES = "read, submit (read, and trainings with what they need), full, or job:412 (that training alone)."
_STATES = ["active", "invited", "password reset", "no password", "deactivated"]


class UserOutput(serializers.Serializer[User]):
    id = serializers.IntegerField()
    username = serializers.CharField()
    role = serializers.ChoiceField(Role.choices)
    state = serializers.ChoiceField(_STATES)
    link_expires_at = serializers.DateTimeField(
        allow_null=True, help_text="Purpose of the unused one-time link; null: no link."
    )
    instance_groups = serializers.ListField(
        child=serializers.CharField(),
        help_text="Instance groups that list the user as a member. Groups without members are open to all users.",
    )
    administers = serializers.ListField(child=serializers.CharField(), help_text="Instance groups.")
    tokens = serializers.IntegerField(help_text="Number of API tokens.")
    last_login = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()

    def to_representation(self, user: User) -> dict[str, Any]:
        return super().to_representation(user_row(user))  # type: ignore[arg-type]


class InviteInput(StrictSerializer):
    username = serializers.CharField(max_length=1000, trim_whitespace=False)
    role = serializers.ChoiceField(Role.choices, default=Role.DATA_SCIENTIST)


class RoleInput(StrictSerializer):
    role = serializers.ChoiceField(Role.choices)


class HandoutOutput(serializers.Serializer[Any]):
    user = UserOutput()
    link = serializers.CharField(help_text="One-time link for the user. Only this response contains it.")
    expires_at = serializers.DateTimeField()


class PasswordInput(StrictSerializer):
    old_password = serializers.CharField(max_length=4096, trim_whitespace=False)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)


class TokenInput(StrictSerializer):
    name = serializers.CharField(max_length=1000, trim_whitespace=False)
    expires_at = serializers.DateTimeField(allow_null=True, default=None, help_text="null: never.")
    scope = serializers.CharField(max_length=64, default=FULL, help_text=_SCOPES)


class TokenOutput(serializers.ModelSerializer[ApiToken]):
    class Meta:
        model = ApiToken
        fields = ["id", "name", "scope", "created_at", "expires_at", "last_used_at"]


class NewTokenOutput(TokenOutput):
    token = serializers.CharField(help_text="Shown only now.")

    class Meta(TokenOutput.Meta):
        fields = [*TokenOutput.Meta.fields, "token"]


class MeOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    username = serializers.CharField()
    is_staff = serializers.BooleanField()
    role = serializers.ChoiceField(Role.choices)
    has_mlflow = serializers.BooleanField(help_text="Whether this site serves MLflow at /mlflow.")


class TokenState(serializers.Serializer[Any]):
    created_at = serializers.DateTimeField(allow_null=True, help_text="Null if there is no token.")


class OnlyToken(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Shown only now.")


class Me(GenericAPIView[User]):
    """The account that sends the request."""

    serializer_class = MeOutput

    def get(self, request: Request) -> Response:
        user = signed_in(request)
        is_staff, role = is_cluster_admin(user), role_of(user)
        has_mlflow = bool(settings.TIDEPOOL_MLFLOW_SOCKET)
        values = {"id": user.pk, "username": user.username, "is_staff": is_staff, "role": role}
        return Response({**values, "has_mlflow": has_mlflow})


class MyPassword(GenericAPIView[User]):
    serializer_class = PasswordInput

    @extend_schema(request=PasswordInput, responses={204: OpenApiResponse(description="Changed.")})
    def post(self, request: Request) -> Response:
        """Change your own password. All other sessions end; tokens remain valid."""
        given = validated(PasswordInput, request.data)
        change_own_password(request._request, signed_in(request), given["old_password"], given["password"])
        return Response(status=204)


class MyToken(GenericAPIView[ApiToken]):
    """Your token with the name "default". For others, see `me/tokens/`."""

    serializer_class = TokenState

    def get(self, request: Request) -> Response:
        token = signed_in(request).api_tokens.filter(name=UNNAMED).first()
        return Response(TokenState({"created_at": token and token.created_at}).data)

    @extend_schema(request=None, responses={201: OnlyToken})
    def post(self, request: Request) -> Response:
        """Create a new token and revoke the earlier one."""
        return Response({"token": create_token(signed_in(request))}, status=201)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request) -> Response:
        user = signed_in(request)
        if token := user.api_tokens.filter(name=UNNAMED).first():
            withdraw_token(user, token)
        return Response(status=204)


class MyTokens(ListAPIView[ApiToken]):
    """Your own tokens."""

    serializer_class = TokenOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return ApiToken.objects.filter(user=self.request.user.pk)

    @extend_schema(request=TokenInput, responses={201: NewTokenOutput})
    def post(self, request: Request) -> Response:
        """Create a token. Only this response contains it."""
        made = make_token(signed_in(request), **validated(TokenInput, request.data))
        return Response({**TokenOutput(made.row).data, "token": made.text}, status=201)


class MyTokenDetail(GenericAPIView[ApiToken]):
    serializer_class = TokenOutput

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, token: int) -> Response:
        """Revoke the token at once."""
        user = signed_in(request)
        return _withdrawn(user, user, token)


class MyCurrentToken(GenericAPIView[ApiToken]):
    """The token that this request is sent with."""

    serializer_class = TokenOutput

    def get_object(self) -> ApiToken:
        if isinstance(self.request.auth, ApiToken):
            return self.request.auth
        raise NotFound("This request is authenticated by a session or password, not by a token.")

    @extend_schema(responses={200: TokenOutput, 404: ErrorSerializer})
    def get(self, request: Request) -> Response:
        return Response(TokenOutput(self.get_object()).data)

    @extend_schema(responses={**_GONE, 404: ErrorSerializer})
    def delete(self, request: Request) -> Response:
        """Revoke the token at once."""
        withdraw_token(signed_in(request), self.get_object())
        return Response(status=204)


class DeviceInput(StrictSerializer):
    machine = serializers.CharField(max_length=1000, trim_whitespace=False, help_text="Name of the token.")
    scope = serializers.CharField(max_length=64, default=SUBMIT, help_text=_SCOPES)


class DeviceOutput(serializers.Serializer[Any]):
    device = serializers.CharField(help_text="Secret with which the client polls for the token.")
    code = serializers.CharField(help_text="Code that the user enters.")
    address = serializers.CharField(help_text="URL of the page on which the user confirms.")
    expires_at = serializers.DateTimeField()
    poll_seconds = serializers.IntegerField(help_text="Seconds between two polls for the token.")


class DeviceFetchInput(StrictSerializer):
    device = serializers.CharField(max_length=200)


class DeviceToken(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Only this response contains it.")
    username = serializers.CharField()
    scope = serializers.CharField()
    expires_at = serializers.DateTimeField()


# No docstring: the API's description would give it to both addresses.
class DeviceView(GenericAPIView[Any]):
    serializer_class: Any = DeviceOutput
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    refuses_with = (404, 429)


class Device(DeviceView):
    @extend_schema(request=DeviceInput, responses={201: DeviceOutput})
    def post(self, request: Request) -> Response:
        """Request a token that a user confirms in a browser. Needs no log-in."""
        made = device_login.ask(request._request, **validated(DeviceInput, request.data))
        address = request.build_absolute_uri(f"{reverse('device')}?code={made.code}")
        values = {**vars(made), "address": address, "poll_seconds": device_login.POLL_SECONDS}
        return Response(DeviceOutput(values).data, status=201, headers={"Cache-Control": "no-store"})


class DeviceFetch(DeviceView):
    @extend_schema(
        request=DeviceFetchInput, responses={201: DeviceToken, 202: OpenApiResponse(description="Not confirmed yet.")}
    )
    def post(self, request: Request) -> Response:
        """Fetch the token. It is returned only once."""
        made = device_login.fetch(**validated(DeviceFetchInput, request.data))
        if made is None:
            return Response(status=202)
        row = made.row
        values = {"token": made.text, "username": row.user.username, "scope": row.scope, "expires_at": row.expires_at}
        return Response(DeviceToken(values).data, status=201, headers={"Cache-Control": "no-store"})


# No docstring: the API's description would give it to each address below.
class UserView(GenericAPIView[User]):
    serializer_class: Any = UserOutput
    refuses_with = (403,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require_cluster_admin(request.user)

    def user(self) -> User:
        return find_user(self.kwargs["reference"])

    def handed_out(self, handout: Handout, status: int = 200) -> Response:
        link = self.request.build_absolute_uri(handout.path)
        values = {"user": find_user(handout.user.username), "link": link, "expires_at": handout.expires_at}
        return Response(HandoutOutput(values).data, status=status, headers={"Cache-Control": "no-store"})


class UserList(ListModelMixin, UserView):
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return users(self.request.query_params.get("search", "").replace("\0", ""))

    @extend_schema(parameters=[OpenApiParameter("search", str, description="Part of a name.")])
    def get(self, request: Request) -> Response:
        """List all users. For administrators of the cluster, like all addresses below."""
        return self.list(request)

    @extend_schema(request=InviteInput, responses={201: HandoutOutput})
    def post(self, request: Request) -> Response:
        """Invite a user. The response contains a link with which the user sets a password."""
        return self.handed_out(actions.invite(signed_in(request), **validated(InviteInput, request.data)), 201)


class UserDetail(UserView):
    def get(self, request: Request, reference: str) -> Response:
        return Response(UserOutput(self.user()).data)

    @extend_schema(request=RoleInput, responses=UserOutput)
    def patch(self, request: Request, reference: str) -> Response:
        """Change the role. Administrators of an instance group are set in that group."""
        given, user = validated(RoleInput, request.data), self.user()
        actions.change_role(signed_in(request), user.pk, given["role"])
        return Response(UserOutput(find_user(user.username)).data)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str) -> Response:
        """Delete an invited user who has never logged in. Deactivate other users instead, to keep their objects."""
        actions.withdraw_invitation(signed_in(request), self.user().pk)
        return Response(status=204)


class UserReset(UserView):
    @extend_schema(request=None, responses=HandoutOutput)
    def post(self, request: Request, reference: str) -> Response:
        """Invalidate the password and end all sessions; the user sets a new password with the link. Tokens remain
        valid."""
        return self.handed_out(actions.reset_password(signed_in(request), self.user().pk))


class UserActivation(UserView):
    @extend_schema(request=None, responses=HandoutOutput)
    def post(self, request: Request, reference: str) -> Response:
        """Reactivate a deactivated user, who sets a new password with the link."""
        return self.handed_out(actions.activate(signed_in(request), self.user().pk))


class UserDeactivation(UserView):
    @extend_schema(request=None, responses=UserOutput)
    def post(self, request: Request, reference: str) -> Response:
        """Deactivate the user: end sessions, websockets, tokens and the password at once. Trainings continue; cancel
        them with `jobs/`."""
        user = actions.deactivate(signed_in(request), self.user().pk)
        return Response(UserOutput(find_user(user.username)).data)


class UserTokens(UserView):
    serializer_class = TokenOutput
    pagination_class = NamedPages

    @extend_schema(responses=TokenOutput(many=True))
    def get(self, request: Request, reference: str) -> Response:
        """List the tokens of a user, without the secrets."""
        rows: Any = self.paginate_queryset(ApiToken.objects.filter(user=self.user()))  # type: ignore[arg-type]
        return self.get_paginated_response(TokenOutput(rows, many=True).data)


class UserTokenDetail(UserView):
    serializer_class = TokenOutput

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str, token: int) -> Response:
        return _withdrawn(signed_in(request), self.user(), token)


def _withdrawn(actor: User, user: User, token: int) -> Response:
    withdraw_token(actor, existing(user.api_tokens.filter(pk=token).first(), "token of this user"))
    return Response(status=204)


urlpatterns = [
    path("me/", Me.as_view(), name="me"),
    path("me/password/", MyPassword.as_view(), name="my-password"),
    path("me/token/", MyToken.as_view(), name="token"),
    path("me/tokens/", MyTokens.as_view(), name="my-tokens"),
    path("me/tokens/current/", MyCurrentToken.as_view(), name="my-current-token"),
    path("me/tokens/<int:token>/", MyTokenDetail.as_view(), name="my-token"),
    path("device/", Device.as_view(), name="device"),
    path("device/token/", DeviceFetch.as_view(), name="device-token"),
    path("users/", UserList.as_view(), name="users"),
    path("users/<str:reference>/", UserDetail.as_view(), name="user"),
    path("users/<str:reference>/reset-password/", UserReset.as_view(), name="user-reset"),
    path("users/<str:reference>/deactivate/", UserDeactivation.as_view(), name="user-deactivate"),
    path("users/<str:reference>/activate/", UserActivation.as_view(), name="user-activate"),
    path("users/<str:reference>/tokens/", UserTokens.as_view(), name="user-tokens"),
    path("users/<str:reference>/tokens/<int:token>/", UserTokenDetail.as_view(), name="user-token"),
]
