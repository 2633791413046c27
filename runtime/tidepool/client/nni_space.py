"""Search spaces of NNI in the notation of the REST API.

    {"lr": {"_type": "loguniform", "_value": [0.0001, 0.1]}} -> {"lr": {"kind": "log_uniform", "low": 0.0001, ...}}

NNI draws a number and rounds it to a multiple of `q`; the ends of a range then get what is rounded to them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidepool.client.errors import InvalidRequest

__all__ = ["TYPES", "space_of_nni"]


class _Misfit(ValueError):
    """The sentence about a parameter, without its name."""


def space_of_nni(given: object) -> dict[str, Any]:
    """Return the space for the REST API. Raises InvalidRequest for the first parameter that has no counterpart."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidRequest(
            'The search space has no parameter: write it as {"lr": {"_type": "loguniform", "_value": [0.0001, 0.1]}}.'
        )
    space = {}
    for name, each in given.items():
        try:
            space[str(name)] = _parameter(each)
        except _Misfit as misfit:
            raise InvalidRequest(f"`{name}` of the search space: {misfit}") from None
    return space


def _parameter(given: object) -> Any:
    if not isinstance(given, Mapping) or "_type" not in given or "_value" not in given:
        raise _Misfit("it needs `_type` and `_value`, such as choice and [32, 64].")
    kind, values = given["_type"], given["_value"]
    if kind not in TYPES:
        raise _Misfit(f"its `_type` is {kind!r}: use one of {', '.join(TYPES)}.")
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise _Misfit("its `_value` must be a list.")
    return TYPES[kind](list(values))


def _choice(values: list[Any]) -> Any:
    if any(isinstance(value, Mapping) for value in values):
        raise _Misfit(
            "a nested choice, with a search space in each of its values, is not supported: list names, and make each "
            "inner parameter one of the whole space."
        )
    if any(not isinstance(value, str | int | float) for value in values):
        raise _Misfit("its values must be texts, numbers, true or false.")
    return values


def _randint(values: list[Any]) -> Any:
    # The upper bound is excluded.
    low, high = (math.ceil(each) for each in _numbers(values, "lower", "upper"))
    if high <= low:
        raise _Misfit(f"there is no whole number from {low} to below {high}.")
    return low if high == low + 1 else {"kind": "int", "low": low, "high": high - 1}


def _uniform(kind: str) -> Callable[[list[Any]], Any]:
    def convert(values: list[Any]) -> Any:
        low, high = _numbers(values, "low", "high")
        return low if low == high else {"kind": kind, "low": low, "high": high}

    return convert


def _rounded_uniform(kind: str) -> Callable[[list[Any]], Any]:
    def convert(values: list[Any]) -> Any:
        low, high, step = _numbers(values, "low", "high", "q")
        return low if low == high else {"kind": kind, "low": low, "high": high, "round_to": step}

    return convert


def _normal(kind: str) -> Callable[[list[Any]], Any]:
    def convert(values: list[Any]) -> Any:
        mean, deviation = _numbers(values, "mu", "sigma")
        return {"kind": kind, "mean": mean, "deviation": deviation}

    return convert


def _rounded_normal(kind: str) -> Callable[[list[Any]], Any]:
    def convert(values: list[Any]) -> Any:
        mean, deviation, step = _numbers(values, "mu", "sigma", "q")
        return {"kind": kind, "mean": mean, "deviation": deviation, "step": step}

    return convert


def _numbers(values: list[Any], *names: str) -> list[float]:
    if len(values) != len(names):
        raise _Misfit(f"its `_value` must be [{', '.join(names)}].")
    return [_number(value, name) for value, name in zip(values, names, strict=True)]


def _number(value: Any, name: str) -> float:
    """Return the number. YAML reads 1e-4, without a point, as a text."""
    try:
        if isinstance(value, bool):
            raise ValueError
        number = value if isinstance(value, int) else float(value)
        if not math.isfinite(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise _Misfit(f"`{name}` is {value!r}, and must be a number.") from None
    return number


#: Name in NNI -> conversion of its list of values.
TYPES: Mapping[str, Callable[[list[Any]], Any]] = {
    "choice": _choice,
    "randint": _randint,
    "uniform": _uniform("uniform"),
    "quniform": _rounded_uniform("uniform"),
    "loguniform": _uniform("log_uniform"),
    "qloguniform": _rounded_uniform("log_uniform"),
    "normal": _normal("normal"),
    "qnormal": _rounded_normal("normal"),
    "lognormal": _normal("log_normal"),
    "qlognormal": _rounded_normal("log_normal"),
}
