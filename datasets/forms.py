"""Forms of the datasets pages. Actions check what is given; forms only carry it."""

from __future__ import annotations

from django import forms

from datasets.models import Dataset

__all__ = ["DatasetForm"]


class DatasetForm(forms.Form):
    name = forms.CharField(max_length=1000, help_text="How trainings refer to it, such as digits.")
    kind = forms.ChoiceField(
        label="Kind of data", choices=Dataset.Kind.choices, initial=Dataset.Kind.ANY,
        help_text="Any leaves the reading to the model's code.",
    )  # fmt: skip
    path = forms.CharField(
        label="Path on the server", required=False, max_length=4096,
        help_text="A folder or file below the data folder. Leave it empty to upload instead.",
    )  # fmt: skip
    file = forms.FileField(
        label="Or upload a file", required=False,
        help_text="A .zip or .tar.gz archive, or a single data file such as .csv or .npz.",
    )  # fmt: skip
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))
