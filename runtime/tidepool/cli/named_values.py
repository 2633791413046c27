"""Options such as `--set NAME=VALUE`, which may be repeated."""

import json
from collections.abc import Iterable
from typing import Any

from tidepool.client.errors import InvalidRequest

__all__ = ["named_scalars", "named_texts", "scalar"]


def named_texts(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return name -> text of an option's values. Raises InvalidRequest for one without a name or an equals sign."""
    texts = {}
    for each in given:
        name, separator, text = each.partition("=")
        if not separator or not name:
            raise InvalidRequest(f"{option} {each!r} is not NAME=VALUE: write it like epochs=5.")
        texts[name] = text
    return texts


def named_scalars(option: str, given: Iterable[str]) -> dict[str, Any]:
    """Return name -> value of an option's values. Raises InvalidRequest as `named_texts` does."""
    return {name: scalar(text) for name, text in named_texts(option, given).items()}


def scalar(text: str) -> Any:
    """Return the text as a number, true or false if it is one in JSON, as on the Train page; otherwise the text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, str | int | float | bool) else text
