"""Forms of What if: a new replay, and a moment of a replay."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from core.time import parsed_moment
from jobs.actions.groups import PRESETS
from jobs.models import InstanceGroup
from replay.actions import ReplaySpec
from replay.models import Replay

__all__ = ["MomentForm", "WhatIfForm"]

_OWN = "own"
_WINDOWS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
_POLICY, _WEIGHTS, _QUOTA = "policy-", "weights-", "quota-"
_UNCHANGED = "Unchanged"
#: Help text without JavaScript; static/js/pages/what_if.js converts to the viewer's zone and replaces it.
_ZONE = "In UTC."


class _Moment(forms.DateTimeInput):
    """Input of a time, rendered in UTC; JavaScript converts it to the viewer's zone."""

    input_type = "datetime-local"

    def format_value(self, value: Any) -> str | None:
        try:
            at: datetime | None = parsed_moment(value) if isinstance(value, str) else value
        except (ValueError, OverflowError):
            return None
        return at.strftime("%Y-%m-%dT%H:%M:%S") if at else None


def _preset_terms(name: str) -> Mapping[str, Any]:
    return next(preset.terms for preset in PRESETS if preset.name == name)


#: Choice -> its label and its rules. Preemption is that of the preset.
_POLICIES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "fifo": ("First come, first served", _preset_terms("first-come")),
    "priority": ("Priority", _preset_terms("priority")),
    "fairshare": ("Fair share", _preset_terms("elastic-fair-share")),
    "soon": ("Goodput: early ends", {**_preset_terms("goodput"), "aim": "soon"}),
    "even": ("Goodput: even speed-ups", {**_preset_terms("goodput"), "aim": "even"}),
    "used": ("Goodput: least usage first", {**_preset_terms("goodput"), "aim": "used"}),
}


class WhatIfForm(forms.Form):
    """A new replay. `ask_for_replay` validates the values."""

    window = forms.ChoiceField(
        label="Period",
        choices=[("1h", "Last hour"), ("24h", "Last 24 hours"), ("7d", "Last 7 days"), (_OWN, "Custom")],
    )
    start = forms.DateTimeField(label="From", required=False, widget=_Moment, help_text=_ZONE)
    end = forms.DateTimeField(label="Until", required=False, widget=_Moment, help_text=_ZONE)
    gpus = forms.IntegerField(
        label="GPUs in the pool", required=False, min_value=1,
        help_text="Empty: as recorded. Additional GPUs are on hosts like the largest one.",
    )  # fmt: skip
    restart_seconds = forms.FloatField(
        label="Pause at a resize", required=False, min_value=0,
        help_text="Empty: as recorded. A restart from a checkpoint takes about 30 s.",
    )  # fmt: skip

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, initial={"window": "24h"})
        self.group_rows = list(InstanceGroup.objects.order_by("name"))
        for group in self.group_rows:
            self.fields[f"{_POLICY}{group.pk}"] = forms.ChoiceField(
                label=f"Policy of {group.name}",
                required=False,
                choices=[("", _UNCHANGED), *((name, label) for name, (label, _) in _POLICIES.items())],
            )
            self.fields[f"{_WEIGHTS}{group.pk}"] = forms.CharField(
                label=f"GPU weights in {group.name}", required=False,
                widget=forms.TextInput({"placeholder": group.gpu_weights or "A100=4, T4=1"}),
                help_text="For a fair share. Empty: unchanged.",
            )  # fmt: skip
            self.fields[f"{_QUOTA}{group.pk}"] = forms.IntegerField(
                label=f"Quota of {group.name}", required=False, min_value=0
            )

    @property
    def group_fields(self) -> list[list[Any]]:
        """The fields of each group."""
        return [[self[f"{kind}{group.pk}"] for kind in (_POLICY, _WEIGHTS, _QUOTA)] for group in self.group_rows]

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("window") == _OWN:
            for name in ("start", "end"):
                if not given.get(name) and name not in self.errors:
                    self.add_error(name, "Enter a time.")
        return given

    def spec(self) -> ReplaySpec:
        given, end = self.cleaned_data, timezone.now()
        start: datetime = end - _WINDOWS.get(given["window"], timedelta())
        if given["window"] == _OWN:
            start, end = given["start"], given["end"]
        groups: dict[str, dict[str, Any]] = {}
        for group in self.group_rows:
            rules: dict[str, Any] = {}
            if policy := given[f"{_POLICY}{group.pk}"]:
                rules |= _POLICIES[policy][1]
            if weights := given[f"{_WEIGHTS}{group.pk}"]:
                rules["gpu_weights"] = weights
            if (quota := given[f"{_QUOTA}{group.pk}"]) is not None:
                rules["quota"] = quota
            if rules:
                groups[str(group.pk)] = rules
        return ReplaySpec(start, end, groups, given["gpus"], given["restart_seconds"])


class MomentForm(forms.Form):
    """A time within a replay. `visible_moments` validates it."""

    at = forms.DateTimeField(label="At", widget=_Moment(attrs={"step": "1"}), help_text=_ZONE)
    play = forms.ChoiceField(
        label="In the replay", choices=[("other", "With the changes"), ("same", "Without changes")]
    )

    def __init__(self, replay: Replay, data: Any = None) -> None:
        super().__init__(data)
        if "other" not in replay.moments:
            self.fields["play"].choices = [("same", "Without changes")]  # type: ignore[attr-defined]
