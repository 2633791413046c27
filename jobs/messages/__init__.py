"""Sentences about the reasons of jobs, rendered from params. Rows store only code and params, so wording can change.

`params["message"]` is the key of the sentence, set by the scheduler or by `message()`. A sentence is a format string
of the params, or a function of them where it has a plural or optional parts.
"""

import re
from collections.abc import Mapping
from typing import Any

from jobs.messages.events import HOW_TO_REQUIRE, OF_EVENTS, tried
from jobs.messages.plans import OF_PLANS
from jobs.messages.wishes import OF_WISHES, counting

__all__ = ["HOW_TO_REQUIRE", "SENTENCES", "message", "text_of", "tried"]

SENTENCES = OF_PLANS | OF_WISHES | OF_EVENTS
#: Two full stops in a row: an error that ends with one, quoted at the end of a sentence. An ellipsis has three.
_DOUBLE_STOP = re.compile(r"(?<!\.)\.\.(?=\s|$)")


def message(key: str, **params: Any) -> dict[str, Any]:
    """Return the params of a row whose sentence has this key."""
    assert key in SENTENCES, f"no sentence {key!r}"
    return {"message": key, **params}


def text_of(params: Mapping[str, Any]) -> str:
    """Return the sentence of the params; "" if there is no reason yet."""
    if "message" not in params:
        return ""
    sentence = SENTENCES[params["message"]]
    text = sentence.format_map(params) if isinstance(sentence, str) else sentence(params)
    return _DOUBLE_STOP.sub(".", text + counting(params))
