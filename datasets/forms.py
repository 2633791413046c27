"""Forms of the datasets pages. Actions validate the values; forms only carry them."""

from typing import Any

from django import forms

from datasets.models import Dataset

__all__ = ["DatasetForm"]


class DatasetForm(forms.Form):
    """Form of a new dataset, in the order and with the words of IBM's. An upload may replace the folders."""

    kind = forms.ChoiceField(choices=Dataset.Kind.choices, initial=Dataset.Kind.ANY, widget=forms.HiddenInput)
    name = forms.CharField(
        label="Dataset name", max_length=1000,
        help_text="Name by which trainings refer to the dataset. The name of your existing dataset adds a version.",
    )  # fmt: skip
    source = forms.ChoiceField(
        label="Location of the files", choices=[("folders", "In folders on the server"), ("upload", "On my computer")],
        initial="folders", required=False, widget=forms.RadioSelect,
    )  # fmt: skip
    training = forms.CharField(
        label="Training folder", max_length=4096,
        help_text="A single folder may contain the subfolders train, val and test.",
        error_messages={"required": "Choose the folder with the training data."},
    )  # fmt: skip
    validation = forms.CharField(label="Validation folder", required=False, max_length=4096)
    testing = forms.CharField(label="Testing folder", required=False, max_length=4096)
    file = forms.FileField(
        label="File", error_messages={"required": "Choose the file to upload."},
        help_text="A .zip or .tar.gz archive, or a single data file such as .csv or .npz.",
    )  # fmt: skip
    upload = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        is_upload = self.data.get("source") == "upload"
        self.fields["training"].required = not is_upload
        self.fields["file"].required = not self.is_bound or (is_upload and not self.data.get("upload"))
