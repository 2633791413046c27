"""Edits of rows that several people may edit at once: the decision (`merge`), and what an action is told (`Seen`).

A page or a client says what it has seen before the edit: all former values, or the ETag of a GET. The action calls
`Seen.merged` under the row's lock, so that nobody's change is undone by somebody who has not seen it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.core.serializers.json import DjangoJSONEncoder

from core.errors import Conflict
from core.time import exact_time

__all__ = ["UNSEEN", "Author", "Clash", "EditConflict", "Merge", "Outdated", "Seen", "etag_of", "merge"]


@dataclass(frozen=True)
class Clash:
    """A field that the user and somebody else have both set, to different values."""

    field: str
    #: Value when the user began to edit.
    before: Any
    mine: Any
    present: Any


@dataclass(frozen=True)
class Merge:
    #: Values of the fields that the user has changed and nobody else has.
    values: dict[str, Any]
    clashes: tuple[Clash, ...] = ()

    @property
    def wanted(self) -> dict[str, Any]:
        """Return the values with the user's own ones for the clashes, such as for a preview."""
        return {**self.values, **{clash.field: clash.mine for clash in self.clashes}}


def merge(before: Mapping[str, Any], mine: Mapping[str, Any], present: Mapping[str, Any]) -> Merge:
    """Merge the user's values into the present ones.

    before: values when the user began to edit. A field without one counts as changed by nobody else. Lists are sets:
    items that one side adds or removes leave those of the other alone.
    """
    values: dict[str, Any] = {}
    clashes = []
    for name, value in mine.items():
        old, now = before.get(name, present[name]), present[name]
        if name in before and _same(value, old):
            continue
        if _same(now, old) or _same(now, value):
            values[name] = value
        elif all(isinstance(each, list) and each for each in (old, value, now)):
            values[name] = _merged_list(old, value, now)
        else:
            clashes.append(Clash(name, old, value, now))
    return Merge(values, tuple(clashes))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return set(one) == set(other)
    return bool(one == other)


def _merged_list(before: list[str], mine: list[str], present: list[str]) -> list[str]:
    return sorted((set(present) | set(mine)) - (set(before) - set(mine)) - (set(before) - set(present)))


@dataclass(frozen=True)
class Author:
    """User who changed a field last, and the time."""

    name: str
    at: datetime


def _sentence(clash: Clash, author: Author | None) -> str:
    who, at = (author.name, f" at {exact_time(author.at)} UTC") if author else ("Somebody", "")
    return f"{who} changed {clash.field} from {clash.before} to {clash.present}{at}, and you to {clash.mine}."


class EditConflict(Conflict):
    """Fields that the user and somebody else have set to different values."""

    default_code = "edit_conflict"

    def __init__(self, merged: Merge, present: Mapping[str, Any], authors: Mapping[str, Author]) -> None:
        clashes = merged.clashes
        fields = {clash.field: [_sentence(clash, authors.get(clash.field))] for clash in clashes}
        sentences = " ".join(sentence for [sentence] in fields.values())
        super().__init__(f"Not saved. {sentences} Choose a value, then save again.", fields=fields)
        self.clashes = clashes
        self.authors = authors
        #: Values of the row.
        self.present = dict(present)
        #: Values to show for another attempt: the present ones with those of the user.
        self.shown = {**present, **merged.wanted}


class Outdated(Conflict):
    """The ETag in `If-Match` is not that of the present values."""

    status = 412
    default_code = "outdated"


@dataclass(frozen=True)
class Seen:
    """Values that the user has seen before an edit; empty for an edit that overwrites whatever is there."""

    #: Values with which a form was opened.
    before: Mapping[str, Any] = field(default_factory=dict)
    #: ETags in a request's `If-Match`.
    etags: tuple[str, ...] = ()

    def merged(
        self,
        mine: Mapping[str, Any],
        present: Mapping[str, Any],
        authors: Callable[[], Mapping[str, Author]],
    ) -> dict[str, Any]:
        """Return the values to store. Call it under the row's lock.

        authors: returns field -> author of the newest change. Raises Outdated or EditConflict.
        """
        if self.etags and etag_of(present) not in self.etags:
            sentence = "It was changed after you read it: read it again, and repeat the request with its new ETag."
            raise Outdated(sentence)
        result = merge(self.before, mine, present)
        if result.clashes:
            raise EditConflict(result, present, authors())
        return result.values


#: The user has seen nothing, so all given values are stored.
UNSEEN: Final = Seen()


def etag_of(values: Mapping[str, Any]) -> str:
    """Return the ETag of these values, as JSON can carry them."""
    text = json.dumps(dict(values), sort_keys=True, cls=DjangoJSONEncoder)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
