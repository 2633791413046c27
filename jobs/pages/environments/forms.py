"""Form of a named environment. The action checks the values; the form only carries them."""

from collections.abc import Iterable
from typing import Any

from django import forms

from jobs.models import InstanceGroup

__all__ = ["EnvironmentForm"]


class EnvironmentForm(forms.Form):
    name = forms.CharField(max_length=1000, help_text="Name by which trainings choose it.")
    source = forms.CharField(
        label="Requirements", required=False, strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false"}),
        help_text="One per line: timm>=1.0, --python 3.12, or --image NAME@sha256:… alone. With a lock: the text of "
        "pyproject.toml.",
    )  # fmt: skip
    lock = forms.CharField(
        label="Text of uv.lock", required=False, strip=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
    )  # fmt: skip
    folder = forms.CharField(
        label="Folder on the hosts", required=False, max_length=10_000,
        help_text="Path of a virtual or conda environment that the hosts have, instead of requirements.",
    )  # fmt: skip
    groups = forms.MultipleChoiceField(
        label="Instance groups that may use it", required=False, widget=forms.CheckboxSelectMultiple,
        help_text="None checked: all.",
    )  # fmt: skip
    default_of = forms.MultipleChoiceField(
        label="Default of", required=False, widget=forms.CheckboxSelectMultiple,
        help_text="Trainings of these groups get it if they choose none and require nothing.",
    )  # fmt: skip
    notes = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, groups: Iterable[InstanceGroup], **options: Any) -> None:
        super().__init__(*args, **options)
        names = [(group.name, group.name) for group in groups]
        for field in (self.fields["groups"], self.fields["default_of"]):
            assert isinstance(field, forms.MultipleChoiceField)
            field.choices = names

    @property
    def given(self) -> dict[str, Any]:
        """Values of `EnvironmentSpec`. Browsers send texts with CRLF."""
        return {
            name: value.replace("\r\n", "\n") if isinstance(value, str) else value
            for name, value in self.cleaned_data.items()
        }
