"""What a report that is shared with everybody would give away: users, hosts, paths and pages of this site.

Charts and tables name none of these: they are frozen so. What people write, and what they call their trainings and
metrics, may. Its owner is told before a public link is made. Pure: the names of users and hosts are given.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from core.text import shown_text
from reports.frozen import paths_in, pattern_of

__all__ = ["Named", "named_in", "sentence_of"]

_WORD = re.compile(r"[\w.@+-]+")
_PART = re.compile(r"[^\W_]+")
_MOST = 10


@dataclass(frozen=True)
class Named:
    #: "user", "host" or "path".
    kind: str
    text: str


def named_in(
    texts: Iterable[str], users: Collection[str], hosts: Collection[str], metrics: Collection[str] = ()
) -> list[Named]:
    """Return what the texts name, each once, in this order: users, hosts, paths. Upper and lower case are the same.

    metrics: names that are no paths, though they look like one.
    """
    # Of users there may be thousands: each word is looked up.
    known, of_hosts = {name.casefold() for name in users}, pattern_of(hosts)
    found: dict[str, dict[str, None]] = {"user": {}, "host": {}, "path": {}}
    for text in texts:
        found["user"] |= dict.fromkeys(word for word in _words(text) if word.casefold() in known)
        found["host"] |= dict.fromkeys(of_hosts.findall(text))
        found["path"] |= dict.fromkeys(paths_in(text, metrics))
    return [Named(kind, shown_text(text)) for kind, words in found.items() for text in words]


def sentence_of(named: Collection[Named]) -> str:
    """Return what is named as a list for people: user bob, host gpu-1, path /data/x."""
    shown = ", ".join(f"{one.kind} {one.text}" for one in list(named)[:_MOST])
    return f"{shown} and {len(named) - _MOST} more" if len(named) > _MOST else shown


def _words(text: str) -> Iterable[str]:
    """Each word as names are written, and the parts of it."""
    for word in _WORD.findall(text):
        yield word.strip(".-+@")
        yield from _PART.findall(word)
