"""Forms that create an instance group from a template, change it with a preview, and undo a change.

The actions validate the terms; the forms only pass them on.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from core.edit_forms import ShownClash, opened_data, reopened_data, show_conflict
from core.edits import UNSEEN, EditConflict, Seen, merge
from core.errors import UserError
from core.pages import Undo, login_user, misfits, say, show_error
from core.roles import require_cluster_admin
from core.time import exact_time
from insights.group_preview import preview_group_change
from insights.pages.groups.views import LIST_CRUMB, group_of
from jobs.actions.groups import (
    PRESETS,
    GroupChange,
    InstanceGroupSpec,
    Preset,
    change_authors,
    change_instance_group,
    create_and_deploy,
    create_instance_group,
    find_preset,
    terms_as_usual,
)
from jobs.models import InstanceGroup
from jobs.queries.group_parameters import PARAMETERS, Given, ParameterError, read_lines
from jobs.queries.group_terms import LINKS, TERMS, Term, in_words, terms_of
from jobs.queries.groups import changeable_terms, required_terms
from workers.models import ResourceGroup

__all__ = ["group_change", "group_change_preview", "group_new", "group_undo", "read_parameters"]

_COLUMNS = frozenset(term.column for term in TERMS)
_ON_OFF: Final = [("true", "On"), ("false", "Off")]
_POLICIES: Final = [
    (InstanceGroup.Policy.FAIRSHARE, "Fair share: in proportion to priorities"),
    (InstanceGroup.Policy.PRIORITY, "Priority: trainings with a higher priority get all GPUs that they request"),
    (InstanceGroup.Policy.FIFO, "First come, first served"),
    (InstanceGroup.Policy.GOODPUT, "Goodput: where GPUs speed up training most"),
]
_AIMS: Final = [
    (InstanceGroup.Aim.SOON, "Soon: early ends on average"),
    (InstanceGroup.Aim.EVEN, "Even: equal speed-ups"),
    (InstanceGroup.Aim.USED, "Used: fewest GPU-hours first"),
]
_ISOLATION: Final = [
    (InstanceGroup.Isolation.ANY, "Any"),
    (InstanceGroup.Isolation.WALLED, "Walls"),
    (InstanceGroup.Isolation.SEPARATE, "Walls, and users of their own"),
    (InstanceGroup.Isolation.SEALED, "Sealed: limits, and their own GPUs alone, as well"),
]
_CHOICES: Final[Mapping[str, Any]] = {"policy": _POLICIES, "aim": _AIMS, "least_isolation": _ISOLATION}


class UserNamesField(forms.CharField):
    """One user name per line, which the page fills in from the site's accounts."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocomplete": "off", "data-accounts": ""})

    def clean(self, value: Any) -> list[str]:
        lines = [line.strip() for line in str(super().clean(value)).splitlines()]
        return list(dict.fromkeys(line for line in lines if line))


