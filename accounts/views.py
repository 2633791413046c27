"""Pages of accounts: one's own account, the page of a one-time link, and all users for administrators."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import resolve, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts import actions, device_login
from accounts.authentication import BACKEND
from accounts.forms import ROLES, SCOPES, DeviceForm, InviteForm, NewPasswordForm, OwnPasswordForm, TokenForm
from accounts.link_throttling import ONE_TIME_LINK, count_wrong_guess
from accounts.models import OneTimeLink
from accounts.passwords import Handout, change_own_password, find_link, set_password_by_link
from accounts.queries import find_user, user_row, users
from accounts.tokens import NewToken, make_token, withdraw_token
from core.edit_forms import seen_field
from core.errors import NotFound, UserError
from core.keyset import Order
from core.pages import Undo, carried_out, done, login_user, or_404, page_of, say, show_error
from core.roles import is_cluster_admin, require_cluster_admin, role_of
from core.shown_once import redirect_showing, shown_once

__all__ = [
    "account",
    "account_password",
    "account_token_make",
    "account_token_withdraw",
    "device",
    "one_time_link",
    "user_activate",
    "user_deactivate",
    "user_detail",
    "user_invite",
    "user_list",
    "user_reset",
    "user_role",
    "user_token_withdraw",
    "user_withdraw",
]

LIST_CRUMB = ("Users", "/users/")
_ROLES = [(role.value, role.label, words) for role, words in ROLES.items()]


@require_safe
def account(request: HttpRequest) -> HttpResponse:
    return _account_page(request)


@sensitive_post_parameters()
@require_POST
def account_password(request: HttpRequest) -> HttpResponse:
    form = OwnPasswordForm(request.POST)

    def change() -> bool:
        values = form.cleaned_data
        change_own_password(request, login_user(request), values["old_password"], values["password"])
        return True

    if not carried_out(request, form, change):
        return _account_page(request, password_form=form)
    say(request, "Your password has been changed. Your other sessions have ended.")
    return redirect("account")


@require_POST
def account_token_make(request: HttpRequest) -> HttpResponse:
    form = TokenForm(request.POST)

    def make() -> NewToken:
        return make_token(login_user(request), form.cleaned_data["name"], form.expires_at(), form.given_scope())

    made = carried_out(request, form, make)
    if made is None:
        return _account_page(request, token_form=form)
    return redirect_showing(request, reverse("account"), id=made.row.pk, name=made.row.name, token=made.text)


@require_POST
def account_token_withdraw(request: HttpRequest, token_id: int) -> HttpResponse:
    _withdraw_token(request, login_user(request), token_id)
    return redirect("account")


@require_http_methods(["GET", "HEAD", "POST"])
def device(request: HttpRequest) -> HttpResponse:
    """Confirm or refuse a program's request for a token, by its code."""
    form = DeviceForm(request.POST or (request.GET if "code" in request.GET else None))
    context: dict[str, Any] = {
        "section": "account",
        "crumbs": [("Your account", "/account/"), ("Log in a program", None)],
    }
    if not form.is_valid():
        return render(request, "accounts/device.html", {**context, "form": form}, status=400 if form.errors else 200)
    try:
        grant = device_login.find(request, form.cleaned_data["code"])
        if request.method == "POST" and (given := request.POST.get("answer", "")) in ("yes", "no"):
            device_login.answer(grant, login_user(request), confirmed=given == "yes")
            return render(request, "accounts/device.html", {**context, "grant": grant, "answer": given})
    except UserError as error:
        form.add_error("code", error.message)
        return render(request, "accounts/device.html", {**context, "form": form}, status=error.status)
    opens = SCOPES[grant.scope]
    context |= {"form": form, "grant": grant, "opens": opens, "days": device_login.TOKEN_DAYS}
    return render(request, "accounts/device.html", context)


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def one_time_link(request: HttpRequest, link_id: int, secret: str) -> HttpResponse:
    """Set a password. Only sending the form uses the link up, because mail programs open links by themselves."""
    form = NewPasswordForm(request.POST or None)
    try:
        username = find_link(request, link_id, secret).user.get_username()
        if request.method == "POST" and form.is_valid():
            user = set_password_by_link(request, link_id, secret, form.cleaned_data["password"])
            login(request, user, backend=BACKEND)
            messages.success(request, "Your password has been set, and you are logged in.")
            return redirect("overview")
    except NotFound as error:
        count_wrong_guess(request, ONE_TIME_LINK)
        return render(request, "accounts/link_gone.html", {"sentence": error.message}, status=404)
    except UserError as error:
        if error.code == "throttled":
            return render(request, "accounts/link_gone.html", {"sentence": error.message}, status=429)
        show_error(form, error)
    return render(request, "accounts/link.html", {"form": form, "username": username})


