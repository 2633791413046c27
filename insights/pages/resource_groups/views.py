"""Pages of resource groups: the list, and a form that previews its effects while it is filled in."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.edit_forms import ShownClash, opened_data, reopened_data, show_conflict
from core.edits import UNSEEN, EditConflict, Seen, merge
from core.errors import UserError
from core.live import current_seqs
from core.pages import Undo, login_user, misfits, or_404, say
from core.roles import is_cluster_admin, require_cluster_admin
from insights.resource_groups import group_lines, member_rows, moved_trainings, preview, users_of
from workers import actions
from workers.actions import ResourceGroupSpec
from workers.forms import INPUTS, ResourceGroupForm, in_words, initial_of
from workers.group_members import COLUMNS, shown_columns, totals
from workers.models import ResourceGroup
from workers.queries import find_resource_group, listed_hosts
from workers.topics import CLUSTER

__all__ = ["group_change", "group_delete", "group_list", "group_new", "group_preview", "group_put_back"]

LIST_CRUMB = ("Resource groups", "/resource-groups/")


@require_safe
def group_list(request: HttpRequest) -> HttpResponse:
    context = {
        "section": "resource-groups",
        "crumbs": [("Resource groups", None)],
        "lines": group_lines(login_user(request)),
        "may_change": is_cluster_admin(login_user(request)),
    }
    return render(request, "insights/resource_groups/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def group_new(request: HttpRequest) -> HttpResponse:
    require_cluster_admin(request.user)
    form = ResourceGroupForm(request.POST or None, names=_names(None))
    if request.method == "POST" and form.is_valid():
        try:
            group = actions.create_resource_group(form.spec(), login_user(request))
        except UserError as error:
            form.show(error)
        else:
            undo = Undo(reverse("resource_groups:delete", args=[group.pk]), {})
            say(request, f"The resource group {group.name} was created.", undo=undo)
            return redirect("resource_groups:list")
    return _form_page(request, form, None)


@require_http_methods(["GET", "HEAD", "POST"])
def group_change(request: HttpRequest, group_id: int) -> HttpResponse:
    """Show the group to everybody; administrators change it here."""
    group = or_404(_find(group_id))
    if request.method == "POST":
        require_cluster_admin(request.user)
    stored = actions.spec_of(group)
    form, clashes = _form_of(request.POST or None, group, stored), list[ShownClash]()
    if request.method == "POST" and form.is_valid():
        try:
            seen = _seen(request, group)
            before = actions.change_resource_group(group, form.spec(), login_user(request), seen=seen)
        except EditConflict as conflict:
            present, shown = (replace(stored, **values) for values in (conflict.present, conflict.shown))
            data = reopened_data(_form_of(None, group, present), _form_of(None, group, shown))
            form = _form_of(data, group, present)
            clashes = show_conflict(form, conflict, in_words, INPUTS, viewer=login_user(request).get_username())
        except UserError as error:
            form.show(error)
        else:
            _say_changed(request, before, actions.spec_of(or_404(_find(group_id))))
            return redirect("resource_groups:change", group_id)
    return _form_page(request, form, group, clashes)


def _form_of(data: Any, group: ResourceGroup, spec: ResourceGroupSpec) -> ResourceGroupForm:
    return ResourceGroupForm(data, group=group, names=_names(group), initial=initial_of(spec))


def _seen(request: HttpRequest, group: ResourceGroup) -> Seen:
    """Return the values with which the form was opened."""
    opened = opened_data(request.POST)
    if opened is None:
        return UNSEEN
    form = ResourceGroupForm(opened, group=group, names=_names(group))
    form.is_valid()  # a value that the form would refuse counts as not seen
    return Seen(form.given())


@require_POST
def group_preview(request: HttpRequest, group_id: int | None = None) -> JsonResponse:
    """Return the form's effects, its errors, and the positions of mistakes in formulas."""
    require_cluster_admin(request.user)
    group = or_404(_find(group_id)) if group_id is not None else None
    form = ResourceGroupForm(request.POST, group=group, names=_names(group))
    try:
        actions.check_resource_group(form.spec() if form.is_valid() else form.draft())
    except UserError as error:
        form.show(error)
    draft = form.draft()
    if group is not None:
        stored = actions.spec_of(group)
        merged = merge(
            _seen(request, group).before, actions.changeable_values(draft), actions.changeable_values(stored)
        )
        draft = replace(stored, **merged.wanted)
    answer = preview(draft.offer, group, with_overlaps="overlaps" in request.POST)
    return JsonResponse({"preview": answer, **misfits(form), "carets": form.carets})


