"""Parameters of models and jobs, which reach the script as `--name value`, and their text in forms."""

import json
import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from core.errors import field_error
from core.text import is_storable

__all__ = ["ParametersField", "Scalar", "as_scalar", "checked_parameters", "kind_of", "misfits", "parameters_as_text"]

Scalar = str | int | float | bool

#: Name of a parameter; the dot is for libraries that read `--optimizer.lr`.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_MAX_PARAMETERS = 100
_MAX_TEXT = 4096
#: Largest whole number that JSON and every database store exactly.
_MAX_WHOLE = 2**53


def checked_parameters(parameters: Any, *, field: str = "parameters") -> dict[str, Scalar]:
    """Return the parameters. Raises UserError for the first invalid one."""
    if not isinstance(parameters, Mapping):
        raise field_error(field, 'Give the parameters as an object, such as {"epochs": 5}.')
    if len(parameters) > _MAX_PARAMETERS:
        raise field_error(field, f"There are {len(parameters)} parameters: use at most {_MAX_PARAMETERS}.")
    for name, value in parameters.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise field_error(
                field,
                f"{str(name)[:80]!a} is not a valid parameter name: start with a letter; use letters, digits, '-', "
                "'_' and '.'.",
            )
        if not _is_scalar(value):
            raise field_error(field, f"The parameter {name} must be a short text, a finite number, true or false.")
    return dict(parameters)


def kind_of(default: Scalar) -> str:
    """Return the kind of a parameter with this declared value: "flag", "number" or "text"."""
    if isinstance(default, bool):
        return "flag"
    return "number" if isinstance(default, int | float) else "text"


def misfits(parameters: Mapping[str, Any], declared: Mapping[str, Scalar]) -> dict[str, str]:
    """Return name -> sentence for each value of another kind than the declared one. Text accepts any value."""
    wanted = {"flag": "true or false", "number": "a number"}
    found = {}
    for name, value in parameters.items():
        kind = kind_of(declared[name]) if name in declared else "text"
        if kind != "text" and kind_of(value) != kind:
            found[name] = f"The parameter {name} must be {wanted[kind]}, such as {json.dumps(declared[name])}."
    return found


class ParametersField(forms.CharField):
    """Form field with one parameter per line, such as `epochs = 5`. Numbers, true and false are converted."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "font-monospace"})

    def clean(self, value: Any) -> dict[str, Any]:
        return {name: as_scalar(text) for name, text in self.lines(value, "a parameter").items()}

    def lines(self, value: Any, what: str) -> dict[str, str]:
        """Return name -> text of each line."""
        parameters: dict[str, str] = {}
        for number, line in enumerate(str(super().clean(value)).splitlines(), start=1):
            if not line.strip():
                continue
            name, separator, text = (part.strip() for part in line.partition("="))
            if not separator or not name:
                raise ValidationError(f"Line {number} is not {what}: write it as name = value.")
            if name in parameters:
                raise ValidationError(f"Line {number} sets {name} a second time: remove one of the lines.")
            parameters[name] = text
        return parameters


def parameters_as_text(parameters: Mapping[str, Any]) -> str:
    lines = [f"{name} = {value if isinstance(value, str) else json.dumps(value)}" for name, value in parameters.items()]
    return "\n".join(lines)


def as_scalar(text: str) -> Any:
    """Return the text as a number, true or false if it is one; otherwise the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str | int | float | bool) else text


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        # The text becomes an argument of a process, which NUL would end; a lone surrogate cannot be stored.
        return len(value) <= _MAX_TEXT and is_storable(value)
    if isinstance(value, bool):
        return True
    # False for NaN. `math.isfinite` raises OverflowError for an integer of 400 digits.
    return isinstance(value, int | float) and abs(value) <= _MAX_WHOLE
