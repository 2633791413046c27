"""Names of users, hosts and paths in the texts of a report. Its owner confirms them before a public link is made. Pure.

Frozen charts and tables contain none, but texts, and the names of trainings and metrics, may.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from core.text import shown_text
from reports.frozen import paths_in, pattern_of

__all__ = ["Mention", "mentions_in", "mentions_text"]

_WORD = re.compile(r"[\w.@+-]+")
_PART = re.compile(r"[^\W_]+")
_MAX_SHOWN = 10


@dataclass(frozen=True)
class Mention:
    #: "user", "host" or "path".
    kind: str
    text: str


def mentions_in(
    texts: Iterable[str], users: Collection[str], hosts: Collection[str], metrics: Collection[str] = ()
) -> list[Mention]:
    """Return the users, then the hosts, then the paths that the texts name, each once. Names are case-insensitive.

    metrics: names of metrics, which are no paths even if they look like one.
    """
    # Words are looked up in a set: a pattern of thousands of users would be slow.
    known, host_pattern = {name.casefold() for name in users}, pattern_of(hosts)
    found: dict[str, dict[str, None]] = {"user": {}, "host": {}, "path": {}}
    for text in texts:
        found["user"] |= dict.fromkeys(word for word in _words(text) if word.casefold() in known)
        found["host"] |= dict.fromkeys(host_pattern.findall(text))
        found["path"] |= dict.fromkeys(paths_in(text, metrics))
    return [Mention(kind, shown_text(text)) for kind, words in found.items() for text in words]


def mentions_text(mentions: Collection[Mention]) -> str:
    """Return the mentions as a list in words: user bob, host gpu-1, path /data/x."""
    shown = ", ".join(f"{one.kind} {one.text}" for one in list(mentions)[:_MAX_SHOWN])
    return f"{shown} and {len(mentions) - _MAX_SHOWN} more" if len(mentions) > _MAX_SHOWN else shown


def _words(text: str) -> Iterable[str]:
    """Yield each word that may be a name, and its parts."""
    for word in _WORD.findall(text):
        yield word.strip(".-+@")
        yield from _PART.findall(word)
