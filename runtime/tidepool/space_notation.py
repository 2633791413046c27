"""Values of a searched parameter in one line of text, as command lines and forms take them.

32, 64, 128          one of these values
0.1:0.9              any number of the range
1e-4:1e-1:log        any number, whose logarithm is drawn evenly
0:1:step=0.25        numbers at this distance
1:8:int              whole numbers, both ends included
1:512:logint         whole numbers, whose logarithm is drawn evenly
relu                 one value, the same in every trial
"""

import json
import re
from typing import Any

__all__ = ["HOW_TO_WRITE", "is_sweep", "searched_values", "typed_value"]

HOW_TO_WRITE = (
    "Values such as 32, 64, 128, or a range such as 0.1:0.9, 1e-4:1e-1:log, 1:8:int, 1:512:logint or 0:1:step=0.25."
)
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*:\s*({_NUMBER})(?:\s*:\s*(log|int|logint|step\s*=\s*{_NUMBER}))?")
_KINDS = {"": "uniform", "log": "log_uniform", "int": "int", "logint": "log_int"}


def searched_values(text: str) -> Any:
    """Return the values in the notation of the REST API: a list, an object with `kind`, or one value."""
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        values = [typed_value(part) for part in text.split(",") if part.strip()]
        return values if len(values) > 1 else typed_value(text)
    low, high, kind = typed_value(found[1]), typed_value(found[2]), found[3] or ""
    if kind.startswith("step"):
        return {"kind": "uniform", "low": low, "high": high, "step": typed_value(kind.partition("=")[2])}
    return {"kind": _KINDS[kind], "low": low, "high": high}


def is_sweep(text: str) -> bool:
    """Return whether the text lists several values, each of which is a number, true or false."""
    parts = text.split(",")
    return len(parts) > 1 and all(part.strip() and not isinstance(typed_value(part), str) for part in parts)


def typed_value(text: str) -> Any:
    """Return the text as a number, true or false if it is one; otherwise the text without surrounding blanks."""
    text = text.strip()
    if re.fullmatch(_NUMBER, text):
        try:
            return int(text)
        except ValueError:
            return float(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | str) else text
