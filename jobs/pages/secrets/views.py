"""Pages of secrets: the list, the form that adds one, and the page that replaces its value and shows its trainings."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.errors import NotFound
from core.keyset import Order
from core.pages import carried_out, done, login_user, or_404, page_of, say
from core.roles import may_change
from jobs.actions.secrets import SecretSpec, add_secret, delete_secret, replace_secret
from jobs.models import Secret
from jobs.pages.secrets.forms import SecretForm, ValueForm
from jobs.queries.secrets import (
    administered_groups,
    find_visible_secret,
    may_change_secret,
    trainings_with,
    visible_secrets,
    who_else_reads,
)

__all__ = ["secret_delete", "secret_list", "secret_new", "secret_page"]

_LIST_CRUMB = ("Secrets", "/secrets/")
_MOST_TRAININGS = 50


@require_safe
def secret_list(request: HttpRequest) -> HttpResponse:
    context = {
        "section": "secrets",
        "crumbs": [("Secrets", None)],
        "page": page_of(request, visible_secrets(request.user), Order("name")),
        "may_add": may_change(request.user),
        "warning": who_else_reads(),
    }
    return render(request, "jobs/secrets/list.html", context)


@sensitive_post_parameters("value")
@require_http_methods(["GET", "HEAD", "POST"])
def secret_new(request: HttpRequest) -> HttpResponse:
    form = SecretForm(request.POST or None, request.FILES or None, groups=administered_groups(request.user))
    made = carried_out(request, form, lambda: add_secret(_spec(form.cleaned_data), login_user(request)))
    if made is not None:
        say(request, f"The secret {made.name} was added.")
        return redirect("secrets:list")
    context = {
        "section": "secrets",
        "crumbs": [_LIST_CRUMB, ("New secret", None)],
        "form": form,
        "warning": who_else_reads(),
    }
    return render(request, "jobs/secrets/new.html", context, status=_status(request))


@sensitive_post_parameters("value")
@require_http_methods(["GET", "HEAD", "POST"])
def secret_page(request: HttpRequest, secret_id: int) -> HttpResponse:
    """Show a secret's trainings; those who may change it replace its value here."""
    row = _secret(request, secret_id)
    form = ValueForm(request.POST or None, request.FILES or None)
    changed = carried_out(
        request, form, lambda: replace_secret(row.pk, form.cleaned_data["value"], login_user(request))
    )
    if changed is not None:
        say(request, f"The value of {changed.name} was replaced. Trainings get it at their next start.")
        return redirect("secrets:change", row.pk)
    context = {
        "section": "secrets",
        "crumbs": [_LIST_CRUMB, (row.name, None)],
        "form": form,
        "secret": row,
        "trainings": trainings_with(row, request.user)[:_MOST_TRAININGS],
        "may_change": may_change_secret(request.user, row),
        "warning": who_else_reads(),
    }
    return render(request, "jobs/secrets/page.html", context, status=_status(request))


@require_POST
def secret_delete(request: HttpRequest, secret_id: int) -> HttpResponse:
    row = _secret(request, secret_id)
    if done(request, lambda: delete_secret(row.pk, login_user(request))):
        say(request, f"The secret {row.name} was deleted.")
        return redirect("secrets:list")
    return redirect("secrets:change", row.pk)


def _spec(values: dict[str, Any]) -> SecretSpec:
    return SecretSpec(
        name=values["name"],
        value=values["value"],
        instance_group=values["instance_group"] or None,
        is_file=values["is_file"],
    )


def _secret(request: HttpRequest, secret_id: int) -> Secret:
    try:
        return find_visible_secret(request.user, secret_id)
    except NotFound:
        return or_404(None)


def _status(request: HttpRequest) -> int:
    return 400 if request.method == "POST" else 200