@require_safe
def user_list(request: HttpRequest) -> HttpResponse:
    require_cluster_admin(request.user)
    search = request.GET.get("search", "")[:150]
    page = page_of(request, users(search), Order("username"))
    context = {
        "section": "users",
        "crumbs": [("Users", None)],
        "page": page,
        "rows": [user_row(user) for user in page.rows],
        "search": search,
    }
    return render(request, "accounts/users.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def user_invite(request: HttpRequest) -> HttpResponse:
    require_cluster_admin(request.user)
    form = InviteForm(request.POST or None)
    if handout := carried_out(request, form, lambda: actions.invite(login_user(request), **form.cleaned_data)):
        return _handed_out(request, handout)
    context = {
        "section": "users",
        "crumbs": [LIST_CRUMB, ("Invite", None)],
        "form": form,
        "roles": _ROLES,
        "chosen": form["role"].value(),
    }
    return render(request, "accounts/invite.html", context, status=400 if form.errors else 200)


@require_safe
def user_detail(request: HttpRequest, user_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    user = _user(user_id)
    context = {
        "section": "users",
        "crumbs": [LIST_CRUMB, (user.username, None)],
        "row": user_row(user),
        "is_own": user.pk == login_user(request).pk,
        "tokens": user.api_tokens.all(),
        "roles": _ROLES,
        "active_jobs": user.jobs.filter(finished_at__isnull=True).count(),
        "handout": _shown_link(request, user),
    }
    return render(request, "accounts/user.html", context)


@require_POST
def user_role(request: HttpRequest, user_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    user, role = _user(user_id), request.POST.get("role", "")
    old = role_of(user)
    seen = seen_field(request.POST, "role")
    changed = done(request, lambda: actions.change_role(login_user(request), user_id, role, seen))
    if changed and role_of(_user(user_id)) != old:
        undo = Undo(reverse("user-role", args=[user_id]), {"role": old.value})
        is_own = user_id == login_user(request).pk
        say(
            request, f"{user.username} now has the role {role_of(_user(user_id)).label}.", undo=None if is_own else undo
        )
    # Users who have just given up their own rights may no longer see the page of a user.
    me = User.objects.get(pk=login_user(request).pk)
    return redirect("user", user_id) if is_cluster_admin(me) else redirect("overview")


@require_POST
def user_reset(request: HttpRequest, user_id: int) -> HttpResponse:
    return _hand_out(request, user_id, actions.reset_password)


@require_POST
def user_activate(request: HttpRequest, user_id: int) -> HttpResponse:
    return _hand_out(request, user_id, actions.activate)


@require_POST
def user_deactivate(request: HttpRequest, user_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    user = _user(user_id)
    if done(request, lambda: actions.deactivate(login_user(request), user_id)):
        say(request, f"{user.username} has been deactivated. All sessions and tokens have ended; trainings continue.")
    return redirect("user", user_id)


@require_POST
def user_withdraw(request: HttpRequest, user_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    user = _user(user_id)
    if not done(request, lambda: actions.withdraw_invitation(login_user(request), user_id)):
        return redirect("user", user_id)
    say(request, f"The invitation of {user.username} has been revoked.")
    return redirect("users")


@require_POST
def user_token_withdraw(request: HttpRequest, user_id: int, token_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    _withdraw_token(request, _user(user_id), token_id)
    return redirect("user", user_id)


def _account_page(
    request: HttpRequest,
    *,
    password_form: Form | None = None,
    token_form: Form | None = None,
) -> HttpResponse:
    user = login_user(request)
    row, tokens = user_row(find_user(user.username)), user.api_tokens.all()
    made = shown_once(request)
    context = {
        "section": "account",
        "crumbs": [("Your account", None)],
        "row": row,
        "tokens": tokens,
        "has_password": user.has_usable_password() or not row.has_provider,
        "password_form": password_form or OwnPasswordForm(),
        "token_form": token_form or TokenForm(),
        "made": made if made and any(token.pk == made["id"] for token in tokens) else None,
    }
    status = 200 if password_form is None and token_form is None else 400
    return render(request, "accounts/account.html", context, status=status)


def _user(user_id: int) -> User:
    return or_404(users().filter(pk=user_id).first())


def _withdraw_token(request: HttpRequest, user: User, token_id: int) -> None:
    token = or_404(user.api_tokens.filter(pk=token_id).first())
    withdraw_token(login_user(request), token)
    say(request, f"The token “{token.name}” has been revoked.")


def _hand_out(request: HttpRequest, user_id: int, action: Callable[[User, int], Handout]) -> HttpResponse:
    require_cluster_admin(request.user)
    _user(user_id)
    try:
        handout = action(login_user(request), user_id)
    except UserError as error:
        messages.error(request, error.message)
        return redirect("user", user_id)
    return _handed_out(request, handout)


def _handed_out(request: HttpRequest, handout: Handout) -> HttpResponse:
    return redirect_showing(request, reverse("user", args=[handout.user.pk]), path=handout.path)


def _shown_link(request: HttpRequest, user: User) -> dict[str, Any] | None:
    """Return the one-time link that has just been made for the user, unless it has been used or replaced."""
    shown = shown_once(request)
    if shown is None:
        return None
    link = OneTimeLink.objects.filter(user=user, pk=resolve(shown["path"]).kwargs["link_id"]).first()
    if link is None:
        return None
    return {**shown, "address": request.build_absolute_uri(shown["path"]), "expires_at": link.expires_at}
