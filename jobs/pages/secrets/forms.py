"""Forms with the value of a secret. No page contains a value again, and no browser keeps it in a draft."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from jobs.models import InstanceGroup

__all__ = ["SecretForm", "ValueForm"]

_MOST_FILE_BYTES = 64 * 1024


class ValueForm(forms.Form):
    """A value that is typed, or uploaded as a file if it has several lines."""

    value = forms.CharField(
        required=False, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "spellcheck": "false"}),
        help_text="At least 8 characters. It is not shown again.",
    )  # fmt: skip
    value_file = forms.FileField(
        label="Or a file with the value", required=False, widget=forms.FileInput,
        help_text="Text of at most 32 KiB, such as a key in PEM or JSON.",
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        file = cleaned.pop("value_file", None)
        if file is not None and cleaned.get("value"):
            self.add_error("value_file", "Give the value in one of the two fields.")
        elif file is not None:
            cleaned["value"] = _text_of(file.read(_MOST_FILE_BYTES))
        return cleaned


class SecretForm(ValueForm):
    name = forms.CharField(
        max_length=1000, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Variable of the environment that trainings get, such as HF_TOKEN.",
    )  # fmt: skip
    instance_group = forms.ChoiceField(
        label="Who may use it", required=False, help_text="Members of an instance group use it in its trainings."
    )
    is_file = forms.BooleanField(
        label="Give it as a file", required=False,
        help_text="The variable then has the path of a file with the value, such as for "
        "GOOGLE_APPLICATION_CREDENTIALS.",
    )  # fmt: skip

    field_order = ("name", "value", "value_file", "instance_group", "is_file")

    def __init__(self, *args: Any, groups: Iterable[InstanceGroup], **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["instance_group"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "Only you"), *((group.name, f"Trainings of {group.name}") for group in groups)]


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValidationError({"value_file": "The file is not text in UTF-8: encode it, such as by base64."}) from None