class ParametersOfWmla(forms.CharField):
    """One parameter of WMLA per line, as NAME=value."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "font-monospace"})

    def clean(self, value: Any) -> Given:
        try:
            return read_lines(str(super().clean(value)))
        except ParameterError as error:
            raise ValidationError(str(error)) from error


class GroupForm(forms.Form):
    name = forms.CharField(label="Instance group name", max_length=1000)
    parameters = ParametersOfWmla(
        required=False,
        label="Paste parameters",
        help_text="One NAME=value per line. These parameters override the fields.",
    )

    def __init__(self, *args: Any, changeable: Collection[str], is_new: bool, **kwargs: Any) -> None:
        """Create the form. changeable: columns that the user may set; the others are shown disabled."""
        super().__init__(*args, **kwargs)
        self.fields |= {term.column: _field_of(term) for term in TERMS}
        self.order_fields(["name", *(term.column for term in TERMS)])
        self._changeable = changeable
        if not is_new:
            del self.fields["name"]
        for term in TERMS:
            if term.column not in changeable:
                self.fields[term.column].disabled = True
                self.fields[term.column].required = False

    def given(self) -> dict[str, Any]:
        """Return the valid terms, in the shape of `jobs.queries.group_terms.terms_of`."""
        cleaned = self.cleaned_data
        values = {column: cleaned[column] for column in self._changeable if column in cleaned}
        if "resource_group" in values:
            values["resource_group"] = values["resource_group"].name
        return {**values, **(cleaned["parameters"].terms if "parameters" in cleaned else {})}

    def sentences(self) -> list[str]:
        """Return sentences about pasted parameters without effect."""
        sentences: list[str] = self.cleaned_data["parameters"].sentences
        return sentences


def _field_of(term: Term) -> forms.Field:
    column = term.field
    shown: dict[str, Any] = {"label": term.label, "help_text": term.help}
    match column:
        case models.BooleanField():
            return forms.TypedChoiceField(choices=_ON_OFF, coerce=lambda text: text == "true", **shown)
        case models.IntegerField():
            return forms.IntegerField(required=not column.null, **shown)
        case models.ForeignKey():
            return forms.ModelChoiceField(_resource_groups(), empty_label=None, to_field_name="name", **shown)
        case models.ManyToManyField():
            return UserNamesField(required=False, **shown)
        case _ if column.choices:
            return forms.ChoiceField(choices=_CHOICES[term.column], required=not column.blank, **shown)
    return forms.CharField(required=False, max_length=10_000, **shown)


def _resource_groups() -> QuerySet[ResourceGroup]:
    return ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU).order_by("name")


def _shown_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms as the form's fields show them."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in terms.items()}
    for link in LINKS:
        values[link] = "\n".join(terms[link])
    return values


@require_http_methods(["GET", "HEAD", "POST"])
def group_new(request: HttpRequest) -> HttpResponse:
    """Show the templates, or the form of the chosen template."""
    require_cluster_admin(request.user)
    name = request.POST.get("template") or request.GET.get("template", "")
    preset = find_preset(name)
    has_resource_groups = _resource_groups().exists()
    if preset is None or not has_resource_groups:
        context = {
            "section": "groups",
            "crumbs": [LIST_CRUMB, ("New", None)],
            "presets": PRESETS,
            "unknown": "" if preset else name[:80],
            "has_resource_groups": has_resource_groups,
        }
        return render(request, "insights/groups/templates.html", context)
    form = GroupForm(
        request.POST or None,
        changeable=changeable_terms(request.user),
        is_new=True,
        initial=_shown_terms({**terms_as_usual(), **preset.terms}),
    )
    if request.method == "POST" and form.is_valid():
        group = _created(request, form, preset)
        if group is not None:
            return redirect("groups:deployment" if "deploy" in request.POST else "groups:detail", group.pk)
    return _form_page(
        request, form, [LIST_CRUMB, ("New", "/instance-groups/new/"), (preset.label, None)], preset=preset
    )


@require_http_methods(["GET", "HEAD", "POST"])
def group_change(request: HttpRequest, group_id: int) -> HttpResponse:
    """Change the group. The answer is 409, with the user's input, if others have changed the same terms meanwhile."""
    group = group_of(request, group_id)
    form, clashes, status = _change_form(request, group, request.POST or None), list[ShownClash](), 200
    if request.method == "POST" and form.is_valid():
        given, seen = form.given(), _seen(request, group)
        try:
            change = change_instance_group(group.pk, given, login_user(request), seen=seen)
        except EditConflict as conflict:
            form, clashes = _asked(request, group, conflict)
            status = conflict.status
        except UserError as error:
            show_error(form, error)
        else:
            _say_changed(request, change, form.sentences())
            return redirect("groups:detail", group.pk)
    crumbs = [LIST_CRUMB, (group.name, f"/instance-groups/{group.pk}/"), ("Change", None)]
    return _form_page(request, form, crumbs, group=group, clashes=clashes, status=status)


@require_POST
def group_change_preview(request: HttpRequest, group_id: int) -> JsonResponse:
    """Preview the effects of the form as filled in now."""
    group = group_of(request, group_id)
    form = _change_form(request, group, request.POST)
    if form.is_valid():
        try:
            present = terms_of(group)
            merged = merge(_seen(request, group).before, form.given(), present)
            effects = preview_group_change(group, merged.wanted, login_user(request))
            if merged.clashes:
                _show(request, form, EditConflict(merged, present, change_authors(group)))
            context = {"seen": effects, "notes": [*effects.notes, *form.sentences()]}
            page = render_to_string("insights/groups/_effects.html", context)
            return JsonResponse({"preview": page, **misfits(form)})
        except UserError as error:
            show_error(form, error)
    return JsonResponse(misfits(form))


