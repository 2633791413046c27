"""Authentication of scripts: `Authorization: Bearer <token>` or Basic. Browsers use their session."""

import hmac
import secrets
from datetime import timedelta
from typing import Any

from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.cache.backends.locmem import LocMemCache
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, BasicAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from accounts.models import ApiToken
from accounts.tokens import digest_of
from accounts.verification_limits import verifying
from core.text import is_storable

__all__ = ["BACKEND", "LOCKED_OUT", "REALM", "BasicLogin", "BearerToken", "Passwords", "XAuthToken", "address_of"]

#: Name of the backend in sessions.
BACKEND = "accounts.authentication.Passwords"
#: Lifetime of verified credentials. A password hash costs 0.4 s of CPU, which polling scripts must not pay each time.
CACHE_SECONDS = 60.0
#: Recently verified credentials: digest keyed for this process -> user's id and stored password hash.
_verified = LocMemCache("credentials", {"timeout": CACHE_SECONDS, "max_entries": 1000})
_KEY = secrets.token_bytes(32)
#: Shortest time between two writes of a token's last use.
_USE_NOTED_EVERY = timedelta(minutes=1)
#: Challenge of a 401. With "Basic", browsers would open their own log-in window over our pages.
REALM = 'Bearer realm="api"'
#: Refusal of a user name with too many wrong passwords from an address.
LOCKED_OUT = "Too many failed logins: wait a quarter of an hour."
_WRONG = "The user name or the password is wrong."


def address_of(request: HttpRequest) -> str:
    """Return the address of the client; "" if there is none, as on a unix socket."""
    return str(request.META.get("REMOTE_ADDR") or "")


class Passwords(ModelBackend):
    """Django's backend with a limit on concurrent verifications, the costliest thing that strangers can request."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        address = address_of(request) if request is not None else ""
        with verifying.turn(address):
            user = super().authenticate(request, username=username, password=password, **kwargs)
        if user is None:
            verifying.count_failure(address)
        return user


class BearerToken(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        if len(words) != 2:
            raise AuthenticationFailed("Send the token as 'Authorization: Bearer <token>'.")
        return _owner_of(words[1].decode("latin-1"))

    def authenticate_header(self, request: Request) -> str:
        return REALM


class XAuthToken(BaseAuthentication):
    """Authentication with the same tokens in `X-Auth-Token`, the header of Cloud Pak's clients."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        text = request.headers.get("X-Auth-Token", "").strip()
        return _owner_of(text) if text else None

    def authenticate_header(self, request: Request) -> str:
        return REALM


def _owner_of(text: str) -> tuple[User, ApiToken]:
    """Return the owner of a token and its row. Only the stored digest counts; claims inside the token do not."""
    token = ApiToken.objects.select_related("user").filter(digest=digest_of(text), user__is_active=True).first()
    if token is None:
        raise AuthenticationFailed("The token is not valid: create a new token on your account page.")
    now = timezone.now()
    if token.expires_at is not None and token.expires_at <= now:
        raise AuthenticationFailed("The token has expired: create a new token on your account page, or log in again.")
    if token.session_hash and not constant_time_compare(token.session_hash, token.user.get_session_auth_hash()):
        raise AuthenticationFailed("The password has changed since the token was created: log in again.")
    if token.last_used_at is None or now - token.last_used_at > _USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token.user, token


class BasicLogin(BasicAuthentication):
    def authenticate_credentials(self, userid: str, password: str, request: Any = None) -> tuple[User, None]:
        if not is_storable(userid):
            raise AuthenticationFailed(_WRONG)
        text = f"{len(userid)}:{userid}:{password}".encode("utf-8", "surrogatepass")
        digest = hmac.digest(_KEY, text, "sha256").hex()
        pk, stored = _verified.get(digest, (0, ""))
        # The query makes an entry invalid at once, in every process, if the password changed or the user is disabled.
        known = User.objects.filter(pk=pk, password=stored, is_active=True).first() if pk else None
        user = known or self._verify(userid, password, request)
        if known is None:
            _verified.set(digest, (user.pk, user.password))
        return user, None

    def authenticate_header(self, request: Request) -> str:
        return REALM

    @staticmethod
    def _verify(userid: str, password: str, request: Request) -> User:
        """Return the user. Wrong passwords count as on the log-in page; too many are refused for a while."""
        plain = getattr(request, "_request", request)
        if not AxesProxyHandler.is_allowed(plain, {"username": userid}):
            raise Throttled(settings.AXES_COOLOFF_TIME * 3600, LOCKED_OUT)
        user = authenticate(request=plain, username=userid, password=password)
        if not isinstance(user, User) or not user.is_active:
            raise AuthenticationFailed(_WRONG)
        return user


class _BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = BearerToken
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class _BasicScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = BasicLogin
    name = "basic"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "basic"}


class _XAuthTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = XAuthToken
    name = "xAuthToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
