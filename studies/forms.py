"""Forms of studies. `studies.actions` checks their values."""

from collections.abc import Mapping
from typing import Any

from django import forms
from tidepool.space_notation import HOW_TO_WRITE, searched_values

from core.parameters import ParametersField
from datasets.models import Dataset
from jobs.models import InstanceGroup
from jobs.options import MAX_PRIORITY
from jobs.pages.train.forms import GOALS
from models_registry.models import RegisteredModel, RegisteredModelVersion
from studies.models import MAX_TRIALS, Study

__all__ = ["MetricForm", "SeedsForm", "StudyForm", "TrialForm", "TrialsForm"]

_VALUES = ((Study.ValueOf.LAST, "The last value of the metric"), (Study.ValueOf.BEST, "The best value"))
_SAMPLERS = (
    ("tpe", "TPE: prefers values near good ones"),
    ("random", "Random"),
    ("grid", "Grid: every combination"),
    ("cmaes", "CMA-ES: for numbers only"),
    ("gp", "Gaussian process: for few, long trials"),
)
_PRUNERS = (
    ("none", "None: every trial trains to its end"),
    ("asha", "ASHA: a third of the trials goes on after 1/27, 1/9 and 1/3"),
    ("median", "Median: stops trials below the median"),
    ("hyperband", "Hyperband: ASHA with several starts"),
)


class SpaceField(ParametersField):
    """Field with one searched parameter per line, such as `lr = 1e-4:1e-1:log`."""

    def clean(self, value: Any) -> dict[str, Any]:
        return {name: searched_values(text) for name, text in self.lines(value, "a parameter").items()}


def _number(label: str, *, help: str = "", **options: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, min_value=1, required=False, help_text=help, **options)


class StudyForm(forms.Form):
    model = forms.ModelChoiceField(RegisteredModel.objects.none(), empty_label="Pick a model")
    dataset = forms.ModelChoiceField(Dataset.objects.order_by("name"), required=False, empty_label="No dataset")
    name = forms.CharField(label="Name of the study", max_length=1000)
    instance_group = forms.ModelChoiceField(InstanceGroup.objects.none(), empty_label=None)
    space = SpaceField(label="Searched parameters", help_text=f"One per line: lr = 1e-4:1e-1:log. {HOW_TO_WRITE}")
    metric = forms.CharField(max_length=1000, help_text="A metric that the script reports, such as loss or accuracy.")
    goal = forms.ChoiceField(choices=GOALS)
    value_of = forms.ChoiceField(label="Value of a trial", choices=_VALUES)
    sampler = forms.ChoiceField(choices=_SAMPLERS, help_text="How the values of the next trial are chosen.")
    pruner = forms.ChoiceField(choices=_PRUNERS, help_text="When a trial is stopped early, by parts of its progress.")
    trials = forms.IntegerField(label="Trials", min_value=1, max_value=MAX_TRIALS, required=False, initial=20)
    at_once = _number("At once", help="Empty: as many as there are GPUs.")
    minutes = _number("Time limit")
    gpu_hours = forms.FloatField(label="Limit of GPU-hours", min_value=0.001, required=False)
    max_slots = forms.IntegerField(label="At most per trial", min_value=1, initial=1)
    priority = forms.IntegerField(
        min_value=1, max_value=MAX_PRIORITY, initial=5000, help_text="The study counts as one training with it."
    )
    seed = forms.IntegerField(min_value=0, max_value=2**31 - 1, initial=0)
    parameters = ParametersField(
        label="Other parameters", required=False, help_text="One per line, such as epochs = 5: the same in every trial."
    )

    def __init__(
        self, *args: Any, groups: list[InstanceGroup], versions: Mapping[str, RegisteredModelVersion], **kwargs: Any
    ) -> None:
        """`versions`: model number as text -> its newest version."""
        super().__init__(*args, **kwargs)
        model, group = self.fields["model"], self.fields["instance_group"]
        assert isinstance(model, forms.ModelChoiceField)
        assert isinstance(group, forms.ModelChoiceField)
        model.queryset = RegisteredModel.objects.filter(pk__in=versions).order_by("name")
        group.queryset = InstanceGroup.objects.filter(pk__in=[each.pk for each in groups])
        if groups:
            group.initial = groups[0].pk


class TrialsForm(forms.Form):
    """A higher limit of trials."""

    more = forms.IntegerField(label="More trials", min_value=1, max_value=MAX_TRIALS, initial=10)


class MetricForm(forms.Form):
    """Another metric that compares the trials."""

    metric = forms.CharField(max_length=1000)
    goal = forms.ChoiceField(choices=GOALS)
    value_of = forms.ChoiceField(label="Value of a trial", choices=_VALUES)


class SeedsForm(forms.Form):
    trial = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    count = forms.IntegerField(label="Repetitions", min_value=1, max_value=20, initial=3)


class TrialForm(forms.Form):
    """Values of one trial that the user chooses."""

    values = ParametersField(label="Values of your own", help_text="One per line, such as lr = 0.01.")
