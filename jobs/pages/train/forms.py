"""Forms that start and change a training. Actions check the values; forms only carry them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from tidepool.space_notation import is_sweep, searched_values

from core.edit_forms import opened_data
from core.edits import UNSEEN, Seen
from core.parameters import ParametersField, Scalar
from datasets.models import Dataset
from jobs.actions.job_commands import JobChange
from jobs.actions.submission_checks import misfits_of
from jobs.models import InstanceGroup
from jobs.options import MAX_PRIORITY, OPTIONS, Option, takes_several
from jobs.pages.train.fields import ParameterField, given_in, parameter_fields
from jobs.queries.environments import usable_environments
from jobs.words import gpus
from models_registry.models import RegisteredModel, RegisteredModelVersion
from models_registry.parameter_kinds import text_parameters

__all__ = ["GOALS", "ON_PAGE", "ChangeForm", "TrainForm", "VariablesField", "change_form", "change_words"]

#: Goals of a comparison.
GOALS = (("minimize", "Lowest value"), ("maximize", "Highest value"))
_PARAMETER = "parameter."


#: Options with a field on the page.
ON_PAGE = [option for option in OPTIONS.values() if option.label]


class WordsField(forms.CharField):
    """Arguments, split like a shell's."""

    def clean(self, value: Any) -> list[str]:
        try:
            return shlex.split(super().clean(value))
        except ValueError as error:
            raise ValidationError(f"These arguments cannot be parsed ({error}): close the quotation.") from error


class TagsField(forms.CharField):
    def clean(self, value: Any) -> list[str]:
        return str(super().clean(value)).split()


class SecretsField(forms.MultipleChoiceField):
    """Names of secrets, as boxes to check; the value is their names separated by spaces."""

    def __init__(self, names: Iterable[str]) -> None:
        option = OPTIONS["secrets"]
        super().__init__(
            choices=[(name, name) for name in names],
            required=False,
            label=option.label,
            initial=option.default,
            help_text=option.help,
            widget=forms.CheckboxSelectMultiple,
            error_messages={"invalid_choice": "There is no secret %(value)s for your trainings: choose another."},
        )

    def prepare_value(self, value: Any) -> Any:
        return value.split() if isinstance(value, str) else value

    def clean(self, value: Any) -> str:
        return " ".join(super().clean(value))


class VariablesField(ParametersField):
    """One variable per line, such as `WANDB_MODE = offline`. Every value is text."""

    def clean(self, value: Any) -> dict[str, Any]:
        return self.lines(value, "a variable")


