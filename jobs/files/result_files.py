"""Results of a job: the list of files, single files, and all of them as a zip file, streamed without a copy."""

import os
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO

from tidepool.safe_open import open_below, open_regular

from core.errors import NotFound
from core.sized_zip import SizedZip, ZipEntry, ZipSink, time_in_zip
from core.time import moment_at
from jobs.files.job_folder import CHECKPOINT_GONE, job_folder
from jobs.models import Checkpoint, Job
from models_registry import queries as registry
from models_registry.queries import CodeFile, Shown

__all__ = [
    "MAX_FILES",
    "ResultFile",
    "checkpoint_chunks",
    "code_files",
    "driver_logs",
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
#: Tidepool's own files in an attempt's folder, which is RESULT_DIR. They are no results, and contain the values of the
#: job's environment variables, also under their temporary names.
_OURS = re.compile(r"journal|\.?(coordinator|launch\.[^/]*)\.json(\.new)?")
#: Tidepool's own files below LOG_DIR; logs have a separate page.
_OUR_LOGS = re.compile(r"log/[^/]*\.err|log/[^/]*/(stdout|stderr|error\.json|fatal|stacks|flame\.json|trace\.json)")

#: Tidepool's records in RESULT_DIR, which users may read -> descriptions.
_RECORDS = {
    "plans.jsonl": "Tidepool's record of the processes of each size",
    "metrics.jsonl": "Tidepool's record of the metrics of each step",
}
#: The same below LOG_DIR.
_LOG_RECORDS = {
    "gpu-memory.pickle": "Snapshot of torch's allocator when a GPU was full: pytorch.org/memory_viz opens it"
}

#: First path component of results of former attempts, and of results of the newest one with such a name.
_ATTEMPT = re.compile(r"attempt-([1-9][0-9]{0,8})")

#: Top-level names of a folder, or a predicate for them.
_Names = tuple[str, ...] | Callable[[str], bool]


def result_name(job: Job) -> str:
    """Return a file name of letters and figures in any script, which no shell could misread."""
    safe = "".join(letter if unicodedata.category(letter)[0] in "LMN" or letter in "-_" else "-" for letter in job.name)
    return f"{safe[:80].strip('-') or 'job'}-{job.pk}.zip"


@dataclass(frozen=True)
class _Source:
    top: Path
    names: _Names
    #: Maps a path below `top` to a path among the results.
    name_of: Callable[[str], str] = lambda name: name


def zip_chunks(job: Job) -> Iterator[bytes]:
    """Yield a zip file of the files that each attempt wrote and of the code's folder, without links."""
    former = [_written_in(job, number) for number in range(job.run.attempt - 1, 0, -1)]
    return _zipped([*_sources(job), *(source for source in former if source.top.is_dir())])


def sized_zip(job: Job) -> SizedZip:
    """Return an uncompressed zip file of the newest attempt, whose size is known in advance."""
    return SizedZip(
        ZipEntry(name, descriptor, partial(_open_below, source.top, name, source.names, even_hidden=True))
        for source in _sources(job)
        for name, descriptor in _open_files(source.top, source.names)
    )


def _sources(job: Job) -> list[_Source]:
    newest = _written_in(job, job.run.attempt)
    if not job.run.attempt or not newest.top.is_dir():
        raise NotFound("The training has no results yet: wait until it has started.")
    return [newest, _Source(job_folder(job).path, (_CODE,))]


def _written_in(job: Job, number: int) -> _Source:
    def name_of(name: str) -> str:
        is_plain = number == job.run.attempt and not _ATTEMPT.fullmatch(name.partition("/")[0])
        return name if is_plain else f"attempt-{number}/{name}"

    return _Source(job_folder(job).attempt(number), _is_theirs, name_of)


def _is_theirs(name: str) -> bool:
    return not _OURS.fullmatch(name)


def _has(names: _Names, name: str) -> bool:
    return names(name) if callable(names) else name in names


def checkpoint_chunks(checkpoint: Checkpoint) -> Iterator[bytes]:
    path = job_folder(checkpoint.job).path / checkpoint.path
    if not path.is_dir():
        raise NotFound(CHECKPOINT_GONE)
    return _zipped([_Source(path.parent, (path.name,))])


def log_chunks(job: Job) -> Iterator[bytes]:
    """Yield a zip file of the logs of every attempt."""
    folder = job_folder(job)
    attempts = [folder.attempt(number) for number in range(1, job.run.attempt + 1)]
    present = [attempt for attempt in attempts if (attempt / "log").is_dir()]
    if not present:
        raise NotFound("The training has no logs yet: wait until it has started.")
    return _zipped([_Source(attempt, ("log",), partial("{}/{}".format, attempt.name)) for attempt in present])


@dataclass(frozen=True)
class ResultFile:
    #: Path below the newest attempt's folder, or, with `attempt-<n>/` or `_submitted_code/`, below the job's folder.
    path: str
    #: Attempt that wrote the file; None: in the working folder, which all attempts share.
    attempt: int | None
    #: Folder as named for the script, and the path below it.
    place: str
    shown_path: str
    size_bytes: int
    modified_at: datetime
    #: Rank's folder below LOG_DIR, which each rank has to itself.
    member: str = ""
    #: Description of the content of a file that Tidepool has written.
    note: str = ""


def result_files(job: Job, most: int = MAX_FILES) -> list[ResultFile]:
    """Return files that the run has written so far, at most `most` of them.

    Files in RESULT_DIR and LOG_DIR of the newest attempt come first, then the working folder, then former attempts.
    """
    former = (_results(job, number) for number in range(job.run.attempt - 1, 0, -1))
    return list(islice(chain(_results(job, job.run.attempt), _written_beside(job), *former), most))


def _results(job: Job, attempt: int) -> Iterator[ResultFile]:
    source = _written_in(job, attempt)
    for name, status in _statuses(source.top, source.names) if source.top.is_dir() else ():
        if not _OUR_LOGS.fullmatch(name):
            folder, _, below = name.partition("/")
            is_log = folder == "log" and "/" in below
            place, shown = ("LOG_DIR", below.partition("/")[2]) if is_log else ("RESULT_DIR", name)
            member = below.partition("/")[0] if is_log else ""
            file = _result(source.name_of(name), attempt, place, shown, status)
            yield replace(file, member=member, note=(_LOG_RECORDS if is_log else _RECORDS).get(shown, ""))


def _written_beside(job: Job) -> Iterator[ResultFile]:
    """Yield files that the run has written to its working folder, beside the submitted code."""
    folder = job_folder(job)
    before = f"{_CODE}/{folder.code_name}/"
    for name, status in _statuses(folder.path, (_CODE,)) if job.run.attempt and folder.path.is_dir() else ():
        shown = name.removeprefix(before)
        if not folder.is_submitted(shown, status):
            yield _result(name, None, "working folder", shown, status)


def _result(path: str, attempt: int | None, place: str, shown: str, status: os.stat_result) -> ResultFile:
    return ResultFile(path, attempt, place, shown, status.st_size, moment_at(status.st_mtime))


def open_result(job: Job, path: str) -> int:
    """Return the descriptor of one of `result_files`, which the caller closes. Raises NotFound for other paths."""
    first, _, below = path.partition("/")
    attempt = _ATTEMPT.fullmatch(first)
    if attempt is not None and int(attempt[1]) <= job.run.attempt:
        source = _written_in(job, int(attempt[1]))
    elif first == _CODE:
        source, below = _Source(job_folder(job).path, (_CODE,)), path
    else:
        source, below = _written_in(job, job.run.attempt), path
    descriptor = _open_below(source.top, below, source.names)
    if descriptor is None:
        raise NotFound("File not found among the results: it may have been replaced by a newer one.")
    return descriptor


def code_files(job: Job) -> list[CodeFile]:
    """Return the submitted files in the code's copy that the ranks run in, by name; empty if the copy is gone."""
    folder = job_folder(job)
    if not folder.code.is_dir():
        return []
    before = f"{_CODE}/{folder.code_name}/"
    found = ((name.removeprefix(before), status.st_size) for name, status in _statuses(folder.path, (_CODE,)))
    submitted = (CodeFile(name, size) for name, size in found if folder.was_submitted(name))
    return sorted(islice(submitted, registry.MAX_FILES), key=lambda file: file.name)


def shown_code(job: Job, name: str) -> Shown | None:
    """Return one of `code_files`; None if it is gone."""
    folder = job_folder(job)
    descriptor = _open_below(folder.path, f"{_CODE}/{folder.code_name}/{name}", (_CODE,))
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return Shown(name, registry.text_of(stream), os.fstat(descriptor).st_size)


def _statuses(top: Path, names: _Names) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files except hidden ones and those with invalid UTF-8 in their names, which have no address."""
    for name, descriptor in _open_files(top, names):
        status = os.fstat(descriptor)
        os.close(descriptor)
        if name.encode(errors="ignore").decode() == name and not name.rpartition("/")[2].startswith("."):
            yield name, status


def log_file(job: Job, attempt: int, path: str) -> int | None:
    """Return the descriptor of a file that this attempt logged, which the caller closes; None if there is none."""
    return _open_below(job_folder(job).attempt(attempt), path, ("log", "metrics.jsonl"))


def driver_logs(job: Job, attempt: int) -> list[str]:
    """Return the logs of drivers of WMLA scripts, as names below the attempt's folder."""
    log = job_folder(job).attempt(attempt) / "log"
    return sorted(f"log/{path.parent.name}/stdout" for path in log.glob("driver*/stdout"))


def _open_below(top: Path, path: str, names: _Names, *, even_hidden: bool = False) -> int | None:
    """Open a file below one of `names` folder by folder, so that no component can be a link."""
    *folders, name = path.split("/")
    if not _has(names, (folders or [name])[0]) or any(not part or part in (".", "..") for part in (*folders, name)):
        return None
    if not even_hidden and any(part.startswith(".") for part in (*folders, name)):
        return None
    return open_below(top, path.split("/"))


def _zipped(sources: list[_Source]) -> Iterator[bytes]:
    sink = ZipSink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:  # type: ignore[call-overload]
        for source in sources:
            for name, descriptor in _open_files(source.top, source.names):
                with os.fdopen(descriptor, "rb") as stream, _entry(archive, source.name_of(name), descriptor) as target:
                    while chunk := stream.read(_CHUNK):
                        target.write(chunk)
                        yield sink.take()
    yield sink.take()


def _entry(archive: zipfile.ZipFile, name: str, descriptor: int) -> IO[bytes]:
    modified = time_in_zip(os.fstat(descriptor).st_mtime)
    info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode(), modified)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return archive.open(info, "w", force_zip64=True)


def _open_files(top: Path, names: _Names) -> Iterator[tuple[str, int]]:
    """Yield (name in the zip, descriptor) of the regular files, each opened relative to its folder.

    A training may be writing here at the same time, and may replace a folder by a link at any moment.
    """
    for parent, folders, files, descriptor in os.fwalk(top, follow_symlinks=False):
        if parent == str(top):
            folders[:] = [name for name in folders if _has(names, name)]
            files = [name for name in files if _has(names, name)]
        # A leading dot marks a folder that is not published yet, or is being removed.
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(files):
            opened = open_regular(name, descriptor)
            if opened is not None:
                yield os.path.relpath(os.path.join(parent, name), top), opened
