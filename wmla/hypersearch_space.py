"""WMLA's descriptions of searched parameters and of experiments, as the space and the values of a study.

Pure: parsed JSON in, plain data out. A refusal names the parameter and what to send.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from core.errors import UserError
from core.parameters import Scalar
from studies.models import MAX_TRIALS

__all__ = [
    "DATA_TYPES",
    "MAX_TEXT",
    "Experiment",
    "number_in",
    "parse_experiments",
    "parse_parameters",
    "parse_plugin_parameters",
    "space_of",
]

_DOUBLE, _INT, _STR = DATA_TYPES = ("double", "int", "str")
#: Other names of the data types.
_SYNONYMS = {"float": _DOUBLE, "integer": _INT, "string": _STR}
#: Data type -> keys of its list of values. The second spelling of the texts is the right one.
_LISTS = {_DOUBLE: ("discreteDbVal",), _INT: ("discreteIntVal",), _STR: ("discreateStrVal", "discreteStrVal")}
#: Data type -> keys of its bounds.
_BOUNDS = {_DOUBLE: ("minDbVal", "maxDbVal"), _INT: ("minIntVal", "maxIntVal")}
#: Number of values of a range of powers above which its step counts as none: it is finer than a sampler distinguishes.
_MOST_POWERS = 1000
MAX_TEXT = 4096


@dataclass(frozen=True)
class Experiment:
    """An experiment of ExperimentGridSearch."""

    #: Number that answers repeat.
    id: int
    values: Mapping[str, Scalar]


def parse_parameters(given: Any) -> dict[str, Any]:
    """Return the space of `hyperParams`, in the notation of `studies.space`. Raises UserError."""
    rows = _rows(given, 'hyperParams must be a list like [{"name": "lr", "type": "Range", "dataType": "DOUBLE", ...}].')
    if not rows:
        raise UserError("hyperParams is empty: give at least one parameter to search.")
    space: dict[str, Any] = {}
    for row in rows:
        name = _name(row, "hyperParams")
        if name in space:
            raise UserError(f"hyperParams names {name[:80]!a} twice: remove one.")
        kind = str(row.get("type", "")).lower()
        if kind not in _READERS:
            raise _wrong(name, f"its type is {_shown(row.get('type'))}: use Range, Discrete or Fix")
        space[name] = _READERS[kind](name, row, _data_type(name, row))
    return space


def parse_plugin_parameters(given: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the space of `hyperParams`, and the rows as a plug-in gets them. Raises UserError.

    Plug-ins need not know steps, powers and numbers that are texts: the space has no steps, and the rows have the range
    of the values in place of one of exponents, and numbers.
    """
    parse_parameters(given)
    rows = [(row, str(row["type"]).lower()) for row in given]
    told = [_plugin_row(row["name"], row, kind) for row, kind in rows if kind != "fix"]
    fixed = [row for row, kind in rows if kind == "fix"]
    return parse_parameters([*({**row, "step": None} for row in told), *fixed]), told


def parse_experiments(given: Any) -> list[Experiment]:
    """Return the experiments in their order. Raises UserError."""
    example = '[{"id": 0, "hyperParams": [{"name": "lr", "dataType": "DOUBLE", "fixedVal": "0.1"}]}]'
    rows = _rows(given, f"experiments must be a list like {example}.")
    if not 1 <= len(rows) <= MAX_TRIALS:
        raise UserError(f"experiments has {len(rows):,} entries: send 1 to {MAX_TRIALS:,}.")
    found = [_experiment(place, row) for place, row in enumerate(rows)]
    [(most, count)] = Counter(experiment.id for experiment in found).most_common(1)
    if count > 1:
        raise UserError(f"experiments has the id {most} twice: number them differently.")
    return found


def space_of(experiments: Sequence[Experiment]) -> dict[str, list[Scalar]]:
    """Return each parameter of any experiment with its values: 1 and 1.0 are one value."""
    space: dict[str, dict[Scalar, None]] = {}
    for experiment in experiments:
        for name, value in experiment.values.items():
            space.setdefault(name, {}).setdefault(value)
    return {name: list(values) for name, values in space.items()}


