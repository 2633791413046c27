"""Rights of a host: the journals that it writes, and the slots that the entries name.

Nobody signs a report. What can be checked without keys is checked here: a host speaks only of jobs whose slots it holds
or held in that attempt, by the one exact name of each journal, and no entry names a slot that the attempt never had.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tidepool import protocol

from jobs.models import SlotClaim

__all__ = ["AttemptKey", "JournalName", "Place", "misplaced", "parse_name", "places_of"]

#: <job>.<attempt>.<writer>, without leading zeros: two names of one journal would have it stored twice.
_NAME = re.compile(r"([1-9][0-9]{0,17})\.([1-9][0-9]{0,8})\.(?:(coordinator|metrics|recorded|observed)|shim\.(.+))")


class AttemptKey(NamedTuple):
    job: int
    number: int


class JournalName(NamedTuple):
    attempt: AttemptKey
    #: "shim", "coordinator", "metrics", "recorded" or "observed".
    writer: str
    text: str


class Place(NamedTuple):
    """A slot of a host."""

    host: str
    slot: int


def parse_name(text: str, host: str) -> JournalName | None:
    """The name of a journal; None where `host` writes none of that name."""
    match = _NAME.fullmatch(text)
    if match is None or (match[4] is not None and match[4] != host):
        return None
    return JournalName(AttemptKey(int(match[1]), int(match[2])), match[3] or "shim", text)


def places_of(attempts: Iterable[AttemptKey]) -> dict[AttemptKey, set[Place]]:
    """The slots that each attempt holds or has held; attempts without one, or that do not exist, are left out."""
    wanted = set(attempts)
    claims = SlotClaim.objects.filter(
        job__in={attempt.job for attempt in wanted}, attempt__in={attempt.number for attempt in wanted}
    )
    found: dict[AttemptKey, set[Place]] = {}
    rows = claims.values_list("job_id", "attempt", "slot__host__name", "slot__index").order_by().distinct()
    for job, number, host, slot in rows if wanted else ():
        found.setdefault(AttemptKey(job, number), set()).add(Place(host, slot))
    return {attempt: places for attempt, places in found.items() if attempt in wanted}


def misplaced(entry: protocol.Entry, host: str, places: set[Place]) -> str:
    """Return the rank of an entry that is nowhere that the attempt has been, as `host` tells; "" where none is."""
    for member_id, place in _ranks_in(entry, host):
        if place not in places or not _is_of(member_id, place):
            return f"{member_id} on {place.host}, slot {place.slot}"
    return ""


def _ranks_in(entry: protocol.Entry, host: str) -> list[tuple[str, Place]]:
    """The ranks that the entry makes, changes or ends."""
    match entry:
        case protocol.RankStarted() | protocol.RankGrouped() | protocol.RankExited():
            return [(entry.member_id, Place(host, entry.slot))]
        case protocol.RankJoined():
            return [(entry.member_id, Place(entry.host, entry.slot))]
        case protocol.GenerationPlanned() | protocol.GenerationActive():
            return [(member.member_id, Place(member.host, member.slot)) for member in entry.members]
        case _:
            return []


def _is_of(member_id: str, place: Place) -> bool:
    start, number = f"{place.host}.{place.slot}.", member_id.rpartition(".")[2]
    return member_id == f"{start}{number}" and number.isdecimal() and len(number) < 19
