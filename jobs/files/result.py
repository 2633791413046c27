"""The job's results as one zip file, made while it is sent: no copy in memory or on disk."""

import os
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO

from core.errors import NotFound
from core.sized_zip import SizedZip, ZipEntry, ZipSink
from jobs.files.folder import JobFolder, job_folder, open_below, open_regular
from jobs.models import Checkpoint, Job
from models_registry import queries as registry
from models_registry.queries import CodeFile, Shown

__all__ = [
    "ResultFile",
    "checkpoint_chunks",
    "code_files",
    "driver_logs",
    "file_chunks",
    "log_chunks",
    "log_file",
    "open_result",
    "result_files",
    "result_name",
    "shown_code",
    "sized_zip",
    "zip_chunks",
]

_CHUNK = 256 * 1024
_CODE = "_submitted_code"
MAX_FILES = 1_000
#: Tidepool's own files in an attempt's folder, which is RESULT_DIR: nobody's results.
_OURS = re.compile(r"journal|coordinator\.json|launch\.[^/]*\.json")
#: What it writes below LOG_DIR; logs have a page of their own.
_OUR_LOGS = re.compile(r"log/[^/]*\.err|log/[^/]*/(stdout|stderr|error\.json|fatal)")

#: Names at the top of a folder, or a test of them.
_Names = tuple[str, ...] | Callable[[str], bool]


def result_name(job: Job) -> str:
    """A file name without anything that a header or a shell could misread."""
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "-" for letter in job.name)
    return f"{safe[:80].strip('-') or 'job'}-{job.pk}.zip"


def zip_chunks(job: Job) -> Iterator[bytes]:
    """Zip the files that the current attempt wrote, and the folder of the code. Links are left out."""
    return _zipped(_sources(job))


def sized_zip(job: Job) -> SizedZip:
    """The same, not compressed: its size is known before it is sent."""
    return SizedZip(
        ZipEntry(name, descriptor, partial(_open_below, top, name, names, even_hidden=True))
        for top, names in _sources(job)
        for name, descriptor in _open_files(top, names)
    )


def _sources(job: Job) -> list[tuple[Path, _Names]]:
    folder = job_folder(job)
    current = folder.attempt(job.run.attempt)
    if not job.run.attempt or not current.is_dir():
        raise NotFound("The job has no results yet: wait until it has started.")
    return [(current, _is_theirs), (folder.path, (_CODE,))]


def _is_theirs(name: str) -> bool:
    return not _OURS.fullmatch(name)


def _has(names: _Names, name: str) -> bool:
    return names(name) if callable(names) else name in names


def checkpoint_chunks(checkpoint: Checkpoint) -> Iterator[bytes]:
    path = job_folder(checkpoint.job).path / checkpoint.path
    if not path.is_dir():
        raise NotFound("The files of this checkpoint are gone: a newer one has taken its place.")
    return _zipped([(path.parent, (path.name,))])


def log_chunks(job: Job) -> Iterator[bytes]:
    """The logs of every attempt."""
    folder = job_folder(job)
    attempts = [folder.attempt(number) for number in range(1, job.run.attempt + 1)]
    present = [attempt for attempt in attempts if (attempt / "log").is_dir()]
    if not present:
        raise NotFound("The job has no logs yet: wait until it has started.")
    return _zipped([(attempt, ("log",)) for attempt in present], with_folder=True)


@dataclass(frozen=True)
class ResultFile:
    #: Below the folder of the current attempt, or with `_submitted_code/` before it, below the job's.
    path: str
    size_bytes: int
    modified_at: datetime

    @property
    def place(self) -> str:
        """The folder as the script knows it."""
        return {_CODE: "working folder", "log": "LOG_DIR"}.get(self.path.partition("/")[0], "RESULT_DIR")

    @property
    def shown_path(self) -> str:
        """Below that folder."""
        parts = self.path.split("/")
        return "/".join(parts[{"RESULT_DIR": 0}.get(self.place, 2) :])


