"""The life of a check: somebody claims a version, unpacks its archive, inspects its files and stores what was found.

A claim has a name and an end. A checker that died, or was too slow, loses it: the next one begins anew, and what the
first still writes changes nothing.
"""

import io
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from core.archive import store_uploads
from core.errors import UserError
from core.live import DATASETS, publish
from core.sources import upload_limits
from core.text import storable
from datasets.inspection.inspect import Inspection, inspect
from datasets.models import DatasetVersion
from datasets.queries import version_live

__all__ = [
    "CLAIM",
    "SINGLE_SUFFIXES",
    "Claim",
    "ClaimLost",
    "Stopped",
    "announce",
    "check",
    "check_at_once_if_small",
    "claim_next",
    "finish",
    "give_back",
    "note_progress",
]

#: A checker that has said nothing for so long is taken for dead.
CLAIM = timedelta(seconds=15)
#: Taken as they are; everything else comes in an archive.
SINGLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".txt")
#: What is smaller is checked in the request that registers it: that takes less time than waiting for a checker.
_SMALL_BYTES = 16 * 1024**2
_SMALL_FILES = 500
#: Progress is stored a few times per second.
_TELL_SECONDS = 0.4
#: Of the work with an archive: unpacking it.
_UNPACKING = 0.5
_State = DatasetVersion.State


class ClaimLost(Exception):
    """Somebody else checks this version now, or it is gone."""


class Stopped(Exception):
    """The process was asked to end."""


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


def check_at_once_if_small(version: DatasetVersion) -> DatasetVersion:
    """The version, checked where that is a matter of moments."""
    if version.archive or not _is_small(version):
        return version
    claim = claim_next(timezone.now(), only=version.pk)
    try:
        return check(claim) if claim else version
    except ClaimLost:
        # It took so long that a checker has begun anew.
        version.refresh_from_db()
        return version


def check(claim: Claim, asked_to_stop: Callable[[], bool] = lambda: False) -> DatasetVersion:
    """READY or INVALID. Raises ClaimLost, or Stopped with the claim still held."""
    version, told_at = claim.version, time.monotonic()
    inspecting_from = _UNPACKING if version.archive else 0.0

    def tell(progress: float) -> None:
        nonlocal told_at
        if asked_to_stop():
            raise Stopped
        if time.monotonic() - told_at >= _TELL_SECONDS:
            told_at = time.monotonic()
            note_progress(claim, progress)

    try:
        if version.archive:
            _unpack(claim, lambda part: tell(_UNPACKING * part))
        kind = version.dataset.kind
        found = inspect(version.parts, kind, lambda part: tell(inspecting_from + (1 - inspecting_from) * part))
    except UserError as error:
        return _refuse(claim, error.message)
    except OSError as error:
        why = error.strerror or str(error)
        return _refuse(claim, f"{version.path} cannot be read ({why}): check that it is there, then check again.")
    return finish(claim, found)


def note_progress(claim: Claim, progress: float) -> None:
    """Say how far it is, and keep the claim. Raises ClaimLost."""
    _write(claim, progress=min(1.0, progress), claimed_until=timezone.now() + CLAIM)


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


def announce(version: DatasetVersion) -> None:
    publish(DATASETS, "state", {str(version.dataset_id): version_live(version)})


def _refuse(claim: Claim, problem: str) -> DatasetVersion:
    """INVALID without having been inspected: its archive cannot be unpacked, its files are gone."""
    return _write(
        claim, state=_State.INVALID, claim="", claimed_until=None, problem=storable(problem), summary={}, samples=[]
    )


@transaction.atomic
def _write(held: Claim, /, **values: Any) -> DatasetVersion:
    mine = DatasetVersion.objects.filter(pk=held.version.pk, state=_State.CHECKING, claim=held.token)
    if not mine.update(**values):
        raise ClaimLost(f"version {held.version.pk} is no longer checked here")
    version = DatasetVersion.objects.select_related("dataset").get(pk=held.version.pk)
    announce(version)
    return version


def _unpack(claim: Claim, tell: Callable[[float], None]) -> None:
    version = claim.version
    archive, folder = Path(version.archive), Path(version.path)
    # What a checker that died has left behind: it had not said that it is whole.
    shutil.rmtree(folder, ignore_errors=True)
    with _Told(archive, tell) as stream:
        store_uploads([(stream, version.archive_name)], folder, upload_limits(), single=SINGLE_SUFFIXES)
    # Now it is: a later checker need not unpack it again.
    _write(claim, archive="")
    archive.unlink(missing_ok=True)


class _Told(io.BufferedReader):
    """A file that says how much of it was read."""

    def __init__(self, path: Path, tell: Callable[[float], None]) -> None:
        super().__init__(io.FileIO(path))
        self._size = max(1, os.fstat(self.fileno()).st_size)
        self._tell = tell

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(size)
        # Archives are read from their beginning but for the directory of a .zip, at its end.
        self._tell(min(self.tell() / self._size, 0.99))
        return content


def _is_small(version: DatasetVersion) -> bool:
    """Return whether it is small. Looks at no more than it must: a folder may have millions of files."""
    try:
        sizes = list(islice((size for part in version.parts for size in _sizes(part.folder)), _SMALL_FILES + 1))
    except OSError:
        # The check says what is the matter.
        return True
    return len(sizes) <= _SMALL_FILES and sum(sizes) <= _SMALL_BYTES


def _sizes(place: Path) -> Iterator[int]:
    """Bytes of each file; 0 for each folder."""
    if place.is_file():
        yield place.stat().st_size
        return
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield 0
                yield from _sizes(Path(entry.path))
            else:
                yield entry.stat(follow_symlinks=False).st_size
