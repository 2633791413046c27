"""The pattern by which an owner says what the lines of a log mean: a regular expression with named groups.

It is matched by RE2, whose time is linear in the length of a line whatever the pattern is, and whose memory is limited:
no pattern and no line can hang a process. So it knows neither look-around nor references to groups.
"""

from dataclasses import dataclass
from typing import Any

import re2

__all__ = ["COUNTERS", "MAX_PATTERN", "LinePattern", "PatternError", "compiled", "expression"]

MAX_PATTERN = 500
#: Groups that say where the script is; each other one is a metric of its name. `name` and `value` go together.
COUNTERS = ("step", "total_steps", "epoch", "total_epochs", "percent")
_PAIR = ("name", "value")
_MAX_GROUPS = 40
_MEMORY_BYTES = 1 << 20


class PatternError(ValueError):
    """The pattern cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class LinePattern:
    #: Of RE2, which has no types.
    expression: Any
    groups: frozenset[str]

    def matches(self, line: str, most: int) -> list[dict[str, str]]:
        """The named groups of each match that have a text; at most so many matches."""
        found = []
        for match in self.expression.finditer(line):
            found.append({name: text for name, text in match.groupdict().items() if text})
            if len(found) == most:
                break
        return found


def expression(text: str) -> Any:
    """A compiled expression of RE2. Raises PatternError."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise PatternError(f"The pattern is no regular expression of RE2 ({why}): correct it.") from None


def compiled(text: str) -> LinePattern:
    """The checked pattern. Raises PatternError with a sentence that says what to do."""
    if len(text) > MAX_PATTERN or not text.isprintable():
        raise PatternError(f"Give the pattern as one line of at most {MAX_PATTERN} printable characters.")
    pattern = expression(text)
    groups = frozenset(pattern.groupindex)
    if len(groups) > _MAX_GROUPS:
        raise PatternError(f"The pattern names {len(groups)} groups: name at most {_MAX_GROUPS}.")
    if len(groups & set(_PAIR)) == 1:
        raise PatternError("The groups name and value go together: (?P<name>\\w+)=(?P<value>\\S+).")
    if not groups - set(COUNTERS) and not groups & {"percent", "total_steps", "total_epochs"}:
        raise PatternError(
            "The pattern names no metric: give it a named group for each, such as loss (?P<loss>\\S+), beside "
            f"{', '.join(COUNTERS)} or the pair name and value."
        )
    return LinePattern(pattern, groups)
