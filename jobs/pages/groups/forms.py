"""The form of an instance group's terms. Actions check what is given; the form only carries it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

from jobs.models import InstanceGroup
from jobs.options import MAX_PRIORITY
from jobs.queries.group_parameters import Given, ParameterError, read_lines
from jobs.queries.group_terms import LINKS, TERMS, in_words
from workers.models import ResourceGroup

__all__ = ["GroupForm", "shown_terms"]

_ON_OFF: Final = [("true", "On"), ("false", "Off")]
_RECORDED: Final = "Recorded. It takes effect only under isolation."


def _switch(help_text: str, label: str | None = None) -> forms.TypedChoiceField:
    return forms.TypedChoiceField(label=label, choices=_ON_OFF, coerce=lambda text: text == "true", help_text=help_text)


class UserNamesField(forms.CharField):
    """One user name per line."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocomplete": "off"})

    def clean(self, value: Any) -> list[str]:
        lines = [line.strip() for line in str(super().clean(value)).splitlines()]
        return list(dict.fromkeys(line for line in lines if line))


class ParametersOfWmla(forms.CharField):
    """A parameter of WMLA per line, as NAME=value."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "font-monospace"})

    def clean(self, value: Any) -> Given:
        try:
            return read_lines(str(super().clean(value)))
        except ParameterError as error:
            raise ValidationError(str(error)) from error


class GroupForm(forms.Form):
    name = forms.CharField(label="Instance group name", max_length=1000)
    description = forms.CharField(required=False, max_length=1000)
    execution_user = forms.CharField(required=False, max_length=1000, help_text=_RECORDED)
    deployment_directory = forms.CharField(
        required=False, max_length=10_000, help_text=f"{_RECORDED} Nothing is installed on the hosts."
    )
    resource_group = forms.ModelChoiceField(
        ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU).order_by("name"),
        label="Resource group for GPU slots",
        empty_label=None,
        to_field_name="name",
        help_text="Whose GPUs its trainings may use. Several instance groups may share one.",
    )
    policy = forms.ChoiceField(
        choices=[
            (InstanceGroup.Policy.FAIRSHARE, "Fair share: in proportion to priorities"),
            (InstanceGroup.Policy.PRIORITY, "Priority: higher ones get all that they ask for"),
            (InstanceGroup.Policy.FIFO, "First come, first served"),
        ],
        help_text="How its trainings divide its GPUs.",
    )
    preemption = _switch("Whether GPUs are taken from trainings that run: by shrinking them live where that is enough.")
    reclaim_grace_seconds = forms.IntegerField(
        label="Reclaim grace",
        help_text="How long one that is stopped for others may take to end. Shrinking takes a step.",
    )
    minimum_run_seconds = forms.IntegerField(
        label="Minimum run time", help_text="No training is stopped for others earlier. It may be shrunk at any time."
    )
    quota = forms.IntegerField(
        required=False,
        help_text="GPUs that are its own whenever it asks for them. Empty: none, it lives on what is over.",
    )
    weight = forms.IntegerField(help_text="Its part of what is over all quotas: twice the weight, twice the GPUs.")
    borrows = _switch("May use more than its quota while others leave theirs.")
    lends = _switch("Others may use what it leaves of its quota, until it asks for it.")
    default_priority = forms.IntegerField(help_text="Of trainings that name none.")
    lowest_priority = forms.IntegerField(help_text=f"1 to {MAX_PRIORITY}.")
    highest_priority = forms.IntegerField(help_text=f"1 to {MAX_PRIORITY}.")
    members = UserNamesField(required=False, help_text="One user name per line. Empty: everybody may use it.")
    admins = UserNamesField(
        required=False,
        label="Group administrators",
        help_text="One user name per line. They may change policy, preemption, times, priorities and members.",
    )
    parameters = ParametersOfWmla(
        required=False, label="Paste parameters", help_text="NAME=value on each line. They go before the fields."
    )
    revision = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, changeable: Collection[str], is_new: bool, **kwargs: Any) -> None:
        """`changeable`: columns that this user may set; the others are shown and not sent."""
        super().__init__(*args, **kwargs)
        self._changeable = changeable
        if not is_new:
            del self.fields["name"]
        for term in TERMS:
            if term.column not in changeable:
                self.fields[term.column].disabled = True
                self.fields[term.column].required = False

    def given(self) -> dict[str, Any]:
        """Return the terms of a valid form, in the shape of `jobs.queries.group_terms.terms_of`."""
        values = {column: self.cleaned_data[column] for column in self._changeable}
        if "resource_group" in values:
            values["resource_group"] = values["resource_group"].name
        return {**values, **self.cleaned_data["parameters"].terms}

    def sentences(self) -> list[str]:
        """Sentences about pasted parameters that change nothing."""
        sentences: list[str] = self.cleaned_data["parameters"].sentences
        return sentences

    def compared_with(self, now: Mapping[str, Any]) -> list[str]:
        """Return the terms of a valid form that differ from the present ones."""
        given = self.given()
        return [
            f"{term.label}: now {in_words(term.column, now[term.column])}, here {in_words(term.column, value)}"
            for term in TERMS
            if (value := given.get(term.column, now[term.column])) != now[term.column]
        ]


def shown_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms as the form's fields show them."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in terms.items()}
    for link in LINKS:
        values[link] = "\n".join(terms[link])
    return values
