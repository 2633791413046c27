"""Users, for administrators of the cluster."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from accounts import actions
from accounts.forms import ROLES, InviteForm, RoleForm
from accounts.links import Handout
from accounts.queries import user_row, users
from accounts.tokens import withdraw_token
from core.errors import UserError
from core.formfields import show_error
from core.notices import Undo, say
from core.pages import done, login_user, or_404, page_of
from core.roles import require_cluster_admin, role_of

__all__ = [
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
def user_list(request: HttpRequest) -> HttpResponse:
    require_cluster_admin(request.user)
    search = request.GET.get("search", "").replace("\0", "")[:150]
    page = page_of(request, users(search))
    context = {
        "section": "users",
        "crumbs": [("Users", None)],
        "page": page,
        "rows": [user_row(user) for user in page],
        "search": search,
    }
    return render(request, "accounts/users.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def user_invite(request: HttpRequest) -> HttpResponse:
    require_cluster_admin(request.user)
    form = InviteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            handout = actions.invite(login_user(request), form.cleaned_data["username"], form.cleaned_data["role"])
        except UserError as error:
            show_error(form, error)
        else:
            return _handed_out(request, handout, f"{handout.user.username} is invited")
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
    }
    return render(request, "accounts/user.html", context)


@require_POST
def user_role(request: HttpRequest, user_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    form, user = RoleForm(request.POST), _user(user_id)
    old = role_of(user)
    role = form.cleaned_data["role"] if form.is_valid() else request.POST.get("role", "")
    if done(request, lambda: actions.change_role(login_user(request), user_id, role)) and role != old:
        undo = Undo(reverse("user-role", args=[user_id]), {"role": old.value})
        is_own = user_id == login_user(request).pk
        say(request, f"{user.username} is {role_of(_user(user_id)).label} now.", undo=None if is_own else undo)
    return _back(request, user_id)


@require_POST
def user_reset(request: HttpRequest, user_id: int) -> HttpResponse:
    return _hand_out(request, user_id, actions.reset_password, "There is a new link for {}")


@require_POST
def user_activate(request: HttpRequest, user_id: int) -> HttpResponse:
    return _hand_out(request, user_id, actions.activate, "{} is active again")


@require_POST
def user_deactivate(request: HttpRequest, user_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    user = _user(user_id)
    if done(request, lambda: actions.deactivate(login_user(request), user_id)):
        say(request, f"{user.username} is deactivated: sessions, open pages and tokens have ended. Trainings go on.")
    return redirect("user", user_id)


@require_POST
def user_withdraw(request: HttpRequest, user_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    user = _user(user_id)
    if not done(request, lambda: actions.withdraw_invitation(login_user(request), user_id)):
        return redirect("user", user_id)
    say(request, f"The invitation of {user.username} is withdrawn.")
    return redirect("users")


@require_POST
def user_token_withdraw(request: HttpRequest, user_id: int, token_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    token = or_404(_user(user_id).api_tokens.filter(pk=token_id).first())
    withdraw_token(login_user(request), token)
    say(request, f"The token “{token.name}” is withdrawn: it opens nothing any more.")
    return redirect("user", user_id)


def _user(user_id: int) -> User:
    return or_404(users().filter(pk=user_id).first() if user_id < 2**63 else None)


def _back(request: HttpRequest, user_id: int) -> HttpResponse:
    """Redirect to the user's page, which whoever has just given up the own rights may no longer see."""
    me = User.objects.get(pk=login_user(request).pk)
    return redirect("user", user_id) if me.is_staff else redirect("overview")


def _hand_out(request: HttpRequest, user_id: int, action: Callable[[User, int], Handout], what: str) -> HttpResponse:
    require_cluster_admin(request.user)
    user = _user(user_id)
    try:
        handout = action(login_user(request), user_id)
    except UserError as error:
        messages.error(request, error.message)
        return redirect("user", user_id)
    return _handed_out(request, handout, what.format(user.username))


def _handed_out(request: HttpRequest, handout: Handout, what: str) -> HttpResponse:
    """Not after a redirect: the link would have to lie somewhere in between."""
    context = {
        "section": "users",
        "crumbs": [LIST_CRUMB, (handout.user.username, reverse("user", args=[handout.user.pk])), ("Link", None)],
        "what": what,
        "handout": handout,
        "link": request.build_absolute_uri(handout.path),
    }
    response = render(request, "accounts/handout.html", context)
    response["Cache-Control"] = "no-store"
    return response
