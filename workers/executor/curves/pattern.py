"""Patterns by which owners describe the lines of their logs: regular expressions with named groups.

RE2 matches them in time linear in the length of a line and with limited memory, so that no pattern can hang a process.
RE2 supports neither look-around nor back-references.
"""

from dataclasses import dataclass
from typing import Any

import re2

__all__ = ["COUNTERS", "MAX_PATTERN", "LinePattern", "PatternError", "compiled", "expression"]

MAX_PATTERN = 500
#: Groups for the position of the script; any other group is a metric of that name, except the pair `name` and `value`.
COUNTERS = ("step", "total_steps", "epoch", "total_epochs", "percent")
_PAIR = ("name", "value")
_MAX_GROUPS = 40
_MEMORY_BYTES = 1 << 20


class PatternError(ValueError):
    """The pattern cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class LinePattern:
    #: Compiled expression of RE2, which has no type annotations.
    expression: Any
    groups: frozenset[str]

    def matches(self, line: str, most: int) -> list[dict[str, str]]:
        """Return the named groups with a text of each match, for at most `most` matches."""
        found = []
        for match in self.expression.finditer(line):
            found.append({name: text for name, text in match.groupdict().items() if text})
            if len(found) == most:
                break
        return found


def expression(text: str) -> Any:
    """Compile an expression of RE2. Raises PatternError."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise PatternError(f"The pattern is not a valid RE2 regular expression ({why}): correct it.") from None


def compiled(text: str) -> LinePattern:
    """Compile and validate a pattern. Raises PatternError with the remedy."""
    if len(text) > MAX_PATTERN or not text.isprintable():
        raise PatternError(f"Give the pattern as one line of at most {MAX_PATTERN} printable characters.")
    pattern = expression(text)
    groups = frozenset(pattern.groupindex)
    if len(groups) > _MAX_GROUPS:
        raise PatternError(f"The pattern has {len(groups)} named groups: use at most {_MAX_GROUPS}.")
    if len(groups & set(_PAIR)) == 1:
        raise PatternError("Use the groups name and value together: (?P<name>\\w+)=(?P<value>\\S+).")
    if not groups - set(COUNTERS) and not groups & {"percent", "total_steps", "total_epochs"}:
        raise PatternError(
            "The pattern names no metric: add a named group for each, such as loss (?P<loss>\\S+), besides "
            f"{', '.join(COUNTERS)} or the pair name and value."
        )
    return LinePattern(pattern, groups)
