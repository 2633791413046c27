"""Forms of reports. `reports.actions` validates their values."""

from collections.abc import Sequence
from typing import Any

from django import forms

from reports.actions import MAX_TITLE
from reports.figures import Choice
from reports.models import MAX_REPORT_TEXT, Report

__all__ = ["AddForm", "ShareForm", "TextForm", "TitleForm"]

_NEW = "new"
_MARKDOWN = "Markdown: headings, lists, tables, code and links. Images and HTML are not shown."


def _title() -> forms.CharField:
    # The action's error for a long title gives its length, so the form lets longer ones pass.
    return forms.CharField(
        label="Title", max_length=10 * MAX_TITLE, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )


def _text(**options: Any) -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": 8, "class": "mono", "maxlength": MAX_REPORT_TEXT})
    return forms.CharField(label="Text", widget=widget, help_text=_MARKDOWN, **options)


class TitleForm(forms.Form):
    title = _title()


class TextForm(forms.Form):
    text = _text(strip=False)


class ShareForm(forms.Form):
    days = forms.IntegerField(label="Expires after", min_value=1)
    confirmed = forms.BooleanField(required=False)


class AddForm(forms.Form):
    """Figures and text to add to a report, or to a new one."""

    report = forms.ChoiceField(label="Report")
    title = forms.CharField(
        label="Title of the new report", required=False, max_length=10 * MAX_TITLE,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip
    figures = forms.MultipleChoiceField(
        label="Figures", required=False, widget=forms.CheckboxSelectMultiple,
        error_messages={"invalid_choice": "%(value)s is no longer available: choose again."},
    )  # fmt: skip
    text = _text(required=False, strip=False)

    def __init__(self, reports: Sequence[Report], choices: Sequence[Choice], data: Any = None, **initial: Any) -> None:
        super().__init__(data, initial={"report": _NEW, **initial})
        offered = [(_NEW, "A new report"), *((str(report.pk), report.title) for report in reports)]
        self.fields["report"].choices = offered  # type: ignore[attr-defined]
        self.fields["figures"].choices = [(one.key, one.title) for one in choices]  # type: ignore[attr-defined]

    @property
    def wants_new(self) -> bool:
        return bool(self.cleaned_data["report"] == _NEW)
