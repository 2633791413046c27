"""Shared parts of forms: parameters as lines of text, and errors of actions beside their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from core.errors import UserError

__all__ = ["ParametersField", "as_scalar", "parameters_as_text", "show_error"]


class ParametersField(forms.CharField):
    """One parameter per line, such as `epochs = 5`. Numbers, true and false are taken as such."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "font-monospace"})

    def clean(self, value: Any) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        for number, line in enumerate(str(super().clean(value)).splitlines(), start=1):
            if not line.strip():
                continue
            name, separator, text = (part.strip() for part in line.partition("="))
            if not separator or not name:
                raise ValidationError(f"Line {number} is not a parameter: write it as name = value.")
            if name in parameters:
                raise ValidationError(f"Line {number} gives {name} a second time: keep one of them.")
            parameters[name] = as_scalar(text)
        return parameters


def parameters_as_text(parameters: Mapping[str, Any]) -> str:
    lines = [f"{name} = {value if isinstance(value, str) else json.dumps(value)}" for name, value in parameters.items()]
    return "\n".join(lines)


def show_error(form: forms.BaseForm, error: UserError) -> None:
    """Put an action's error beside the fields it names, or above the form."""
    for name, sentences in error.fields.items():
        form.add_error(name if name in form.fields else None, ValidationError(sentences))
    if not error.fields:
        form.add_error(None, error.message)


def as_scalar(text: str) -> Any:
    """Numbers, true and false as such; anything else is text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text
