"""Search spaces: the parameters that a study varies, their notation in JSON, and the points of a grid.

    {"lr": {"kind": "log_uniform", "low": 0.0001, "high": 0.1}, "width": [32, 64, 128], "epochs": 5}

A list is a choice, a scalar is the same in every trial. Parameters are in the order of their names, because a column of
JSON may return them in any order, and samplers and grids depend on it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeGuard

from core.errors import UserError, field_error
from core.parameters import Scalar, checked_parameters

__all__ = [
    "Choice",
    "Constant",
    "Distribution",
    "Normal",
    "Space",
    "Uniform",
    "checked_point",
    "grid_point",
    "grid_size",
    "parse_space",
    "some_point",
    "space_as_json",
    "varied",
]

#: Number of deviations from the mean within which a normal parameter stays.
DEVIATIONS = 4
#: Largest absolute value of a parameter, as for every parameter of a training.
_LARGEST = 2**53
#: Smallest beginning of a logarithmic range: below it, floating-point numbers lose digits.
_SMALLEST_LOG = 1e-300
_MOST_VALUES = 1000
_MOST_STEPS = 10**9
#: Smallest width of a range, and smallest step, as parts of its largest value: floating-point numbers have 16 digits.
_NARROWEST = 1e-9
_FINEST_STEP = 1e-12

_EXAMPLE = '{"lr": {"kind": "log_uniform", "low": 0.0001, "high": 0.1}, "width": [32, 64]}'
#: Kind of a range -> (log, whole).
_RANGES = {
    "uniform": (False, False),
    "log_uniform": (True, False),
    "int": (False, True),
    "log_int": (True, True),
}
_NORMALS = {"normal": False, "log_normal": True}
_KINDS = (*_RANGES, "choice", *_NORMALS)


@dataclass(frozen=True)
class Uniform:
    """Numbers from `low` to `high`, both included. With a step: `low`, `low + step`, and so on."""

    low: float
    high: float
    #: Whether each order of magnitude is equally likely.
    log: bool = False
    step: float | None = None
    #: Whether the values are integers.
    whole: bool = False
    #: Numbers are rounded to multiples of this; those beyond an end count as the end. None: they are not rounded.
    round_to: float | None = None

    @property
    def spacing(self) -> float | None:
        """Return the distance between neighbouring values, or None for a continuous range."""
        return 1 if self.whole and self.step is None else self.step

    @property
    def size(self) -> int | None:
        """Return the number of values, or None for a continuous range."""
        if self.round_to is not None:
            first, last = _multiples(self.low, self.high, self.round_to)
            return last - first + 1
        if self.spacing is None:
            return None
        return int((_exact(self.high) - _exact(self.low)) // _exact(self.spacing)) + 1

    def at(self, index: int) -> Scalar:
        """Return the value at this index of a range that is not continuous."""
        if self.round_to is not None:
            first, _ = _multiples(self.low, self.high, self.round_to)
            return min(max(float((first + index) * _exact(self.round_to)), self.low), self.high)
        assert self.spacing is not None
        value = _exact(self.low) + index * _exact(self.spacing)
        return int(value) if self.whole else float(value)

    def nearest(self, number: float) -> Scalar:
        """Return the value of the range that is nearest to the number."""
        number = min(max(number, self.low), self.high)
        if self.round_to is not None and self.size is not None:
            first, _ = _multiples(self.low, self.high, self.round_to)
            return self.at(min(max(round(number / self.round_to) - first, 0), self.size - 1))
        if self.spacing is None or self.size is None:
            return number
        return self.at(min(max(round((number - self.low) / self.spacing), 0), self.size - 1))

    def contains(self, value: object) -> bool:
        if not _is_number(value) or not self.low <= value <= self.high:
            return False
        distance = self.round_to or self.spacing
        return distance is None or abs(float(self.nearest(value)) - value) <= 1e-6 * distance

    def __str__(self) -> str:
        each = f" in steps of {_shown(self.step)}" if self.step is not None else ""
        if self.round_to is not None:
            each = f" in multiples of {_shown(self.round_to)}"
        return f"the {'whole numbers' if self.whole else 'range'} from {_shown(self.low)} to {_shown(self.high)}{each}"


@dataclass(frozen=True)
class Normal:
    """Normally distributed numbers, rounded to multiples of the step. `log`: their logarithms are so distributed.

    Values lie within four deviations of the mean.
    """

    mean: float
    deviation: float
    log: bool = False
    step: float | None = None

    @property
    def low(self) -> float:
        return self.value_at(-DEVIATIONS) if self.step is None else float(self.at(0))

    @property
    def high(self) -> float:
        return self.value_at(DEVIATIONS) if self.step is None else float(self.at((self.size or 0) - 1))

    @property
    def size(self) -> int | None:
        """Return the number of values, or None if there is no step."""
        if self.step is None:
            return None
        first, last = self._multiples
        return last - first + 1

    @property
    def _multiples(self) -> tuple[int, int]:
        """Return the smallest and the largest value, in steps."""
        assert self.step is not None
        return _multiples(self.value_at(-DEVIATIONS), self.value_at(DEVIATIONS), self.step)

    def value_at(self, deviations: float) -> float:
        """Return the number that is so many deviations from the mean."""
        number = self.mean + deviations * self.deviation
        return math.exp(number) if self.log else number

    def deviations_of(self, value: float) -> float:
        """Return the distance of the value from the mean, in deviations."""
        if self.log and value <= 0:  # a small number that was rounded
            return -DEVIATIONS
        number = math.log(value) if self.log else value
        return (number - self.mean) / self.deviation

    def at(self, index: int) -> Scalar:
        """Return the value at this index of a distribution that has a step."""
        assert self.step is not None
        return float((self._multiples[0] + index) * _exact(self.step))

    def nearest(self, number: float) -> Scalar:
        """Return the value of the distribution that is nearest to the number."""
        if self.step is None or self.size is None:
            return min(max(number, self.low), self.high)
        return self.at(min(max(round(number / self.step) - self._multiples[0], 0), self.size - 1))

    def contains(self, value: object) -> bool:
        if not _is_number(value) or not self.low <= value <= self.high:
            return False
        return self.step is None or abs(float(self.nearest(value)) - value) <= 1e-6 * self.step

    def __str__(self) -> str:
        each = f" in steps of {_shown(self.step)}" if self.step is not None else ""
        return f"the range from {_shown(self.low)} to {_shown(self.high)}{each}"


@dataclass(frozen=True)
class Choice:
    """One of these values."""

    values: tuple[Scalar, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    def at(self, index: int) -> Scalar:
        return self.values[index]

    def contains(self, value: object) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return "the list of its values"


@dataclass(frozen=True)
class Constant:
    """The same value in every trial."""

    value: Scalar

    @property
    def size(self) -> int:
        return 1

    def at(self, index: int) -> Scalar:
        return self.value

    def contains(self, value: object) -> bool:
        return value == self.value

    def __str__(self) -> str:
        return f"the constant {self.value}"


Distribution = Uniform | Normal | Choice | Constant
Space = Mapping[str, Distribution]


class _Misfit(ValueError):
    """The sentence about a parameter, without its name."""


def parse_space(given: object, *, field: str = "space") -> Space:
    """Return the space, in the order of names. Raises UserError for the first invalid parameter."""
    if not isinstance(given, Mapping):
        raise field_error(field, f"Give the space as an object, such as {_EXAMPLE}.")
    if not given:
        raise field_error(field, f"The space has no parameter: give at least one, as in {_EXAMPLE}.")
    checked_parameters(dict.fromkeys(given, 0), field=field)
    space: dict[str, Distribution] = {}
    for name in sorted(given):
        try:
            space[name] = _distribution(name, given[name])
        except _Misfit as misfit:
            raise field_error(field, f"`{name}`: {misfit}") from None
        except UserError as error:
            raise field_error(field, error.message) from None
    return space


def space_as_json(space: Space) -> dict[str, Any]:
    """Return the space in the notation that `parse_space` reads."""
    return {name: _as_json(space[name]) for name in sorted(space)}


def some_point(space: Space) -> dict[str, Scalar]:
    """Return a point of the space, for checks: the first value of each parameter."""
    return {name: each.low if isinstance(each, Uniform | Normal) else each.at(0) for name, each in space.items()}


def varied(space: Space) -> list[str]:
    """Return the names of the parameters that are not constant, in their order."""
    return [name for name in sorted(space) if not isinstance(space[name], Constant)]


def checked_point(space: Space, given: object, *, field: str = "values") -> dict[str, Scalar]:
    """Return the values of a trial that a user wants tried. Constants may be left out. Raises UserError."""
    values = {name: each.value for name, each in space.items() if isinstance(each, Constant)}
    values |= checked_parameters(given, field=field)
    for name in sorted(values.keys() | space.keys()):
        if name not in space:
            raise field_error(field, f"`{name}` is not a parameter of this study: leave it out.")
        if name not in values:
            raise field_error(field, f"`{name}` has no value: give one from {space[name]}.")
        if not space[name].contains(values[name]):
            raise field_error(field, f"`{name}`: {str(values[name])[:80]!a} is not in {space[name]}.")
    return {name: _as_proposed(space[name], values[name]) for name in sorted(space)}


def grid_size(space: Space) -> int | None:
    """Return the number of points of the grid, or None if a continuous parameter makes them infinite."""
    sizes = [each.size for each in space.values()]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def grid_point(space: Space, n: int) -> dict[str, Scalar]:
    """Return the nth point of the grid, counted from 0; the last parameter changes first."""
    point: dict[str, Scalar] = {}
    for name in sorted(space, reverse=True):
        size = space[name].size
        assert size is not None, f"{name} is continuous"
        n, index = divmod(n, size)
        point[name] = space[name].at(index)
    assert n == 0, "the grid has fewer points"
    return {name: point[name] for name in sorted(space)}


def _distribution(name: str, given: object) -> Distribution:
    if isinstance(given, list | tuple):
        return _choice(name, given)
    if not isinstance(given, Mapping):
        return Constant(checked_parameters({name: given})[name])
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _Misfit(f"give its `kind`, one of {', '.join(_KINDS)}.")
    if kind == "choice":
        _check_keys(given, kind, needed=("values",))
        return _choice(name, given["values"])
    return _uniform(given, kind) if kind in _RANGES else _normal(given, kind)


def _choice(name: str, values: object) -> Choice:
    if not isinstance(values, list | tuple) or not values:
        raise _Misfit("list at least one value, such as [32, 64].")
    if len(values) > _MOST_VALUES:
        raise _Misfit(f"it lists {len(values):,} values: use at most {_MOST_VALUES:,}, or a range.")
    seen: set[Scalar] = set()
    for value in values:
        checked_parameters({name: value})
        # 1, 1.0 and true are equal, and samplers could not tell them apart.
        if value in seen:
            raise _Misfit(f"{str(value)[:80]!a} is listed twice: remove one.")
        seen.add(value)
    return Choice(tuple(values))


def _uniform(given: Mapping[Any, Any], kind: str) -> Uniform:
    log, whole = _RANGES[kind]
    _check_keys(given, kind, needed=("low", "high"), optional=("step",) if whole else ("step", "round_to"))
    low, high = (_number(given, key, whole=whole) for key in ("low", "high"))
    step, round_to = _step(given, whole=whole), _step(given, "round_to")
    if step is not None and round_to is not None:
        raise _Misfit("give `step` or `round_to`, not both.")
    if low > high:
        raise _Misfit(f"`low`, {_shown(low)}, is above `high`, {_shown(high)}: swap them.")
    if low == high:
        raise _Misfit(f"the range begins and ends at {_shown(low)}: write {_shown(low)} instead of the range.")
    if log:
        _check_log(low)
    if step is not None and step > high - low:
        raise _Misfit(f"the step, {_shown(step)}, is larger than the range from {_shown(low)} to {_shown(high)}.")
    _check_width(low, high, log=log, whole=whole)
    _check_steps(low, high, step or round_to)
    uniform = Uniform(low, high, log=log, step=step, whole=whole, round_to=round_to)
    if round_to is not None and (uniform.size or 0) < 2:
        raise _Misfit(f"all numbers from {_shown(low)} to {_shown(high)} are rounded to the same value.")
    return uniform


def _normal(given: Mapping[Any, Any], kind: str) -> Normal:
    _check_keys(given, kind, needed=("mean", "deviation"), optional=("step",))
    mean, deviation = (_number(given, key) for key in ("mean", "deviation"))
    if deviation <= 0:
        raise _Misfit("the deviation must be above 0.")
    log = _NORMALS[kind]
    extent = abs(mean) + DEVIATIONS * deviation
    if extent > (math.log(_LARGEST) if log else _LARGEST):
        what = "logarithm" if log else "value"
        raise _Misfit(f"its {what} reaches {_shown(extent)}: choose a smaller mean or deviation.")
    step = _step(given)
    normal = Normal(mean, deviation, log=log, step=step)
    if deviation < _NARROWEST * (1 if log else abs(mean)):
        raise _Misfit("the deviation is too small beside the mean: write a constant instead.")
    _check_steps(normal.low, normal.high, step)
    if step is not None and (normal.size or 0) < 2:
        raise _Misfit(f"the step, {_shown(step)}, is too large: all values are the same multiple of it.")
    return normal


def _check_log(low: float) -> None:
    if low <= 0:
        raise _Misfit("a logarithmic range begins above 0.")
    if low < _SMALLEST_LOG:
        raise _Misfit(f"a logarithmic range begins at {_SMALLEST_LOG:g} or above.")


def _step(given: Mapping[Any, Any], key: str = "step", *, whole: bool = False) -> float | None:
    if given.get(key) is None:
        return None
    step = _number(given, key, whole=whole)
    if step <= 0:
        name = "the step" if key == "step" else f"`{key}`"
        raise _Misfit(f"{name} must be above 0; leave it out for a continuous range.")
    return step


def _multiples(low: float, high: float, distance: float) -> tuple[int, int]:
    """Return the multiples of the distance to which the numbers of a range are rounded: the first and the last."""
    first, last = _exact(low) / _exact(distance), _exact(high) / _exact(distance)
    half = Decimal("0.5")
    return math.floor(first + half), math.ceil(last - half)


def _check_width(low: float, high: float, *, log: bool, whole: bool) -> None:
    """Refuse a range in which a sampler's arithmetic would not tell the numbers apart."""
    is_wide = high / low > 1 + _NARROWEST if log else whole or high - low > _NARROWEST * max(abs(low), abs(high))
    if not is_wide:
        raise _Misfit(f"the range from {_shown(low)} to {_shown(high)} is too narrow: write a constant instead.")


