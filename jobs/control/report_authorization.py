"""Authorization of host reports: the journals that a host may write, and the slots that its entries may name.

They come after the check of signatures (`jobs.control.envelopes`), and are all that there is for a host without a key.
A host may report only about jobs whose slots it holds or held in that attempt, under the exact name of each journal,
and no entry may name a slot that the attempt never had.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tidepool import protocol

from jobs.models import SlotClaim

__all__ = ["AttemptKey", "JournalName", "Place", "misplaced", "parse_name", "places_of"]

#: <job>.<attempt>.<writer>, without leading zeros: a journal with two names would be stored twice.
_NAME = re.compile(
    r"([1-9][0-9]{0,17})\.([1-9][0-9]{0,8})\.(?:(coordinator|metrics|recorded|observed)|(shim|host)\.(.+))"
)


class AttemptKey(NamedTuple):
    job: int
    number: int


class JournalName(NamedTuple):
    attempt: AttemptKey
    #: "shim", "host", "coordinator", "metrics", "recorded" or "observed".
    writer: str
    text: str


class Place(NamedTuple):
    """A slot of a host."""

    host: str
    slot: int


def parse_name(text: str, host: str) -> JournalName | None:
    """Return the parsed name of a journal; None if `host` writes no journal of this name."""
    match = _NAME.fullmatch(text)
    if match is None or (match[5] is not None and match[5] != host):
        return None
    return JournalName(AttemptKey(int(match[1]), int(match[2])), match[3] or match[4], text)


def places_of(attempts: Iterable[AttemptKey]) -> dict[AttemptKey, set[Place]]:
    """Return the slots that each attempt holds or has held. Attempts without slots are missing."""
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
    """Return the first rank of the entry on a slot that the attempt never had, in words; "" if there is none.

    A rank that holds several slots is named by one of them, on the same host.
    """
    ranks = _ranks_in(entry, host)
    well_named = {(member_id, place.host) for member_id, place in ranks if _is_of(member_id, place)}
    for member_id, place in ranks:
        if place not in places or (member_id, place.host) not in well_named:
            return f"{member_id} on {place.host}, slot {place.slot}"
    return ""


def _ranks_in(entry: protocol.Entry, host: str) -> list[tuple[str, Place]]:
    """Return the ranks that the entry creates, changes or ends."""
    match entry:
        case protocol.RankStarted() | protocol.RankGrouped() | protocol.RankLingers() | protocol.RankExited():
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