def number_in(value: Any) -> float | None:
    """Return the finite number in JSON, written as a number or as a text; None: there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or (isinstance(value, str) and "_" in value):
        return None
    try:
        number = float(value) if not isinstance(value, str) or len(value) <= 50 else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _experiment(place: int, row: Mapping[str, Any]) -> Experiment:
    number = number_in(row.get("id", place))
    if number is None or number != int(number) or not 0 <= number < 2**31:
        raise UserError(f"experiments has the id {_shown(row.get('id'))}: send a whole number.")
    values: dict[str, Scalar] = {}
    for each in _rows(row.get("hyperParams"), f"Experiment {int(number)} has no list hyperParams."):
        name = _name(each, f"Experiment {int(number)}")
        if name in values:
            raise UserError(f"Experiment {int(number)} names {name[:80]!a} twice: remove one.")
        values[name] = _fixed(name, each, _data_type(name, each))
    if not values:
        raise UserError(f"Experiment {int(number)} has no parameters: list them in its hyperParams.")
    return Experiment(int(number), values)


def _range(name: str, row: Mapping[str, Any], kind: str) -> Any:
    if kind not in _BOUNDS:
        raise _wrong(name, "a text has no range: use the type Discrete with discreateStrVal")
    low, high = (_number(name, row, key) for key in _BOUNDS[kind])
    base, step = _power(name, row), _step(name, row)
    if low > high:
        raise _wrong(name, f"its range begins at {low:g} and ends at {high:g}: swap them")
    if base is not None:
        return _powers(name, base, low, high, step, kind)
    if low == high:
        return _typed(name, low, kind)
    found: dict[str, Any] = {"kind": "int" if kind == _INT else "uniform", "low": low, "high": high}
    return found if step is None else {**found, "step": step}


def _powers(name: str, base: float, low: float, high: float, step: float | None, kind: str) -> Any:
    """Return the distribution of `base ** x` for x in the range."""
    if step is not None and (high - low) / step < _MOST_POWERS:
        count = int((Decimal(repr(high)) - Decimal(repr(low))) // Decimal(repr(step))) + 1
        exponents = [float(Decimal(repr(low)) + place * Decimal(repr(step))) for place in range(count)]
        return _unique(_typed(name, _raised(name, base, each), kind) for each in exponents)
    first, last = sorted(_typed(name, _raised(name, base, each), kind) for each in (low, high))
    if first == last:
        return first
    return {"kind": "log_int" if kind == _INT else "log_uniform", "low": first, "high": last}


def _plugin_row(name: str, row: Mapping[str, Any], kind: str) -> dict[str, Any]:
    data_type = _data_type(name, row)
    told = {**row, "type": kind.capitalize(), "dataType": data_type.upper()}
    if kind == "discrete":
        return {**told, **dict.fromkeys(_LISTS[data_type], _discrete(name, row, data_type))}
    base = _power(name, row)
    bounds = [_number(name, row, key) for key in _BOUNDS[data_type]]
    if base is not None:
        bounds = sorted(_raised(name, base, each) for each in bounds)
    values = [_typed(name, each, data_type) for each in bounds]
    step = _step(name, row) if base is None else None
    return {**told, **dict(zip(_BOUNDS[data_type], values, strict=True)), "step": step, "power": None}


def _discrete(name: str, row: Mapping[str, Any], kind: str) -> list[Scalar]:
    values = next((row[key] for key in _LISTS[kind] if row.get(key)), None)
    if not isinstance(values, list):
        raise _wrong(name, f"it has no values: list them in {_LISTS[kind][0]}")
    # WMLA reads `power` and `step` of ranges only.
    return _unique(_typed(name, value, kind) for value in values)


def _fixed(name: str, row: Mapping[str, Any], kind: str) -> Scalar:
    if row.get("fixedVal") is None:
        raise _wrong(name, "it has no value: send fixedVal")
    value: Scalar = _typed(name, row["fixedVal"], kind)
    return value


_READERS: Mapping[str, Callable[[str, Mapping[str, Any], str], Any]] = {
    "range": _range,
    "discrete": _discrete,
    "fix": _fixed,
}


def _typed(name: str, value: Any, kind: str) -> Any:
    """Return the value in this data type."""
    if kind == _STR:
        if isinstance(value, dict | list) or len(str(value)) > MAX_TEXT:
            raise _wrong(name, "a text of at most 4096 characters is expected")
        return str(value)
    number = number_in(value)
    if number is None:
        raise _wrong(name, f"{_shown(value)} is not a finite number")
    if kind == _DOUBLE:
        return number
    if abs(number - round(number)) > 1e-9 * max(1.0, abs(number)):
        raise _wrong(name, f"{_shown(value)} is not a whole number, as its dataType INT requires")
    return round(number)


def _raised(name: str, base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        raise _wrong(name, f"{base:g} to the power of {exponent:g} is too large") from None


def _power(name: str, row: Mapping[str, Any]) -> float | None:
    """Return the base of the powers; None for the values themselves, which clients write as 0, too."""
    if row.get("power") in (None, "", 0, "0"):
        return None
    base = number_in(row["power"])
    if base is None or base <= 0 or base == 1:
        raise _wrong(name, f"its power is {_shown(row['power'])}: send the base of the powers, such as 10")
    return base


def _step(name: str, row: Mapping[str, Any]) -> float | None:
    if row.get("step") in (None, "", 0, "0"):
        return None
    step = number_in(row["step"])
    if step is None or step < 0:
        raise _wrong(name, f"its step is {_shown(row['step'])}: send a number above 0, or none")
    return step or None


def _number(name: str, row: Mapping[str, Any], key: str) -> float:
    number = number_in(row.get(key, 0))
    if number is None:
        raise _wrong(name, f"{key} is {_shown(row.get(key))}: send a finite number")
    return number


def _data_type(name: str, row: Mapping[str, Any]) -> str:
    given = str(row.get("dataType", "")).lower()
    kind = _SYNONYMS.get(given, given)
    if kind not in DATA_TYPES:
        raise _wrong(name, f"its dataType is {_shown(row.get('dataType'))}: use DOUBLE, INT or STR")
    return kind


def _name(row: Mapping[str, Any], where: str) -> str:
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"{where} has a parameter without a name: give each one its name.")
    return name


def _rows(given: Any, sentence: str) -> list[Mapping[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        raise UserError(sentence)
    return given


def _unique(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


def _wrong(name: str, sentence: str) -> UserError:
    return UserError(f"Parameter {name[:80]!a}: {sentence}.")


def _shown(value: Any) -> str:
    return "missing" if value is None else ascii(value)[:80]