class TrainForm(forms.Form):
    model = forms.ModelChoiceField(RegisteredModel.objects.none(), empty_label="Pick a model")
    dataset = forms.ModelChoiceField(Dataset.objects.order_by("name"), required=False, empty_label="No dataset")
    name = forms.CharField(label="Name of the training", max_length=1000, help_text="Shown in lists and charts.")
    instance_group = forms.ModelChoiceField(
        InstanceGroup.objects.none(),
        empty_label=None,
        help_text="The training uses the group's GPUs under the group's policy.",
    )
    parameters = ParametersField(
        label="Other parameters",
        required=False,
        help_text="One per line, such as epochs = 5, for parameters without a field.",
    )
    arguments = WordsField(
        label="Other arguments", required=False, max_length=65_536, help_text="Passed after the parameters.",
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "class": "font-monospace"}),
    )  # fmt: skip
    skip_unusable_requirements = forms.BooleanField(
        required=False,
        label="Skip unusable requirements",
        help_text="Start without the lines of the requirements that cannot be used.",
    )
    tags = TagsField(
        required=False, max_length=1000, help_text="Words separated by spaces, for filtering the list of trainings.",
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "list": "known-tags"}),
    )  # fmt: skip
    start_from = forms.ChoiceField(
        required=False,
        label="Start from",
        help_text="Weights start at step 0 with a new optimizer. A checkpoint continues with the complete state.",
    )
    metric = forms.CharField(
        max_length=1000,
        initial="loss",
        help_text="A metric that the script reports: it shows which is best.",
    )
    goal = forms.ChoiceField(choices=GOALS, initial="minimize")
    #: Number of the cloned training.
    clone = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        *args: Any,
        groups: list[InstanceGroup],
        beginnings: Sequence[Any] = (),
        versions: Mapping[str, RegisteredModelVersion],
        secrets: Iterable[str] = (),
        **kwargs: Any,
    ) -> None:
        """Fields of parameters are named `parameter.<name>`.

        versions: model number as text -> version. secrets: names to choose from.
        """
        super().__init__(*args, **kwargs)
        self.fields |= {option.name: _field_of(option) for option in ON_PAGE}
        self._version = versions.get(self.data.get("model", ""))
        for name in ("metric", "goal"):
            self.fields[name].required = not self.is_bound or self.is_sweep
        start_from = self.fields["start_from"]
        assert isinstance(start_from, forms.ChoiceField)
        start_from.choices = [("", "From scratch"), *beginnings]
        environments = [(row.name, row.name) for row in usable_environments(groups)]
        self.fields["named_environment"] = forms.ChoiceField(
            choices=[("", "As the code asks, or the cluster's"), *environments],
            required=False,
            label=OPTIONS["named_environment"].label,
            help_text=OPTIONS["named_environment"].help,
            error_messages={"invalid_choice": "There is no environment %(value)s for your trainings: choose another."},
        )
        self.fields["secrets"] = SecretsField(secrets)
        model, field = self.fields["model"], self.fields["instance_group"]
        assert isinstance(model, forms.ModelChoiceField)
        model.queryset = RegisteredModel.objects.filter(pk__in=versions).order_by("name")
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = InstanceGroup.objects.filter(pk__in=[group.pk for group in groups])
        if groups:
            field.initial = groups[0].pk

    @property
    def more_options(self) -> list[tuple[forms.BoundField, Option]]:
        """Return the options without a fixed place on the page."""
        return [(self[option.name], option) for option in ON_PAGE if not (option.is_placed or option.has_lines)]

    @property
    def long_options(self) -> list[forms.BoundField]:
        """Return the options whose values have several lines."""
        return [self[option.name] for option in ON_PAGE if option.has_lines]

    @property
    def has_more_errors(self) -> bool:
        return any(field.errors for field, _ in self.more_options)

    @property
    def has_odd_values(self) -> bool:
        """Return whether any rarely used field has a value or an error."""
        fields = [self["parameters"], self["arguments"], *self.long_options]
        return any(field.value() or field.errors for field in fields)

    @property
    def may_skip(self) -> bool:
        """Return whether the page offers to skip lines of the requirements."""
        return bool(self["requirements"].errors or self["skip_unusable_requirements"].value())

    @property
    def typed_parameters(self) -> dict[str, dict[str, str]]:
        """Return the texts in the fields of parameters, and their errors, by name."""
        source = self.data if self.is_bound else self.initial
        typed = {name.removeprefix(_PARAMETER): text for name, text in source.items() if name.startswith(_PARAMETER)}
        return {"values": typed, "errors": self._misfits() if self.is_bound else {}}

    @property
    def is_sweep(self) -> bool:
        """Return whether a parameter has several values."""
        lines = str(self.data.get("parameters", "")).splitlines()
        others = (line.partition("=")[::2] for line in lines)
        return bool(self._typed_lists()) or any(self._lists_values(name.strip(), text) for name, text in others)

    def clean(self) -> dict[str, Any]:
        """Return the values; `sweep` has the values of each parameter with several, `parameters` the first of them."""
        cleaned = super().clean() or self.cleaned_data
        given = self._typed() | {name: values[0] for name, values in self._typed_lists().items()}
        for sentence in self._misfits().values():
            self.add_error("parameters", sentence)
        others = cleaned.get("parameters", {})
        for name in sorted(others.keys() & given.keys()):
            self.add_error("parameters", f"{name} has a separate field above: change it there.")
        lists = {name: text for name, text in others.items() if self._lists_values(name, text)}
        cleaned["sweep"] = self._typed_lists() | {name: searched_values(text) for name, text in lists.items()}
        cleaned["parameters"] = {**given, **others, **{name: values[0] for name, values in cleaned["sweep"].items()}}
        if cleaned["sweep"] and cleaned.get("start_from"):
            self.add_error(
                "start_from", f"{', '.join(cleaned['sweep'])}: with several values, trainings start from scratch."
            )
        if self._version is not None and not takes_several(self._version, cleaned.get("gpus_per_process", "")):
            cleaned["max_slots"] = 1  # the page shows no field for it
        return cleaned

    def _misfits(self) -> dict[str, str]:
        """Return name -> sentence for each field of a parameter with a value that the script would reject."""
        found = misfits_of(self._typed(), self._version)
        for name, values in self._typed_lists().items():
            for value in values:
                found |= misfits_of({name: value}, self._version)
        return found

    def _typed(self) -> dict[str, Scalar]:
        """Return the parameters with one value."""
        lists = self._typed_lists()
        texts = {field.name: self._text_of(field) for field in self._parameter_fields() if field.name not in lists}
        return given_in(texts, self._parameter_fields())

    def _typed_lists(self) -> dict[str, list[Scalar]]:
        """Return the values of the parameters with several."""
        texts = {field.name: self._text_of(field) for field in self._parameter_fields()}
        return {name: searched_values(text) for name, text in texts.items() if self._lists_values(name, text)}

    def _lists_values(self, name: str, text: Scalar) -> bool:
        """Return whether the text lists several values of the parameter."""
        is_text = self._version is not None and name in text_parameters(self._version)
        return isinstance(text, str) and not is_text and is_sweep(text)

    def _text_of(self, field: ParameterField) -> str:
        return str(self.data.get(f"{_PARAMETER}{field.name}", ""))

    def _parameter_fields(self) -> list[ParameterField]:
        return parameter_fields(self._version) if self._version is not None else []


