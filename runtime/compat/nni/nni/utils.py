"""NNI's `merge_parameter`, with which scripts put the values of a trial over their arguments."""

from collections.abc import Mapping
from typing import Any

from nni import _absent

__all__ = ["merge_parameter"]


def merge_parameter(base_params: Any, override_params: Mapping[str, Any] | None) -> Any:
    """Put the values into the dict or namespace, and return it.

    Raises ValueError for a value that it lacks, or has with another type; a whole number may become a float.
    """
    for name, value in (override_params or {}).items():
        fitting = _fitting(name, _old(base_params, name), value)
        if isinstance(base_params, dict):
            base_params[name] = fitting
        else:
            setattr(base_params, name, fitting)
    return base_params


def _old(base: Any, name: str) -> Any:
    try:
        return base[name] if isinstance(base, dict) else getattr(base, name)
    except (KeyError, AttributeError):
        raise ValueError(
            f"The parameter {name!r} is not among those of the script: add it, or remove it from the space."
        ) from None


def _fitting(name: str, old: Any, value: Any) -> Any:
    if old is None or isinstance(value, type(old)):
        return value
    if isinstance(old, float) and isinstance(value, int):
        return float(value)
    raise ValueError(
        f"The parameter {name!r} is {value!r}, and the script expects a value of the type {type(old).__name__}."
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'nni.utils' has no attribute {name!r}")
    raise AttributeError(_absent.sentence(f"nni.utils.{name}"))
