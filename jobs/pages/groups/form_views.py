"""Forms that create an instance group from a template, change it with a preview, and undo a change."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from core.errors import NotAllowed, UserError
from core.formfields import show_error
from core.notices import Undo, say
from core.pages import login_user
from core.roles import require_cluster_admin
from jobs.actions.group_presets import PRESETS, Preset, find_preset
from jobs.actions.groups import (
    GroupChange,
    InstanceGroupSpec,
    change_instance_group,
    create_and_deploy,
    create_instance_group,
    terms_as_usual,
)
from jobs.insight.group_preview import preview_group_change
from jobs.models import InstanceGroup
from jobs.pages.groups.forms import GroupForm, shown_terms
from jobs.pages.groups.views import LIST_CRUMB, group_of
from jobs.queries.group_parameters import PARAMETERS, ParameterError, read_lines
from jobs.queries.group_terms import TERMS, terms_of
from jobs.queries.groups import changeable_terms

__all__ = ["group_change", "group_change_preview", "group_new", "group_undo", "read_parameters"]

_COLUMNS = frozenset(term.column for term in TERMS)


@require_http_methods(["GET", "HEAD", "POST"])
def group_new(request: HttpRequest) -> HttpResponse:
    """Choose a template first, then fill in the form."""
    require_cluster_admin(request.user)
    name = request.POST.get("template") or request.GET.get("template", "")
    preset = find_preset(name)
    if preset is None:
        context = {"section": "groups", "crumbs": [LIST_CRUMB, ("New", None)], "presets": PRESETS, "unknown": name[:80]}
        return render(request, "jobs/groups/templates.html", context)
    form = GroupForm(
        request.POST or None,
        changeable=changeable_terms(request.user),
        is_new=True,
        initial=shown_terms({**terms_as_usual(), **preset.terms}),
    )
    if request.method == "POST" and form.is_valid():
        group = _made(request, form, preset)
        if group is not None:
            is_deployed = "deploy" in request.POST
            return redirect("groups:deployment" if is_deployed else "groups:detail", group.pk)
    return _form_page(
        request, form, [LIST_CRUMB, ("New", "/instance-groups/new/"), (preset.label, None)], preset=preset
    )


@require_http_methods(["GET", "HEAD", "POST"])
def group_change(request: HttpRequest, group_id: int) -> HttpResponse:
    """Change the group. Answers 409, with all that was typed, if it has changed since the form was opened."""
    group = group_of(request, group_id)
    form, status = _change_form(request, group, request.POST or None), 200
    if request.method == "POST" and form.is_valid():
        try:
            given, revision = form.given(), form.cleaned_data["revision"]
            change = change_instance_group(group.pk, given, login_user(request), revision=revision)
        except UserError as error:
            form, status = _refused(request, form, group_of(request, group_id), error)
        else:
            _say_changed(request, change, form.sentences())
            return redirect("groups:detail", group.pk)
    crumbs = [LIST_CRUMB, (group.name, f"/instance-groups/{group.pk}/"), ("Change", None)]
    return _form_page(request, form, crumbs, group=group, status=status)


@require_POST
def group_change_preview(request: HttpRequest, group_id: int) -> JsonResponse:
    """Preview what the form would do as it is filled in now."""
    group = group_of(request, group_id)
    form = _change_form(request, group, request.POST)
    if form.is_valid():
        try:
            seen = preview_group_change(group, form.given(), login_user(request))
            notes = [*seen.notes, *form.sentences()]
            effects = [{**asdict(effect), "words": effect.words} for effect in seen.effects]
            return JsonResponse({"preview": {**asdict(seen), "effects": effects, "notes": notes}})
        except UserError as error:
            show_error(form, error)
    return JsonResponse({"errors": {name: list(sentences) for name, sentences in form.errors.items()}})


@require_POST
def group_undo(request: HttpRequest, group_id: int) -> HttpResponse:
    """Restore the terms that a change replaced, unless the group has been changed again since."""
    group = group_of(request, group_id)
    try:
        change_instance_group(group.pk, _former(request), login_user(request), revision=_revision(request))
    except UserError as error:
        message = (
            "It has been changed again since: change it by hand." if error.code == "stale_group" else error.message
        )
        messages.error(request, message)
    else:
        say(request, "It is as it was before: the scheduler decides again at once.")
    return redirect("groups:detail", group.pk)


@require_POST
def read_parameters(request: HttpRequest) -> JsonResponse:
    """Return the terms that pasted parameters set, and the parameters that set nothing."""
    try:
        given = read_lines(request.POST.get("parameters", ""))
    except ParameterError as error:
        return JsonResponse({"error": str(error)})
    terms = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.terms.items()}
    return JsonResponse({"terms": terms, "sentences": given.sentences})


def _made(request: HttpRequest, form: GroupForm, preset: Preset) -> InstanceGroup | None:
    """Create the group; None, with errors in the form, if it is refused."""
    terms = form.given()
    spec = InstanceGroupSpec(form.cleaned_data["name"], terms.pop("resource_group"), preset.name, terms)
    user = login_user(request)
    try:
        group = create_and_deploy(spec, user) if "deploy" in request.POST else create_instance_group(spec, user)
    except UserError as error:
        show_error(form, error)
        return None
    for sentence in form.sentences():
        messages.info(request, sentence)
    if "deploy" not in request.POST:
        messages.success(request, f"{group.name} is registered. It takes trainings once it is started.")
    return group


def _change_form(request: HttpRequest, group: InstanceGroup, data: Any) -> GroupForm:
    changeable = changeable_terms(request.user, group)
    if not changeable:
        raise NotAllowed(f"Only administrators of {group.name} and of the cluster may change it: ask one.")
    initial = {**shown_terms(terms_of(group)), "revision": group.revision}
    return GroupForm(data, changeable=changeable, is_new=False, initial=initial)


def _refused(request: HttpRequest, form: GroupForm, group: InstanceGroup, error: UserError) -> tuple[GroupForm, int]:
    if error.code != "stale_group":
        show_error(form, error)
        return form, 200
    differs = form.compared_with(terms_of(group))
    # What was typed stays, over the group as it is now: saved again, it is meant.
    fresh = _change_form(request, group, {**request.POST.dict(), "revision": str(group.revision)})
    fresh.add_error(None, error.message)
    for line in differs:
        fresh.add_error(None, line)
    return fresh, error.status


def _say_changed(request: HttpRequest, change: GroupChange, sentences: list[str]) -> None:
    for sentence in sentences:
        messages.info(request, sentence)
    if not change.phrases:
        say(request, "Nothing was changed: these are its terms already.")
        return
    fields = {"revision": str(change.group.revision), "terms": json.dumps(change.before)}
    undo = Undo(reverse("groups:undo", args=[change.group.pk]), fields)
    say(request, f"Changed: {'; '.join(change.phrases)}. The scheduler decides again at once.", undo=undo)


def _former(request: HttpRequest) -> dict[str, Any]:
    try:
        terms = json.loads(request.POST.get("terms", ""))
    except (ValueError, RecursionError):
        terms = None
    if not isinstance(terms, dict) or not terms.keys() <= _COLUMNS:
        raise UserError("These are no terms of an instance group: nothing was changed.")
    return terms


def _revision(request: HttpRequest) -> int:
    text = request.POST.get("revision", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _form_page(
    request: HttpRequest, form: GroupForm, crumbs: list[Any], *, status: int = 200, **words: Any
) -> HttpResponse:
    context = {"section": "groups", "crumbs": crumbs, "form": form, "parameters": PARAMETERS, **words}
    return render(request, "jobs/groups/form.html", context, status=status)
