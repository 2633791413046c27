"""Addresses of log-in with the OpenID provider: to it, back from it, and its word that somebody has logged out."""

import logging

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from accounts.login_page import own_page, refused_log_in
from accounts.organization.arrivals import arrive, site_table
from accounts.organization.config import OidcConfig
from accounts.organization.oidc import claimed_person, provider_of
from accounts.organization.provider_sessions import end_sessions, log_in
from core.errors import NotAllowed, Unavailable, UserError

__all__ = ["oidc_callback", "oidc_login", "oidc_logout"]

logger = logging.getLogger(__name__)

#: Time within which a person has to come back from the provider.
_MINUTES = 10
_COOKIE = "tidepool_log_in"
_SALT = "tidepool.oidc"


@never_cache
@require_safe
def oidc_login(request: HttpRequest) -> HttpResponse:
    """Lead the browser to the provider. What must come back from there is in a signed cookie of this browser."""
    after = own_page(request, request.GET.get("next", ""))
    try:
        attempt = provider_of(_config()).begin(request.build_absolute_uri(reverse("oidc-callback")))
    except UserError as error:
        return refused_log_in(request, error, after)
    response = redirect(attempt.url)
    response.set_cookie(
        _COOKIE,
        signing.dumps({**attempt.kept(), "next": after}, salt=_SALT),
        max_age=_MINUTES * 60,
        path=reverse("oidc-login"),
        secure=bool(settings.SESSION_COOKIE_SECURE),
        httponly=True,
        samesite="Lax",
    )
    return response


@never_cache
@require_safe
def oidc_callback(request: HttpRequest) -> HttpResponse:
    """Log in the person whom the provider sends back, or show why not."""
    after = ""
    try:
        config, kept = _config(), _kept(request)
        after = kept["next"]
        claims = provider_of(config).claims(kept, request.GET.dict())
        user = arrive(claimed_person(config, claims), site_table())
        log_in(request, user, str(claims.get("sid", "")))
    except UserError as error:
        response = refused_log_in(request, error, after)
    else:
        response = redirect(after or settings.LOGIN_REDIRECT_URL)
    response.delete_cookie(_COOKIE, path=reverse("oidc-login"), samesite="Lax")
    return response


@csrf_exempt
@never_cache
@require_POST
def oidc_logout(request: HttpRequest) -> HttpResponse:
    """End the sessions of somebody who has logged out at the provider, which says so with a signed token."""
    try:
        config = _config()
        out = provider_of(config).logged_out(request.POST.get("logout_token", ""))
    except UserError as error:
        status = error.status if isinstance(error, Unavailable) else 400
        return JsonResponse({"error": "invalid_request", "error_description": error.message}, status=status)
    logger.info("the provider has logged somebody out, ended sessions: %s", end_sessions(config.issuer, out))
    return HttpResponse(status=200)


def _config() -> OidcConfig:
    config: OidcConfig | None = settings.OIDC
    if config is None:
        raise UserError("This site has no provider for logins: log in with a user name and a password.")
    return config


def _kept(request: HttpRequest) -> dict[str, str]:
    try:
        kept: dict[str, str] = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=_MINUTES * 60)
    except signing.BadSignature:
        raise NotAllowed(
            f"This browser has not begun a login in the last {_MINUTES} minutes: log in again, in one go."
        ) from None
    return kept
