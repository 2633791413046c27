"""The form of a price. The action checks what is given; the form only carries it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from django import forms

__all__ = ["PriceForm"]


class PriceForm(forms.Form):
    gpu_model = forms.CharField(
        label="GPU model", max_length=128, widget=forms.TextInput(attrs={"list": "gpu-models", "autocomplete": "off"})
    )
    per_hour = forms.CharField(
        label="Price per GPU-hour", max_length=20, widget=forms.TextInput(attrs={"inputmode": "decimal"})
    )
    valid_from = forms.DateField(
        label="From this day on",
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
        help_text="From midnight in UTC. Costs of the days before stay what they were.",
    )

    def __init__(self, data: Any, *, today: date, models: Sequence[str]) -> None:
        super().__init__(data, initial={"valid_from": today, "gpu_model": models[0] if len(models) == 1 else ""})
        self.models = models
