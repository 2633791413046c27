"""`/api/v1/me/…` for everybody's own account, `/api/v1/users/…` for administrators."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import actions
from accounts.links import Handout
from accounts.models import ApiToken
from accounts.passwords import change_own_password
from accounts.queries import find_user, user_row, users
from accounts.serializers import (
    HandoutOutput,
    InviteInput,
    NewTokenOutput,
    PasswordInput,
    RoleInput,
    TokenInput,
    TokenOutput,
    UserOutput,
)
from accounts.tokens import UNNAMED, create_token, make_token, withdraw_token
from core.rest import NamedPages, Pages, found, signed_in
from core.roles import Role, require_cluster_admin, role_of

__all__ = ["urlpatterns"]

_GONE = {204: OpenApiResponse(description="It is gone.")}


class MeOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    username = serializers.CharField()
    is_staff = serializers.BooleanField()
    role = serializers.ChoiceField(Role.choices)


class TokenState(serializers.Serializer[Any]):
    created_at = serializers.DateTimeField(allow_null=True, help_text="null: there is no token.")


class OnlyToken(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Shown only now.")


class Me(GenericAPIView[User]):
    """Who is asking."""

    serializer_class = MeOutput

    def get(self, request: Request) -> Response:
        user = signed_in(request)
        return Response({"id": user.pk, "username": user.username, "is_staff": user.is_staff, "role": role_of(user)})


class MyPassword(GenericAPIView[User]):
    serializer_class = PasswordInput

    @extend_schema(request=PasswordInput, responses={204: OpenApiResponse(description="It is changed.")})
    def post(self, request: Request) -> Response:
        """Change one's own. All sessions but this one end; tokens stay."""
        given = PasswordInput(data=request.data)
        given.is_valid(raise_exception=True)
        user, values = signed_in(request), given.validated_data
        change_own_password(request._request, user, values["old_password"], values["password"])
        return Response(status=204)


class MyToken(GenericAPIView[ApiToken]):
    """One's token of the name "default". For others, see `me/tokens/`."""

    serializer_class = TokenState

    def get(self, request: Request) -> Response:
        token = _tokens(signed_in(request)).filter(name=UNNAMED).first()
        return Response(TokenState({"created_at": token and token.created_at}).data)

    @extend_schema(request=None, responses={201: OnlyToken})
    def post(self, request: Request) -> Response:
        """Make a new one; the earlier one ends."""
        return Response({"token": create_token(signed_in(request))}, status=201)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request) -> Response:
        user = signed_in(request)
        if token := _tokens(user).filter(name=UNNAMED).first():
            withdraw_token(user, token)
        return Response(status=204)


class MyTokens(ListAPIView[ApiToken]):
    """One's own tokens."""

    serializer_class = TokenOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return _tokens(signed_in(self.request))

    @extend_schema(request=TokenInput, responses={201: NewTokenOutput})
    def post(self, request: Request) -> Response:
        """Make one. It is shown only in this answer."""
        given = TokenInput(data=request.data)
        given.is_valid(raise_exception=True)
        made = make_token(signed_in(request), **given.validated_data)
        return Response({**TokenOutput(made.row).data, "token": made.text}, status=201)


class MyTokenDetail(GenericAPIView[ApiToken]):
    serializer_class = TokenOutput

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, token: int) -> Response:
        """Withdraw it: it opens nothing from now on."""
        user = signed_in(request)
        withdraw_token(user, _found_token(user, token))
        return Response(status=204)


class UserList(ListAPIView[User]):
    serializer_class = UserOutput
    pagination_class = Pages

    @extend_schema(parameters=[OpenApiParameter("search", str, description="Part of a name.")])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """All users; for administrators of the cluster, as are all addresses below."""
        require_cluster_admin(request.user)
        rows = self.paginate_queryset(users(request.query_params.get("search", "").replace("\0", "")))
        return self.get_paginated_response(UserOutput([user_row(user) for user in rows or []], many=True).data)

    @extend_schema(request=InviteInput, responses={201: HandoutOutput})
    def post(self, request: Request) -> Response:
        """Invite somebody, who sets a password by the link."""
        require_cluster_admin(request.user)
        given = InviteInput(data=request.data)
        given.is_valid(raise_exception=True)
        values = given.validated_data
        return _handed_out(request, actions.invite(signed_in(request), values["username"], values["role"]), 201)