@require_POST
def group_delete(request: HttpRequest, group_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    group = or_404(_find(group_id))
    try:
        before = actions.delete_resource_group(group, login_user(request))
    except UserError as error:
        messages.error(request, error.message)
        return redirect("resource_groups:change", group_id)
    undo = Undo(reverse("resource_groups:put-back"), {"spec": _as_text(before)})
    say(request, f"The resource group {before.name} was deleted.", undo=undo)
    return redirect("resource_groups:list")


@require_POST
def group_put_back(request: HttpRequest) -> HttpResponse:
    """Undo a change unless the group was changed again since, or restore a deleted group."""
    require_cluster_admin(request.user)
    user = login_user(request)
    try:
        spec, expected = _spec_from(request.POST.get("spec", "")), request.POST.get("expected", "")
        if expected:
            group = or_404(find_resource_group(spec.name))
            actions.change_resource_group(group, spec, user, expected=_spec_from(expected))
        else:
            actions.create_resource_group(spec, user)
    except UserError as error:
        messages.error(request, error.message)
    else:
        say(request, f"The change of resource group {spec.name} was undone.")
    return redirect("resource_groups:list")


def _find(group_id: int) -> ResourceGroup | None:
    return ResourceGroup.objects.filter(pk=group_id).first()


def _form_page(
    request: HttpRequest, form: ResourceGroupForm, group: ResourceGroup | None, clashes: Sequence[ShownClash] = ()
) -> HttpResponse:
    live = {"seq": current_seqs([CLUSTER])[CLUSTER]}
    offer = form.draft().offer
    rows = member_rows(offer, group)
    address = reverse("resource_groups:preview", args=[group.pk]) if group else reverse("resource_groups:preview-new")
    context = {
        "section": "resource-groups",
        "crumbs": [LIST_CRUMB, (group.name if group else "Create a Resource Group", None)],
        "form": form,
        "clashes": clashes,
        "group": group,
        "users": users_of(login_user(request))[group.pk] if group else [],
        "rows": rows,
        "totals": totals(rows),
        "moves": moved_trainings(group, offer) if group and form.is_bound else [],
        "columns": COLUMNS,
        "shown": shown_columns(request.COOKIES),
        "preview_address": address,
        "live": live,
        "may_change": is_cluster_admin(login_user(request)),
    }
    status = EditConflict.status if clashes else 400 if form.errors else 200
    return render(request, "insights/resource_groups/form.html", context, status=status)


def _names(group: ResourceGroup | None) -> list[str]:
    return [host.name for host in listed_hosts(group)]


def _say_changed(request: HttpRequest, before: ResourceGroupSpec, after: ResourceGroupSpec) -> None:
    if before == after:
        say(request, "Nothing was changed: the group already has these settings.")
        return
    undo = Undo(reverse("resource_groups:put-back"), {"spec": _as_text(before), "expected": _as_text(after)})
    say(request, f"The resource group {after.name} was changed. The scheduler applies the change at once.", undo=undo)


def _as_text(spec: ResourceGroupSpec) -> str:
    return json.dumps(asdict(spec))


def _spec_from(text: str) -> ResourceGroupSpec:
    """Parse the output of `_as_text`. The browser may have sent anything instead: the actions validate the result."""
    try:
        values: dict[str, Any] = json.loads(text)
        spec = ResourceGroupSpec(**values)
        is_text = all(isinstance(value, str) for name, value in values.items() if name != "hosts")
        if is_text and all(isinstance(name, str) for name in spec.hosts):
            return spec
    except (TypeError, ValueError, RecursionError):
        pass
    raise UserError("The change cannot be undone. Change the group instead.")
