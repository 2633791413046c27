"""Parameters of WMLA's instance groups: names, meaning in Tidepool, and parsing of parameter lines.

`SPARK_EGO_X_Y` has a lower-case twin, `spark.ego.x.y`; both are accepted. A parameter either sets a term of the group
or has no effect, with a known reason. Any other name is an error, because it may be misspelt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

__all__ = [
    "PARAMETERS",
    "Given",
    "Parameter",
    "ParameterError",
    "known_values",
    "matches",
    "of_field",
    "read_lines",
    "read_values",
    "twin",
]


class ParameterError(ValueError):
    """A parameter is unknown or invalid; the message names it."""


@dataclass(frozen=True)
class Parameter:
    name: str
    #: Name of the term that it sets, within a sentence; or the reason why it sets none.
    words: str
    #: Column of InstanceGroup that it sets, or "".
    field: str = ""
    #: Valid values; empty: a number.
    choices: tuple[str, ...] = ()

    @property
    def has_effect(self) -> bool:
        return bool(self.field)

    @property
    def twin(self) -> str:
        """Return the name in lower case, with dots."""
        return twin(self.name)


@dataclass(frozen=True)
class Given:
    """Parsed parameters."""

    #: Column of InstanceGroup -> value.
    terms: dict[str, Any]
    #: Parameters without effect, as written, in order.
    without_effect: tuple[tuple[str, Parameter], ...]

    @property
    def sentences(self) -> list[str]:
        return [f"{name} has no effect here: {parameter.words}" for name, parameter in self.without_effect]


_TRUTH = ("true", "false")
_SLOT_PER_RANK = "each rank of a training has exactly one GPU."
_RELEASED_AT_ONCE = "GPUs that a training does not use are released at once."
_PAGED_LISTS = "lists of any length are read page by page."

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        "SPARK_EGO_APP_SCHEDULE_POLICY", "the policy", "policy", ("fairshare", "priority", "fifo", "goodput")
    ),
    Parameter("SPARK_EGO_ENABLE_PREEMPTION", "preemption", "preemption", _TRUTH),
    Parameter("SPARK_EGO_RECLAIM_GRACE_PERIOD", "the reclaim grace in seconds", "reclaim_grace_seconds"),
    Parameter("SPARK_EGO_PRIORITY", "the default priority of trainings", "default_priority"),
    Parameter("SPARK_EGO_SLOTS_MAX", "each training sets its own maximum number of GPUs."),
    Parameter("SPARK_EGO_SLOTS_REQUIRED", "each training sets its own minimum number of GPUs."),
    Parameter("SPARK_EGO_SLOT_REQUIRED_TIMEOUT", "a training waits for GPUs until it is stopped."),
    Parameter("SPARK_EGO_EXECUTOR_SLOTS_MAX", _SLOT_PER_RANK),
    Parameter("SPARK_EGO_EXECUTOR_SLOTS_RESERVE", _SLOT_PER_RANK),
    Parameter("SPARK_EGO_GPU_EXECUTOR_SLOTS_MAX", _SLOT_PER_RANK),
    Parameter("SPARK_EGO_GPU_EXECUTOR_SLOTS_RESERVE", _SLOT_PER_RANK),
    Parameter("SPARK_EGO_SLOTS_PER_TASK", _SLOT_PER_RANK),
    Parameter("SPARK_EGO_AUTOSCALE_GPU_SLOTS_PER_TASK", _SLOT_PER_RANK),
    Parameter("SPARK_EGO_EXECUTOR_IDLE_TIMEOUT", _RELEASED_AT_ONCE),
    Parameter("SPARK_EGO_FREE_SLOTS_IDLE_TIMEOUT", _RELEASED_AT_ONCE),
    Parameter("SPARK_EGO_CONF_DIR_EXTRA", "Spark is not used."),
    Parameter("SPARK_EGO_AUTH_MODE", "users log in to the site, and scripts use its tokens."),
    Parameter("SPARK_EGO_IMPERSONATION", "the execution user has no effect."),
    Parameter("SPARK_EGO_APP_MAX_IN_CACHE", _PAGED_LISTS),
    Parameter("SPARK_EGO_APPS_MAX_RESULTS_NUM", _PAGED_LISTS),
    Parameter("SPARK_EGO_APPS_MAX_SEARCH_NUM", _PAGED_LISTS),
    Parameter("JAVA_HOME", "Java is not used."),
)  # fmt: skip


def twin(name: str) -> str:
    """Return the name in lower case, with dots."""
    return name.lower().replace("_", ".")


#: Alternative spellings that cannot be derived from the name.
_OTHER_SPELLINGS = {"egoSlotRequiredTimeout": "SPARK_EGO_SLOT_REQUIRED_TIMEOUT"}
_BY_NAME = {
    **{parameter.name: parameter for parameter in PARAMETERS},
    **{twin(parameter.name): parameter for parameter in PARAMETERS if parameter.name.startswith("SPARK_EGO_")},
}
_BY_NAME |= {spelling: _BY_NAME[name] for spelling, name in _OTHER_SPELLINGS.items()}


def of_field(field: str) -> Parameter | None:
    """Return the parameter that sets this column."""
    return next((parameter for parameter in PARAMETERS if parameter.field == field), None)


def read_lines(text: str) -> Given:
    """Parse lines of the form `NAME=value`; empty lines and comments (#) are skipped."""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, sign, value = (part.strip() for part in line.partition("="))
        if not sign or not name:
            raise ParameterError(f"Line {number} is not a parameter: write it as NAME=value.")
        if name in values:
            raise ParameterError(f"Line {number} sets {_shown(name)} again: keep one of the lines.")
        values[name] = value.strip("\"'")
    return read_values(values)


def known_values(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the values whose names are known, and the names of the others."""
    known = {name: text for name, text in values.items() if name in _BY_NAME}
    return known, [name for name in values if name not in known]


def read_values(values: Mapping[str, str]) -> Given:
    terms: dict[str, Any] = {}
    without_effect: list[tuple[str, Parameter]] = []
    for name, text in values.items():
        parameter = _BY_NAME.get(name)
        if parameter is None:
            near = get_close_matches(name.upper().replace(".", "_"), [known.name for known in PARAMETERS], n=1)
            advice = f"did you mean {near[0]}?" if near else "see the list of parameters under Configuration."
            raise ParameterError(f"Parameter {_shown(name)} is not known: {advice}")
        if not parameter.has_effect:
            without_effect.append((name, parameter))
        elif parameter.field in terms:
            raise ParameterError(f"{name} is already set under its other name: keep one of the two.")
        else:
            terms[parameter.field] = _value(parameter, name, text)
    return Given(terms, tuple(without_effect))


def matches(parameter: Parameter, search: str) -> bool:
    """Return whether either name, or the description, contains the searched text."""
    wanted = search.strip().casefold()
    return any(wanted in text.casefold() for text in (parameter.name, twin(parameter.name), parameter.words))


def _value(parameter: Parameter, name: str, text: str) -> str | bool | int:
    if not parameter.choices:
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise ParameterError(f"{name} must be a whole number, not {_shown(text)}.")
        return int(text)
    value = text.lower()
    if parameter.field == "policy" and value == "hierarchy":
        raise ParameterError(
            f"{name}: hierarchy needs a tree of consumers, which Tidepool does not have; use fairshare."
        )
    if value not in parameter.choices:
        one_of = "true or false" if parameter.choices == _TRUTH else f"one of {', '.join(parameter.choices)}"
        raise ParameterError(f"{name} must be {one_of}, not {_shown(text)}.")
    return value == "true" if parameter.choices == _TRUTH else value


def _shown(text: str) -> str:
    """Return the text, shortened and printable."""
    return f"{text[:80]!a}"