def _check_steps(low: float, high: float, step: float | None) -> None:
    if step is None:
        return
    if (high - low) / step > _MOST_STEPS or step < _FINEST_STEP * max(abs(low), abs(high)):
        raise _Misfit(f"the step, {_shown(step)}, is too small for the range: leave it out.")


def _number(given: Mapping[Any, Any], key: str, *, whole: bool = False) -> float:
    value = given[key]
    if not _is_number(value) or not abs(value) <= _LARGEST:
        raise _Misfit(f"`{key}` must be a finite number of at most 9e15.")
    if whole and value != int(value):
        raise _Misfit(f"`{key}` must be a whole number, not {_shown(value)}.")
    return int(value) if whole else float(value)


def _check_keys(
    given: Mapping[Any, Any], kind: str, *, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    for key in given:
        if key not in ("kind", *needed, *optional):
            known = ", ".join(f"`{one}`" for one in (*needed, *optional))
            raise _Misfit(f"{str(key)[:80]!a} is not known; the kind {kind} has {known}.")
    for key in needed:
        if key not in given:
            raise _Misfit(f"the kind {kind} needs `{key}`.")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(number: float) -> str:
    return f"{number:.12g}"


def _exact(number: float) -> Decimal:
    """Return the number as it is written: three steps of 0.1 are 0.3, which sums of binary fractions miss."""
    return Decimal(repr(number))


def _as_proposed(distribution: Distribution, value: Scalar) -> Scalar:
    """Return the value in the type that a sampler would propose, such as 64 for 64.0 in whole numbers."""
    if isinstance(distribution, Choice):
        return distribution.values[distribution.values.index(value)]
    return value if isinstance(distribution, Constant) else distribution.nearest(float(value))


def _as_json(distribution: Distribution) -> Any:
    if isinstance(distribution, Constant):
        return distribution.value
    if isinstance(distribution, Choice):
        return list(distribution.values)
    step = {} if distribution.step is None else {"step": distribution.step}
    if isinstance(distribution, Normal):
        kind = "log_normal" if distribution.log else "normal"
        return {"kind": kind, "mean": distribution.mean, "deviation": distribution.deviation} | step
    if distribution.round_to is not None:
        step = {"round_to": distribution.round_to}
    kinds = {flags: kind for kind, flags in _RANGES.items()}
    kind = kinds[distribution.log, distribution.whole]
    return {"kind": kind, "low": distribution.low, "high": distribution.high} | step