class UserDetail(GenericAPIView[User]):
    serializer_class = UserOutput

    def get(self, request: Request, reference: str) -> Response:
        require_cluster_admin(request.user)
        return Response(UserOutput(user_row(find_user(reference))).data)

    @extend_schema(request=RoleInput, responses=UserOutput)
    def patch(self, request: Request, reference: str) -> Response:
        """Change the role. Who administers an instance group, that group says."""
        require_cluster_admin(request.user)
        given = RoleInput(data=request.data)
        given.is_valid(raise_exception=True)
        user = find_user(reference)
        actions.change_role(signed_in(request), user.pk, given.validated_data["role"])
        return Response(UserOutput(user_row(find_user(user.username))).data)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str) -> Response:
        """Withdraw the invitation of somebody who never came. Others are deactivated: what they did stays theirs."""
        require_cluster_admin(request.user)
        actions.withdraw_invitation(signed_in(request), find_user(reference).pk)
        return Response(status=204)


class UserReset(GenericAPIView[User]):
    @extend_schema(request=None, responses=HandoutOutput)
    def post(self, request: Request, reference: str) -> Response:
        """Reset the password: it and all sessions end, and the user sets another one by the link. Tokens stay."""
        require_cluster_admin(request.user)
        return _handed_out(request, actions.reset_password(signed_in(request), find_user(reference).pk))


class UserActivation(GenericAPIView[User]):
    @extend_schema(request=None, responses=HandoutOutput)
    def post(self, request: Request, reference: str) -> Response:
        """Let a deactivated user in again, by the link."""
        require_cluster_admin(request.user)
        return _handed_out(request, actions.activate(signed_in(request), find_user(reference).pk))


class UserDeactivation(GenericAPIView[User]):
    @extend_schema(request=None, responses=UserOutput)
    def post(self, request: Request, reference: str) -> Response:
        """Sessions, websockets, tokens and the password end at once. Trainings go on: cancel them by `jobs/`."""
        require_cluster_admin(request.user)
        user = actions.deactivate(signed_in(request), find_user(reference).pk)
        return Response(UserOutput(user_row(find_user(user.username))).data)


class UserTokens(GenericAPIView[ApiToken]):
    serializer_class = TokenOutput
    pagination_class = NamedPages

    @extend_schema(responses=TokenOutput(many=True))
    def get(self, request: Request, reference: str) -> Response:
        """Of any user; never the tokens themselves."""
        require_cluster_admin(request.user)
        rows = self.paginate_queryset(_tokens(find_user(reference)))
        return self.get_paginated_response(TokenOutput(rows or [], many=True).data)


class UserTokenDetail(GenericAPIView[ApiToken]):
    serializer_class = TokenOutput

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, reference: str, token: int) -> Response:
        require_cluster_admin(request.user)
        withdraw_token(signed_in(request), _found_token(find_user(reference), token))
        return Response(status=204)


def _tokens(user: User) -> Any:
    return ApiToken.objects.filter(user=user)


def _found_token(user: User, number: int) -> ApiToken:
    token: ApiToken = found(_tokens(user).filter(pk=number).first() if number < 2**63 else None, "token of this user")
    return token


def _handed_out(request: Request, handout: Handout, status: int = 200) -> Response:
    link = request.build_absolute_uri(handout.path)
    values = {"user": user_row(find_user(handout.user.username)), "link": link, "expires_at": handout.expires_at}
    return Response(HandoutOutput(values).data, status=status, headers={"Cache-Control": "no-store"})


urlpatterns = [
    path("me/", Me.as_view(), name="me"),
    path("me/password/", MyPassword.as_view(), name="my-password"),
    path("me/token/", MyToken.as_view(), name="token"),
    path("me/tokens/", MyTokens.as_view(), name="my-tokens"),
    path("me/tokens/<int:token>/", MyTokenDetail.as_view(), name="my-token"),
    path("users/", UserList.as_view(), name="users"),
    path("users/<str:reference>/", UserDetail.as_view(), name="user"),
    path("users/<str:reference>/reset-password/", UserReset.as_view(), name="user-reset"),
    path("users/<str:reference>/deactivate/", UserDeactivation.as_view(), name="user-deactivate"),
    path("users/<str:reference>/activate/", UserActivation.as_view(), name="user-activate"),
    path("users/<str:reference>/tokens/", UserTokens.as_view(), name="user-tokens"),
    path("users/<str:reference>/tokens/<int:token>/", UserTokenDetail.as_view(), name="user-token"),
]
