"""The forms that start and change a training. Actions check the values; forms only carry them."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from core.parameters import ParametersField, Scalar, as_scalar, kind_of, misfits
from datasets.models import Dataset
from jobs.models import InstanceGroup
from jobs.options import MAX_PRIORITY, OPTIONS, Option
from models_registry.models import RegisteredModel

__all__ = ["ON_PAGE", "ChangeForm", "TrainForm"]

_PARAMETER = "parameter."


#: Options that the page asks for.
ON_PAGE = [option for option in OPTIONS.values() if option.label]
#: Those that jobs/train.html places by name; others follow under "More options".
_PLACED = {"min_slots", "max_slots", "priority", "exactness", "virtual_ranks"}


class TrainForm(forms.Form):
    model = forms.ModelChoiceField(RegisteredModel.objects.order_by("name"), empty_label="Pick a model")
    dataset = forms.ModelChoiceField(Dataset.objects.order_by("name"), empty_label="Pick a dataset")
    name = forms.CharField(label="Name of the training", max_length=1000, help_text="Shown in lists and charts.")
    instance_group = forms.ModelChoiceField(
        InstanceGroup.objects.none(), empty_label=None, help_text="Whose GPUs it uses and which policy divides them."
    )
    parameters = ParametersField(
        label="Other parameters",
        required=False,
        help_text="One per line, such as epochs = 5: for what the model does not declare.",
    )
    start_from = forms.ChoiceField(
        required=False,
        label="Start from",
        help_text="Weights begin at step 0 with a fresh optimizer. A checkpoint is continued with all that it holds.",
    )

    def __init__(
        self,
        *args: Any,
        groups: list[InstanceGroup],
        beginnings: Sequence[Any] = (),
        declared: Mapping[str, Mapping[str, Scalar]],
        **kwargs: Any,
    ) -> None:
        """`declared`: parameters of each model, by its number as text. Their fields are named `parameter.<name>`."""
        super().__init__(*args, **kwargs)
        self.fields |= {option.name: _field_of(option) for option in ON_PAGE}
        self._declared = declared
        start_from = self.fields["start_from"]
        assert isinstance(start_from, forms.ChoiceField)
        start_from.choices = [("", "Nothing: it learns everything itself"), *beginnings]
        field = self.fields["instance_group"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = InstanceGroup.objects.filter(pk__in=[group.pk for group in groups])
        if groups:
            field.initial = groups[0].pk

    @property
    def more_options(self) -> list[tuple[forms.BoundField, str]]:
        """The options that have no place of their own on the page, with their units."""
        return [(self[option.name], option.unit) for option in ON_PAGE if option.name not in _PLACED]

    @property
    def has_more_errors(self) -> bool:
        return any(field.errors for field, _ in self.more_options)

    @property
    def typed_parameters(self) -> dict[str, dict[str, str]]:
        """Texts typed into the fields of declared parameters, and the errors in them, by name."""
        prefix = _PARAMETER
        typed = {name.removeprefix(prefix): text for name, text in self.data.items() if name.startswith(prefix)}
        return {"values": typed, "errors": self._typed()[1] if self.is_bound else {}}

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        given, problems = self._typed()
        for sentence in problems.values():
            self.add_error("parameters", sentence)
        others = cleaned.get("parameters", {})
        for name in sorted(others.keys() & given.keys()):
            self.add_error("parameters", f"{name} has a field of its own above: change it there.")
        cleaned["parameters"] = {**given, **others}
        return cleaned

    def _typed(self) -> tuple[dict[str, Scalar], dict[str, str]]:
        """Return the declared parameters with another value, and the sentences about those that do not fit."""
        declared = self._declared.get(self.data.get("model", ""), {})
        texts = {name: self.data.get(f"{_PARAMETER}{name}", "").strip() for name in declared}
        given = {
            name: text if kind_of(declared[name]) == "text" else as_scalar(text) for name, text in texts.items() if text
        }
        problems = misfits(given, declared)
        return {name: value for name, value in given.items() if value != declared[name]}, problems


def _field_of(option: Option) -> forms.Field:
    initial = option.default if option.initial is None else option.initial
    shown: dict[str, Any] = {"label": option.label, "help_text": option.help_with("Empty"), "initial": initial}
    if option.choices:
        return forms.ChoiceField(choices=option.choices, **shown)
    return forms.IntegerField(required=initial is not None, **shown)


class ChangeForm(forms.Form):
    priority = forms.IntegerField(help_text=f"1 to {MAX_PRIORITY}.")
    max_slots = forms.IntegerField(label="At most")
