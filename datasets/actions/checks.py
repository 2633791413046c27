"""The life of a check: somebody claims a version, says how far it is, and stores what was found.

A claim has a name and an end. A checker that died, or was too slow, loses it: the next one begins anew, and what the
first still writes changes nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from core.live import DATASETS, publish
from core.text import storable
from datasets.inspection.inspect import Inspection
from datasets.models import DatasetVersion
from datasets.queries import version_live

__all__ = ["CLAIM", "Claim", "ClaimLost", "announce", "claim_next", "finish", "give_back", "note_progress"]

#: A checker that has said nothing for so long is taken for dead.
CLAIM = timedelta(seconds=15)
_State = DatasetVersion.State


class ClaimLost(Exception):
    """Somebody else checks this version now, or it is gone."""


@dataclass(frozen=True)
class Claim:
    version: DatasetVersion
    token: str


def claim_next(now: datetime, *, only: int | None = None) -> Claim | None:
    """The oldest version that nobody checks; with `only`, that one."""
    free = Q(state=_State.WAITING) | Q(state=_State.CHECKING, claimed_until__lt=now)
    waiting = DatasetVersion.objects.filter(free).order_by("id")
    if only is not None:
        waiting = waiting.filter(pk=only)
    for pk in waiting.values_list("pk", flat=True)[:5]:
        token = secrets.token_hex(8)
        with transaction.atomic():
            taken = DatasetVersion.objects.filter(free, pk=pk).update(
                state=_State.CHECKING, claim=token, claimed_until=now + CLAIM, progress=0, problem=""
            )
            if taken:
                version = DatasetVersion.objects.select_related("dataset").get(pk=pk)
                announce(version)
                return Claim(version, token)
    return None


def note_progress(claim: Claim, progress: float) -> None:
    """Say how far it is, and keep the claim. Raises ClaimLost."""
    _write(claim, progress=min(1.0, progress), claimed_until=timezone.now() + CLAIM)


def note_unpacked(claim: Claim) -> None:
    """The archive is at its place: a later checker need not unpack it again."""
    _write(claim, archive="")


def give_back(claim: Claim) -> None:
    """Stop without a result: the next checker takes it at once."""
    _write(claim, state=_State.WAITING, claim="", claimed_until=None, progress=0)


def finish(claim: Claim, found: Inspection) -> DatasetVersion:
    """READY, or INVALID with the problems."""
    problems = found.findings.problems
    return _write(
        claim,
        state=_State.INVALID if problems else _State.READY,
        claim="",
        claimed_until=None,
        progress=1,
        problem=storable("\n".join(problems)),
        size_bytes=found.size_bytes,
        file_count=found.file_count,
        digest=found.digest,
        summary=storable(found.findings.summary()),
        samples=storable([asdict(sample) for sample in found.findings.samples]),
    )


def refuse(claim: Claim, problem: str) -> DatasetVersion:
    """INVALID without having been inspected: its archive cannot be unpacked, its files are gone."""
    return _write(
        claim, state=_State.INVALID, claim="", claimed_until=None, problem=storable(problem), summary={}, samples=[]
    )


def announce(version: DatasetVersion) -> None:
    publish(DATASETS, "state", {str(version.dataset_id): version_live(version)})


@transaction.atomic
def _write(held: Claim, /, **values: Any) -> DatasetVersion:
    mine = DatasetVersion.objects.filter(pk=held.version.pk, state=_State.CHECKING, claim=held.token)
    if not mine.update(**values):
        raise ClaimLost(f"version {held.version.pk} is no longer checked here")
    version = DatasetVersion.objects.select_related("dataset").get(pk=held.version.pk)
    announce(version)
    return version
