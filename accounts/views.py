"""One's own account, and the page that a one-time link opens."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import login
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts.forms import NewPasswordForm, OwnPasswordForm, TokenForm
from accounts.links import count_wrong_link, find_link, set_password_by_link
from accounts.passwords import change_own_password
from accounts.queries import find_user, user_row
from accounts.tokens import NewToken, make_token, withdraw_token
from core.errors import NotFound, UserError
from core.formfields import show_error
from core.notices import say
from core.pages import login_user, or_404

__all__ = ["account", "account_password", "account_token_make", "account_token_withdraw", "one_time_link"]

_BACKEND = "django.contrib.auth.backends.ModelBackend"


@require_safe
def account(request: HttpRequest) -> HttpResponse:
    return _account_page(request)


@sensitive_post_parameters()
@require_POST
def account_password(request: HttpRequest) -> HttpResponse:
    form, user = OwnPasswordForm(request.POST), login_user(request)
    if form.is_valid():
        values = form.cleaned_data
        try:
            change_own_password(request, user, values["old_password"], values["password"])
        except UserError as error:
            show_error(form, error)
        else:
            say(request, "Your password is changed. Wherever else you were logged in, you are no longer.")
            return redirect("account")
    return _account_page(request, password_form=form)


@require_POST
def account_token_make(request: HttpRequest) -> HttpResponse:
    form = TokenForm(request.POST)
    if form.is_valid():
        try:
            made = make_token(login_user(request), form.cleaned_data["name"], form.expires_at())
        except UserError as error:
            show_error(form, error)
        else:
            # Not after a redirect: the token would have to lie somewhere in between.
            return _account_page(request, made=made)
    return _account_page(request, token_form=form)


@require_POST
def account_token_withdraw(request: HttpRequest, token_id: int) -> HttpResponse:
    user = login_user(request)
    token = or_404(user.api_tokens.filter(pk=token_id).first())
    withdraw_token(user, token)
    say(request, f"The token “{token.name}” is withdrawn: it opens nothing any more.")
    return redirect("account")


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def one_time_link(request: HttpRequest, link_id: int, secret: str) -> HttpResponse:
    """Nothing happens until the form is sent: mail programs and chats open links by themselves."""
    form = NewPasswordForm(request.POST or None)
    try:
        username = find_link(request, link_id, secret).user.get_username()
        if request.method == "POST" and form.is_valid():
            user = set_password_by_link(request, link_id, secret, form.cleaned_data["password"])
            login(request, user, backend=_BACKEND)
            messages.success(request, "Your password is set, and you are logged in.")
            return redirect("overview")
    except NotFound as error:
        count_wrong_link(request)
        return render(request, "accounts/link_gone.html", {"sentence": error.message}, status=404)
    except UserError as error:
        if error.code == "throttled":
            return render(request, "accounts/link_gone.html", {"sentence": error.message}, status=429)
        show_error(form, error)
    return render(request, "accounts/link.html", {"form": form, "username": username})


def _account_page(
    request: HttpRequest,
    *,
    password_form: Form | None = None,
    token_form: Form | None = None,
    made: NewToken | None = None,
) -> HttpResponse:
    user = login_user(request)
    context = {
        "section": "account",
        "crumbs": [("Your account", None)],
        "row": user_row(find_user(user.username)),
        "tokens": user.api_tokens.all(),
        "password_form": password_form or OwnPasswordForm(),
        "token_form": token_form or TokenForm(),
        "made": made,
    }
    status = 200 if password_form is None and token_form is None else 400
    response = render(request, "accounts/account.html", context, status=status)
    if made is not None:
        response["Cache-Control"] = "no-store"
    return response