def result_files(job: Job) -> list[ResultFile]:
    """Files that the run has written so far: in RESULT_DIR, LOG_DIR and its working folder; the first of very many."""
    folder = job_folder(job)
    current = folder.attempt(job.run.attempt)
    if not job.run.attempt or not current.is_dir():
        return []
    return [
        ResultFile(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
        for name, status in islice(chain(_results(current), _written_beside(folder)), MAX_FILES)
    ]


def _results(current: Path) -> Iterator[tuple[str, os.stat_result]]:
    return ((name, status) for name, status in _statuses(current, _is_theirs) if not _OUR_LOGS.fullmatch(name))


def _written_beside(folder: JobFolder) -> Iterator[tuple[str, os.stat_result]]:
    """Files that the run has written into the folder of its code, which its script starts in."""
    before = f"{_CODE}/{folder.code_name}/"
    for name, status in _statuses(folder.path, (_CODE,)):
        if not folder.is_submitted(name.removeprefix(before), status):
            yield name, status


def file_chunks(job: Job, path: str) -> Iterator[bytes]:
    """One of `result_files`, as it is now. Raises NotFound for everything else."""
    return _read_all(open_result(job, path))


def open_result(job: Job, path: str) -> int:
    """The descriptor of one of `result_files`, to be closed. Raises NotFound for everything else."""
    folder = job_folder(job)
    top, names = (folder.path, (_CODE,)) if path.startswith(f"{_CODE}/") else (_current(job, folder), _is_theirs)
    descriptor = _open_below(top, path, names)
    if descriptor is None:
        raise NotFound("There is no such file among the results: it may have been replaced by a newer one.")
    return descriptor


def _current(job: Job, folder: JobFolder) -> Path:
    return folder.attempt(job.run.attempt)


def code_files(job: Job) -> list[CodeFile]:
    """Of the copy that its ranks run in, as it is now, by name; none where it is gone."""
    folder = job_folder(job)
    if not folder.code.is_dir():
        return []
    before = f"{_CODE}/{folder.code_name}/"
    found = islice(_statuses(folder.path, (_CODE,)), registry.MAX_FILES)
    files = (CodeFile(name.removeprefix(before), status.st_size) for name, status in found)
    return sorted(files, key=lambda file: file.name)


def shown_code(job: Job, name: str) -> Shown | None:
    """One of `code_files`."""
    folder = job_folder(job)
    descriptor = _open_below(folder.path, f"{_CODE}/{folder.code_name}/{name}", (_CODE,))
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return Shown(name, registry.text_of(stream), os.fstat(descriptor).st_size)


def _statuses(top: Path, names: _Names) -> Iterator[tuple[str, os.stat_result]]:
    """Without names that are no UTF-8, or begin with a dot: they cannot be asked for."""
    for name, descriptor in _open_files(top, names):
        status = os.fstat(descriptor)
        os.close(descriptor)
        if name.encode(errors="ignore").decode() == name and not name.rpartition("/")[2].startswith("."):
            yield name, status


def _read_all(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def log_file(job: Job, attempt: int, path: str) -> int | None:
    """The descriptor of a file that this attempt logged, to be closed; None where there is none."""
    return _open_below(job_folder(job).attempt(attempt), path, ("log", "metrics.jsonl"))


def driver_logs(job: Job, attempt: int) -> list[str]:
    """Below the folder of the attempt: what the drivers of scripts written for WMLA printed, by name."""
    log = job_folder(job).attempt(attempt) / "log"
    return sorted(f"log/{path.parent.name}/stdout" for path in log.glob("driver*/stdout"))


def _open_below(top: Path, path: str, names: _Names, *, even_hidden: bool = False) -> int | None:
    """Below one of `names`, folder by folder, so that none of them can be a link when it is passed."""
    *folders, name = path.split("/")
    if not _has(names, (folders or [name])[0]) or any(not part or part in (".", "..") for part in (*folders, name)):
        return None
    if not even_hidden and any(part.startswith(".") for part in (*folders, name)):
        return None
    return open_below(top, path.split("/"))


def _zipped(sources: list[tuple[Path, _Names]], *, with_folder: bool = False) -> Iterator[bytes]:
    """`with_folder`: in the zip file, names begin with that of their source's folder."""
    sink = ZipSink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:  # type: ignore[call-overload]
        for top, names in sources:
            prefix = f"{top.name}/" if with_folder else ""
            for name, descriptor in _open_files(top, names):
                with os.fdopen(descriptor, "rb") as stream, _entry(archive, prefix + name, descriptor) as target:
                    while chunk := stream.read(_CHUNK):
                        target.write(chunk)
                        yield sink.take()
    yield sink.take()


def _entry(archive: zipfile.ZipFile, name: str, descriptor: int) -> IO[bytes]:
    modified = time.gmtime(max(os.fstat(descriptor).st_mtime, 315_619_200))  # zip begins in 1980
    info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode(), modified[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return archive.open(info, "w", force_zip64=True)


def _open_files(top: Path, names: _Names) -> Iterator[tuple[str, int]]:
    """(name in the zip, open descriptor) of the regular files, each opened relative to the folder it was found in.

    A training may still be writing here, and may replace a folder by a link at any moment.
    """
    for parent, folders, files, descriptor in os.fwalk(top, follow_symlinks=False):
        if parent == str(top):
            folders[:] = [name for name in folders if _has(names, name)]
            files = [name for name in files if _has(names, name)]
        # A name with a dot: not published yet, or being removed.
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(files):
            opened = open_regular(name, descriptor)
            if opened is not None:
                yield os.path.relpath(os.path.join(parent, name), top), opened
