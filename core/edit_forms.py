"""Forms that edit a row, by people who may do so at the same time: see `core.edits`.

Beside each field, such a form posts the value with which it was opened: `before-priority` for `priority`. The template
renders these with `{% opened_with form %}`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.forms import BoundField
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from core.edits import UNSEEN, EditConflict, Seen

__all__ = ["BEFORE", "ShownClash", "opened_data", "opened_with", "reopened_data", "seen_field", "show_conflict"]

BEFORE = "before-"


@dataclass(frozen=True)
class ShownClash:
    """A clash in words, for `_clashes.html`."""

    label: str
    #: Names of the inputs that show the value.
    inputs: str
    #: Id of the first input.
    anchor: str
    before: str
    mine: str
    present: str
    author: str
    at: datetime | None


def opened_data(data: Mapping[str, Any]) -> QueryDict | None:
    """Return what the form would have posted when it was opened; None if the request does not say."""
    opened = QueryDict(mutable=True)
    for name, values in _lists(data):
        if name.startswith(BEFORE):
            opened.setlist(name.removeprefix(BEFORE), values)
    return opened or None


def seen_field(data: Mapping[str, Any], name: str) -> Seen:
    """Return the value with which a form of this single field was opened."""
    before = data.get(f"{BEFORE}{name}")
    return UNSEEN if before is None else Seen({name: before})


def opened_with(form: forms.BaseForm) -> Iterator[tuple[str, str]]:
    """Yield name and value of each hidden input that says with what the form was opened."""
    data = form.data if form.is_bound else _as_posted(form)
    prefix = BEFORE if form.is_bound else ""
    for name, values in _lists(data):
        if name.startswith(prefix):
            yield from ((BEFORE + name.removeprefix(prefix), str(value)) for value in values)


def reopened_data(present: forms.BaseForm, shown: forms.BaseForm) -> QueryDict:
    """Return the data of a form that shows the values of `shown`, as if opened now, with those of `present`.

    present, shown: unbound forms with the values as initial ones.
    """
    data = _as_posted(shown)
    for name, values in _as_posted(present).lists():
        data.setlist(BEFORE + name, values)
    return data


def show_conflict(
    form: forms.BaseForm,
    conflict: EditConflict,
    in_words: Callable[[str, Any], str],
    inputs: Mapping[str, Sequence[str]] | None = None,
    viewer: str = "",
) -> list[ShownClash]:
    """Put an error beside each field in conflict, and return the conflict for `_clashes.html`.

    in_words: returns the words of a field's value. inputs: field -> names of its inputs, where these are others.
    viewer: name of the user who edits.
    """
    rows = []
    for clash in conflict.clashes:
        names = (inputs or {}).get(clash.field, [clash.field])
        bound, author = form[names[0]], conflict.authors.get(clash.field)
        who = "Somebody" if author is None else author.name
        if who == viewer:
            who = "You, in another window,"
        before, mine, present = (in_words(clash.field, value) for value in (clash.before, clash.mine, clash.present))
        form.add_error(names[0], f"{who} changed this to {present} meanwhile.")
        at = author.at if author else None
        anchor = bound.id_for_label or f"{bound.auto_id}_0"  # radio buttons have an id each
        inputs_of_row, by = " ".join(names), who.rstrip(",")
        rows.append(ShownClash(str(bound.label), inputs_of_row, anchor, before, mine, present, by, at))
    return rows


def _lists(data: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Return name and values of posted data, which a test or a caller may give as a plain dict."""
    return list(data.lists()) if isinstance(data, MultiValueDict) else [(name, [data[name]]) for name in data]


def _as_posted(form: forms.BaseForm) -> QueryDict:
    """Return what an unbound form would post, without disabled fields and files."""
    data = QueryDict(mutable=True)
    for bound in form:
        if not bound.field.disabled and not isinstance(bound.field, forms.FileField):
            data.setlist(bound.html_name, _texts_of(bound))
    return data


def _texts_of(bound: BoundField) -> list[str]:
    widget, value = bound.field.widget, bound.value()
    if isinstance(widget, forms.CheckboxInput):
        return ["on"] if widget.check_test(value) else []
    shown = widget.format_value(value)
    if isinstance(shown, list):
        return [str(each) for each in shown]
    return ["" if shown is None else str(shown)]
