"""Forms of the jobs pages. Actions check what is given; forms only carry it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from core.formfields import ParametersField, as_scalar
from core.parameters import Scalar, kind_of, misfits
from datasets.models import Dataset
from jobs.actions.checks import MAX_PRIORITY
from jobs.models import InstanceGroup, Job
from models_registry.models import RegisteredModel

__all__ = ["ChangeForm", "TrainForm"]

_PARAMETER = "parameter."


class TrainForm(forms.Form):
    model = forms.ModelChoiceField(RegisteredModel.objects.order_by("name"), empty_label="Pick a model")
    dataset = forms.ModelChoiceField(Dataset.objects.order_by("name"), empty_label="Pick a dataset")
    name = forms.CharField(label="Name of the training", max_length=1000, help_text="Shown in lists and charts.")
    instance_group = forms.ModelChoiceField(
        InstanceGroup.objects.none(), empty_label=None, help_text="Whose GPUs it uses and which policy divides them."
    )
    min_slots = forms.IntegerField(
        label="At least", initial=1, help_text="It waits until this many GPUs are free for it."
    )
    max_slots = forms.IntegerField(
        label="At most",
        initial=8,
        help_text="It grows up to this many while it trains, without stopping. WMLA: max number of workers.",
    )
    priority = forms.IntegerField(
        initial=5000, help_text=f"1 to {MAX_PRIORITY}. Twice the priority means twice the GPUs, where both want them."
    )
    parameters = ParametersField(
        label="Other parameters",
        required=False,
        help_text="One per line, such as epochs = 5: for what the model does not declare.",
    )
    exactness = forms.ChoiceField(
        choices=[
            (Job.Exactness.SUM, "Sum: the fastest; its number of GPUs may show in the last digits"),
            (Job.Exactness.BITWISE, "Bitwise: on any number of GPUs the same bits as on one"),
        ],
        help_text="What a resize may change. Each step takes the same samples in either, and none is lost.",
    )
    virtual_ranks = forms.IntegerField(
        required=False,
        label="Virtual ranks",
        help_text="Parts that each step is computed in, for good; it can have no more GPUs than that. Empty: the next "
        "power of two.",
    )

    start_from = forms.ChoiceField(
        required=False,
        label="Start from",
        help_text="Weights begin at step 0 with a fresh optimizer. A checkpoint is continued with all that it holds.",
    )
    checkpoint_seconds = forms.IntegerField(
        required=False,
        label="A checkpoint at least every",
        help_text="So much training is lost at most if every GPU fails at once. 0: none at all. Empty: as the script "
        "says, or 60.",
    )
    checkpoints_kept = forms.IntegerField(
        required=False, label="Checkpoints that are kept", help_text="Empty: as the script says, or 2."
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
    def typed_parameters(self) -> dict[str, dict[str, str]]:
        """What was typed into the fields of declared parameters, and what is wrong with it, by name."""
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
        """Declared parameters that were given another value, and the sentences about those that do not fit."""
        declared = self._declared.get(self.data.get("model", ""), {})
        texts = {name: self.data.get(f"{_PARAMETER}{name}", "").strip() for name in declared}
        given = {
            name: text if kind_of(declared[name]) == "text" else as_scalar(text) for name, text in texts.items() if text
        }
        problems = misfits(given, declared)
        return {name: value for name, value in given.items() if value != declared[name]}, problems


class ChangeForm(forms.Form):
    priority = forms.IntegerField(help_text=f"1 to {MAX_PRIORITY}.")
    max_slots = forms.IntegerField(label="At most")
