"""The page for log-in: with a password and, where the site has a provider, with that."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from accounts.authentication import BACKEND
from core.errors import Conflict, NotAllowed, Unavailable, UserError

__all__ = ["LogIn", "end_in_time", "own_page", "refused_log_in"]


class LogIn(LoginView):
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().post(request, *args, **kwargs)
        except (NotAllowed, Conflict, Unavailable) as error:
            return refused_log_in(request, error, self.get_redirect_url())

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_valid(form)
        if self.request.session[BACKEND_SESSION_KEY] != BACKEND:
            end_in_time(self.request)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), **_provider()}


def refused_log_in(request: HttpRequest, error: UserError, after: str = "") -> HttpResponse:
    """Show the page again with the reason. after: the page to open after the log-in."""
    context = {"form": AuthenticationForm(request), "next": after, "refusal": error.message, **_provider()}
    return render(request, "registration/login.html", context, status=error.status)


def end_in_time(request: HttpRequest) -> None:
    """Have the session end when the provider or the directory is to decide again."""
    # A moment, because Django would count seconds from each change of the session.
    request.session.set_expiry(timezone.now() + timedelta(seconds=settings.PROVIDER_SESSION_SECONDS))


def own_page(request: HttpRequest, address: str) -> str:
    """Return the address if it leads to this site, else ""."""
    is_own = url_has_allowed_host_and_scheme(address, {request.get_host()}, require_https=request.is_secure())
    return address if is_own else ""


def _provider() -> dict[str, str]:
    return {"provider_name": settings.OIDC.name if settings.OIDC is not None else ""}
