"""The life of a check: a worker claims a version, unpacks its archive, inspects its files and stores the findings.

Claims are those of `core.claims`: a check whose claim expired is restarted by another worker.
"""

import io
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from core.archive import store_uploads
from core.claims import Claim, ClaimLost, Claims
from core.errors import UserError
from core.file_sources import upload_limits
from core.live import publish
from core.text import storable
from datasets.inspection.inspector import Inspection, inspect
from datasets.models import DatasetVersion
from datasets.queries import version_live
from datasets.topics import DATASETS

__all__ = [
    "SINGLE_SUFFIXES",
    "Stopped",
    "announce",
    "check",
    "check_at_once_if_small",
    "claim_next",
    "finish",
    "give_back",
    "note_progress",
    "waiting_versions",
]

#: Suffixes of single data files; all other uploads are archives.
SINGLE_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".txt")
#: Limits of a version that is checked by the request that registers it: so small a check needs no worker.
_SMALL_BYTES = 16 * 1024**2
_SMALL_FILES = 500
#: Seconds between two writes of the progress.
_TELL_SECONDS = 0.4
#: Fraction of a check's progress that unpacking the archive takes.
_UNPACKING = 0.5
_State = DatasetVersion.State
#: A check renews its claim with its progress.
_CLAIMS = Claims(
    DatasetVersion,
    duration=timedelta(seconds=15),
    waiting={"state": _State.WAITING},
    working={"state": _State.CHECKING},
    related=("dataset",),
)


class Stopped(Exception):
    """The process was asked to end."""


def waiting_versions(now: datetime) -> QuerySet[DatasetVersion]:
    """Return the versions that no worker checks, the oldest first."""
    return _CLAIMS.free(now)


@transaction.atomic
def claim_next(now: datetime, *, only: int | None = None) -> Claim[DatasetVersion] | None:
    """Claim the oldest version that no worker checks; with `only`, the version with this key."""
    waiting = waiting_versions(now)
    if only is not None:
        waiting = waiting.filter(pk=only)
    claim = _CLAIMS.claim_first(waiting, now, progress=0, problem="")
    if claim is not None:
        announce(claim.row)
    return claim


def check_at_once_if_small(version: DatasetVersion) -> DatasetVersion:
    """Return the version, and check it first if its files are few and small."""
    if version.archive or not _is_small(version):
        return version
    claim = claim_next(timezone.now(), only=version.pk)
    try:
        return check(claim) if claim else version
    except ClaimLost:
        # The check took longer than its claim, and another background worker has restarted it.
        version.refresh_from_db()
        return version


def check(claim: Claim[DatasetVersion], asked_to_stop: Callable[[], bool] = lambda: False) -> DatasetVersion:
    """Check the claimed version, which becomes READY or INVALID. Raises ClaimLost, or Stopped with the claim held."""
    version, told_at = claim.row, time.monotonic()
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
        return _refuse(
            claim, f"{version.path} cannot be read ({why}): make sure that the path exists, then check again."
        )
    return finish(claim, found)


def note_progress(claim: Claim[DatasetVersion], progress: float) -> None:
    """Store the progress, and renew the claim. Raises ClaimLost."""
    with _announced(claim):
        _CLAIMS.renew(claim, timezone.now(), progress=min(1.0, progress))


def give_back(claim: Claim[DatasetVersion]) -> None:
    """Stop without a result: the next worker checks the version at once. Raises ClaimLost."""
    with _announced(claim):
        _CLAIMS.release(claim, progress=0)


def finish(claim: Claim[DatasetVersion], found: Inspection) -> DatasetVersion:
    """Store the findings. The version is READY, or INVALID with its problems. Raises ClaimLost."""
    problems = found.findings.problems
    with _announced(claim):
        _CLAIMS.finish(
            claim,
            state=_State.INVALID if problems else _State.READY,
            progress=1,
            problem=storable("\n".join(problems)),
            size_bytes=found.size_bytes,
            file_count=found.file_count,
            digest=found.digest,
            summary=storable(found.findings.summary()),
            samples=storable([asdict(sample) for sample in found.findings.samples]),
        )
    return claim.row


def announce(version: DatasetVersion) -> None:
    publish(DATASETS, "state", {str(version.dataset_id): version_live(version)})


def _refuse(claim: Claim[DatasetVersion], problem: str) -> DatasetVersion:
    """Store that the files cannot be inspected: the archive cannot be unpacked, or files are missing."""
    with _announced(claim):
        _CLAIMS.finish(claim, state=_State.INVALID, problem=storable(problem), summary={}, samples=[])
    return claim.row


@contextmanager
def _announced(claim: Claim[DatasetVersion]) -> Iterator[None]:
    """Make the body's change of the version one transaction, read the version again and publish it."""
    with transaction.atomic():
        yield
        claim.row.refresh_from_db(from_queryset=DatasetVersion.objects.select_related("dataset"))
        announce(claim.row)


def _unpack(claim: Claim[DatasetVersion], tell: Callable[[float], None]) -> None:
    version = claim.row
    archive, folder = Path(version.archive), Path(version.path)
    # A check that died may have left half of the folder.
    shutil.rmtree(folder, ignore_errors=True)
    with _ReportingFile(archive, tell) as stream:
        store_uploads([(stream, version.archive_name)], folder, upload_limits(), single=SINGLE_SUFFIXES)
    # The folder is whole: a later check need not unpack the archive again.
    with _announced(claim):
        _CLAIMS.write(claim, archive="")
    archive.unlink(missing_ok=True)


class _ReportingFile(io.BufferedReader):
    """A file that reports the fraction of it that was read."""

    def __init__(self, path: Path, tell: Callable[[float], None]) -> None:
        super().__init__(io.FileIO(path))
        self._size = max(1, os.fstat(self.fileno()).st_size)
        self._tell = tell

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(size)
        # Archives are read from the beginning, except for the directory at the end of a .zip.
        self._tell(min(self.tell() / self._size, 0.99))
        return content


def _is_small(version: DatasetVersion) -> bool:
    """Return whether the version is small. Stops counting early: a folder may have millions of files."""
    try:
        sizes = list(islice((size for part in version.parts for size in _sizes(part.folder)), _SMALL_FILES + 1))
    except OSError:
        # The check reports the error.
        return True
    return len(sizes) <= _SMALL_FILES and sum(sizes) <= _SMALL_BYTES


def _sizes(place: Path) -> Iterator[int]:
    """Yield the bytes of each file, and 0 for each folder."""
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