@require_POST
def group_undo(request: HttpRequest, group_id: int) -> HttpResponse:
    """Restore the terms that a change replaced, unless the group has been changed again since."""
    group = group_of(request, group_id)
    text = request.POST.get("revision", "")
    revision = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    try:
        change_instance_group(group.pk, _terms_to_restore(request), login_user(request), revision=revision)
    except UserError as error:
        messages.error(request, _changed_again(group) if error.code == "stale_group" else error.message)
    else:
        say(request, "The change was undone. The scheduler applies it at once.")
    return redirect("groups:detail", group.pk)


def _changed_again(group: InstanceGroup) -> str:
    """Say who has changed the group since, and that an undo is too late."""
    newest = max(change_authors(group).values(), key=lambda author: author.at, default=None)
    who = f"{newest.name} has changed the group at {exact_time(newest.at)} UTC" if newest else "The group was changed"
    return f"{who}: undo is no longer possible. Use Change instead."


@require_POST
def read_parameters(request: HttpRequest) -> JsonResponse:
    """Return the terms that pasted parameters set, and the parameters without effect."""
    try:
        given = read_lines(request.POST.get("parameters", ""))
    except ParameterError as error:
        return JsonResponse({"error": str(error)})
    terms = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.terms.items()}
    return JsonResponse({"terms": terms, "sentences": given.sentences})


def _created(request: HttpRequest, form: GroupForm, preset: Preset) -> InstanceGroup | None:
    """Create the group; return None, with errors in the form, if it is refused."""
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
        messages.success(request, f"{group.name} was registered. It accepts trainings once it is started.")
    return group


def _change_form(request: HttpRequest, group: InstanceGroup, data: Any) -> GroupForm:
    return _form_of(data, required_terms(request.user, group), terms_of(group))


def _form_of(data: Any, changeable: Collection[str], terms: Mapping[str, Any]) -> GroupForm:
    return GroupForm(data, changeable=changeable, is_new=False, initial=_shown_terms(terms))


def _seen(request: HttpRequest, group: InstanceGroup) -> Seen:
    """Return the terms with which the form was opened."""
    opened = opened_data(request.POST)
    if opened is None:
        return UNSEEN
    form = _change_form(request, group, opened)
    form.is_valid()  # a term that the form would refuse counts as not seen
    return Seen(form.given())


def _asked(request: HttpRequest, group: InstanceGroup, conflict: EditConflict) -> tuple[GroupForm, list[ShownClash]]:
    """Return the form with the user's entries over the present terms, and the terms that others have changed, too."""
    changeable = changeable_terms(request.user, group)
    present, shown = (_form_of(None, changeable, terms) for terms in (conflict.present, conflict.shown))
    form = _form_of(reopened_data(present, shown), changeable, conflict.present)
    return form, _show(request, form, conflict)


def _show(request: HttpRequest, form: GroupForm, conflict: EditConflict) -> list[ShownClash]:
    return show_conflict(form, conflict, in_words, viewer=login_user(request).get_username())


def _say_changed(request: HttpRequest, change: GroupChange, sentences: list[str]) -> None:
    for sentence in sentences:
        messages.info(request, sentence)
    if not change.phrases:
        say(request, "Nothing was changed: the group already has these settings.")
        return
    fields = {"revision": str(change.group.revision), "terms": json.dumps(change.before)}
    undo = Undo(reverse("groups:undo", args=[change.group.pk]), fields)
    say(request, f"Changed: {'; '.join(change.phrases)}. The scheduler applies the change at once.", undo=undo)


def _terms_to_restore(request: HttpRequest) -> dict[str, Any]:
    try:
        terms = json.loads(request.POST.get("terms", ""))
    except (ValueError, RecursionError):
        terms = None
    if not isinstance(terms, dict) or not terms.keys() <= _COLUMNS:
        raise UserError("The change cannot be undone: the terms sent are not those of an instance group.")
    return terms


def _form_page(
    request: HttpRequest, form: GroupForm, crumbs: list[Any], *, status: int = 200, **words: Any
) -> HttpResponse:
    context = {"section": "groups", "crumbs": crumbs, "form": form, "parameters": PARAMETERS, **words}
    context["accounts"] = list(
        User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)
    )
    return render(request, "insights/groups/form.html", context, status=status)