def _field_of(option: Option) -> forms.Field:
    initial = option.default if option.initial is None else option.initial
    shown: dict[str, Any] = {"label": option.label, "help_text": option.help_with("Empty"), "initial": initial}
    if option.is_variables:
        return VariablesField(required=False, **shown | {"initial": ""})
    if option.most_characters:
        attributes = {"spellcheck": "false", "autocomplete": "off", "class": "font-monospace"}
        widget = forms.Textarea(attributes | {"rows": 2}) if option.has_lines else forms.TextInput(attributes)
        return forms.CharField(required=False, max_length=option.most_characters, widget=widget, **shown)
    if option.choices:
        return forms.ChoiceField(choices=option.choices, **shown)
    return forms.IntegerField(required=initial is not None, **shown)


class ChangeForm(forms.Form):
    priority = forms.IntegerField(help_text=f"1 to {MAX_PRIORITY:,}.")
    max_slots = forms.IntegerField(label="At most")
    #: Sent by a remedy alone: the page has no field for it.
    min_slots = forms.IntegerField(required=False, widget=forms.HiddenInput)
    max_seconds = forms.IntegerField(
        label=OPTIONS["max_seconds"].label,
        required=False,
        help_text="Seconds from each start, including the current one. Empty: no limit.",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        """A remedy sends the field that it changes; the others are then not required, and stay as they are."""
        super().__init__(*args, **options)
        for name in ("priority", "max_slots"):
            self.fields[name].required = not self.is_bound or name in self.data

    def clean_max_seconds(self) -> int | None:
        """Return 0, no limit, for an empty field, and None, no change, for one that was not sent."""
        seconds: int | None = self.cleaned_data["max_seconds"]
        return 0 if seconds is None and "max_seconds" in self.data else seconds

    def seen(self) -> Seen:
        """Return the values with which the form was opened, as far as the request says."""
        opened = ChangeForm(opened_data(self.data))
        if not opened.is_bound:
            return UNSEEN
        opened.is_valid()  # a value that the form would refuse counts as not seen
        return Seen(JobChange(**opened.cleaned_data).given)


def change_form(values: Mapping[str, int]) -> ChangeForm:
    """Return the form with these values of a job, in the shape of `JobChange`."""
    return ChangeForm(initial={**values, "max_seconds": values["max_seconds"] or None})


def change_words(name: str, value: int) -> str:
    """Return a value of the form in words."""
    match name:
        case "max_seconds":
            return f"{value} s" if value else "no limit"
        case "priority":
            return str(value)
    return gpus(value)
