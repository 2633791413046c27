"""Pages of named environments: the list, and the form by which administrators write them."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.edit_forms import ShownClash, opened_data, reopened_data, show_conflict
from core.edits import UNSEEN, EditConflict, Seen
from core.errors import UserError
from core.keyset import Order
from core.pages import carried_out, done, login_user, or_404, page_of, say, show_error
from core.roles import is_cluster_admin, require_cluster_admin
from jobs.actions.environments import (
    EnvironmentSpec,
    change_environment,
    create_environment,
    delete_environment,
    environment_values,
)
from jobs.models import InstanceGroup, NamedEnvironment, RequiredEnvironment
from jobs.pages.environments.forms import EnvironmentForm
from jobs.queries.environments import visible_environments
from jobs.queries.prepared import hosts_in_words, prepared_environments
from workers.models import ResourceGroup

__all__ = ["environment_change", "environment_delete", "environment_list", "environment_new"]

LIST_CRUMB = ("Environments", "/environments/")
_MOST_UNNAMED = 100


@require_safe
def environment_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, visible_environments(request.user), Order("name"))
    for row in page.rows:
        row.where = hosts_in_words(row.required)  # type: ignore[attr-defined]
    context = {
        "section": "environments",
        "crumbs": [("Environments", None)],
        "page": page,
        "may_change": is_cluster_admin(request.user),
        "unnamed": _unnamed() if is_cluster_admin(request.user) else [],
    }
    return render(request, "jobs/environments/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def environment_new(request: HttpRequest) -> HttpResponse:
    require_cluster_admin(request.user)
    form = EnvironmentForm(request.POST or None, groups=_groups())
    made = carried_out(request, form, lambda: create_environment(EnvironmentSpec(**form.given), login_user(request)))
    if made is not None:
        say(request, f"The environment {made.name} was created.")
        return redirect("environments:list")
    return _form_page(request, form, None)


@require_http_methods(["GET", "HEAD", "POST"])
def environment_change(request: HttpRequest, environment_id: int) -> HttpResponse:
    """Show the environment to those whose trainings may use it; administrators change it here."""
    row = _environment(request, environment_id)
    form, clashes = _form_of(request.POST or None, environment_values(row)), list[ShownClash]()
    if request.method == "POST":
        require_cluster_admin(request.user)
    if request.method == "POST" and form.is_valid():
        try:
            changed = change_environment(row.pk, form.given, login_user(request), seen=_seen(request))
        except EditConflict as conflict:
            present, shown = _form_of(None, conflict.present), _form_of(None, conflict.shown)
            form = _form_of(reopened_data(present, shown), conflict.present)
            form.is_valid()
            clashes = show_conflict(form, conflict, _in_words, viewer=login_user(request).get_username())
        except UserError as error:
            show_error(form, error)
        else:
            say(
                request,
                f"The environment {changed.name} was changed. Trainings that were submitted before keep theirs.",
            )
            return redirect("environments:change", row.pk)
    return _form_page(request, form, row, clashes)


@require_POST
def environment_delete(request: HttpRequest, environment_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    row = _environment(request, environment_id)
    if done(request, lambda: delete_environment(row.pk, login_user(request))):
        say(
            request, f"The environment {row.name} was deleted. Trainings that were submitted with it keep its packages."
        )
    return redirect("environments:list")


def _unnamed() -> list[RequiredEnvironment]:
    """Return what trainings have required last without a name, each with its hosts in words."""
    found = list(prepared_environments().filter(names=None).order_by("-pk")[:_MOST_UNNAMED])
    for row in found:
        row.where = hosts_in_words(row)  # type: ignore[attr-defined]
        row.shown = row.lines.splitlines()[:3]  # type: ignore[attr-defined]
    return found


def _environment(request: HttpRequest, environment_id: int) -> NamedEnvironment:
    return or_404(visible_environments(request.user).filter(pk=environment_id).first())


def _groups() -> Sequence[InstanceGroup]:
    return list(InstanceGroup.objects.order_by("name"))


def _form_of(data: Any, values: dict[str, Any]) -> EnvironmentForm:
    return EnvironmentForm(data, groups=_groups(), initial=values)


def _seen(request: HttpRequest) -> Seen:
    """Return the values with which the form was opened."""
    opened = opened_data(request.POST)
    if opened is None:
        return UNSEEN
    form = EnvironmentForm(opened, groups=_groups())
    form.is_valid()  # a value that the form would refuse counts as not seen
    return Seen(form.given)


def _in_words(field: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    lines = value.splitlines()
    return f"{len(lines)} lines" if len(lines) > 1 else value or "nothing"


def _form_page(
    request: HttpRequest, form: EnvironmentForm, row: NamedEnvironment | None, clashes: Sequence[ShownClash] = ()
) -> HttpResponse:
    context = {
        "section": "environments",
        "crumbs": [LIST_CRUMB, (row.name if row else "New environment", None)],
        "form": form,
        "environment": row,
        "clashes": clashes,
        "may_change": is_cluster_admin(request.user),
        "where": hosts_in_words(row.required) if row else "",
        "resource_groups": ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU).order_by("name"),
    }
    status = 200 if request.method in ("GET", "HEAD") else 409 if clashes else 400
    return render(request, "jobs/environments/form.html", context, status=status)
