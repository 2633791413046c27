"""Parameters of a model or a job: each reaches the script as `--name value`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from core.errors import field_error
from core.references import is_storable

__all__ = ["Scalar", "checked_parameters", "kind_of", "misfits"]

Scalar = str | int | float | bool

#: With a point, as in `--optimizer.lr`, which some libraries read.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_MAX_PARAMETERS = 100
_MAX_TEXT = 4096
#: JSON and every database keep these whole numbers exactly.
_MAX_WHOLE = 2**53


def checked_parameters(parameters: Any, *, field: str = "parameters") -> dict[str, Scalar]:
    """The parameters, or an error that names the first one that does not fit."""
    if not isinstance(parameters, Mapping):
        raise field_error(field, 'Give the parameters as an object, such as {"epochs": 5}.')
    if len(parameters) > _MAX_PARAMETERS:
        raise field_error(field, f"There are {len(parameters)} parameters: give at most {_MAX_PARAMETERS}.")
    for name, value in parameters.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise field_error(
                field,
                f"{str(name)[:80]!a} is no parameter name: begin with a letter; use letters, digits, '-', '_' and '.'.",
            )
        if not _is_scalar(value):
            raise field_error(field, f"The parameter {name} must be a short text, a finite number, true or false.")
    return dict(parameters)


def kind_of(default: Scalar) -> str:
    """The kind of a parameter, by the value that a model declares for it: "flag", "number" or "text"."""
    if isinstance(default, bool):
        return "flag"
    return "number" if isinstance(default, int | float) else "text"


def misfits(parameters: Mapping[str, Any], declared: Mapping[str, Scalar]) -> dict[str, str]:
    """Name -> a sentence, for each value of another kind than the declared one. As text, anything goes."""
    wanted = {"flag": "true or false", "number": "a number"}
    found = {}
    for name, value in parameters.items():
        kind = kind_of(declared[name]) if name in declared else "text"
        if kind != "text" and kind_of(value) != kind:
            found[name] = f"The parameter {name} is {wanted[kind]}, such as {json.dumps(declared[name])}."
    return found


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        # It becomes an argument of a process: NUL would end it, and a lone surrogate cannot be stored.
        return len(value) <= _MAX_TEXT and is_storable(value)
    if isinstance(value, bool):
        return True
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _MAX_WHOLE
