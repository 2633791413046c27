"""The folder of a job, `results/<user>/batchworkdir/<job>/`, in the layout that WMLA users know.

Each attempt writes to its own folder. `current` links to the newest one, and fixed names beside it (`log`,
`checkpoint`, ...) lead through `current`, so that readers need not know about attempts.
"""

import errno
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType

from django.conf import settings
from tidepool.safe_open import open_below, remove_below

from core.folders import empty_folders, regular_files
from jobs.models import Job

__all__ = [
    "CHECKPOINT_FILES",
    "CHECKPOINT_GONE",
    "INITIAL",
    "KEPT",
    "PUBLISHED",
    "TRAIN_DIR",
    "JobFolder",
    "job_folder",
    "link_checkpoint",
    "link_file",
    "safe_name",
    "stage",
]

#: Names in an attempt's folder that are linked from the job's folder.
PUBLISHED = ("log", "checkpoint", "model", "metrics.jsonl", "plans.jsonl", "val_dict_list.json")
_FORMER = "attempt-*/checkpoint"
_CODE = "_submitted_code"
_CHUNK_BYTES = 1024 * 1024
#: Folder below a job's folder with its initial checkpoint or weights.
INITIAL = "initial"
#: Folder below a job's folder with the checkpoints that users keep.
KEPT = "kept"
CHECKPOINT_GONE = "The files of this checkpoint no longer exist: a newer one has replaced it."
CHECKPOINT_FILES = ("state.safetensors", "state.json")
#: Folder of trained weights below an attempt's folder: WMLA's `--train_dir`.
TRAIN_DIR = "model/train"
_CREATED_AT_START = ("log", "checkpoint", TRAIN_DIR, "journal")
_IGNORED_CODE = shutil.ignore_patterns("__pycache__", ".git", "*.pyc")
#: File in a job's folder that lists the submitted files as `{path: [size, mtime in ns]}`, and the empty folders with a
#: slash behind the path. All others are the run's.
_MANIFEST = "code.json"
#: Largest length of a name, within the 255 bytes that file systems allow.
_MAX_NAME_BYTES = 120


@dataclass(frozen=True)
class JobFolder:
    path: Path
    #: Name of the submitted code's folder below `_submitted_code`.
    code_name: str

    @property
    def code(self) -> Path:
        return self.path / _CODE / self.code_name

    def is_submitted(self, name: str, status: os.stat_result) -> bool:
        """Return whether this file is unchanged since submission. `name`: relative to the folder of the code."""
        return self._submitted is None or self._submitted.get(name) == [status.st_size, status.st_mtime_ns]

    def was_submitted(self, name: str) -> bool:
        """Return whether a file of this name was submitted; the run may have changed it. `name`: as above."""
        return self._submitted is None or name in self._submitted

    def changed_files(self) -> list[str]:
        """Return the submitted files that the run has changed or removed."""
        if self._submitted is None:
            return []
        now = _facts_of(self.code) if self.code.is_dir() else {}
        return sorted(name for name, facts in self._submitted.items() if facts != now.get(name) and name[-1:] != "/")

    @cached_property
    def _submitted(self) -> dict[str, list[int]] | None:
        return _manifest_of(self.code)

    def attempt(self, number: int) -> Path:
        return self.path / f"attempt-{number}"

    def start_attempt(self, number: int) -> Path:
        """Create the folder of a new attempt and point `current` to it. Idempotent."""
        # Unfinished checkpoints of sessions that died in former attempts: no process will publish them.
        for left in [*self.path.glob(f"{_FORMER}/.writing-*"), *self.path.glob(f"{_FORMER}/.dropped-*")]:
            remove_below(self.path, left.relative_to(self.path).parts)
        folder = self.attempt(number)
        for name in _CREATED_AT_START:
            (folder / name).mkdir(parents=True, exist_ok=True)
        scratch = self.path / f".current-{uuid.uuid4().hex}"
        scratch.symlink_to(folder.name)
        scratch.replace(self.path / "current")
        return folder

    def initial(self) -> Path:
        """Return the initial checkpoint or weights."""
        [path] = (self.path / INITIAL).iterdir()
        return path

    def relative(self, attempt: int, path: str) -> str:
        """Return `path`, absolute or relative to the attempt's folder, relative to the job's folder."""
        absolute = Path(os.path.normpath(self.attempt(attempt) / path))
        if not absolute.is_relative_to(self.path):
            raise ValueError(f"{path} is not inside {self.path}")
        return str(absolute.relative_to(self.path))


def job_folder(job: Job) -> JobFolder:
    """Return the folder of a job, from the job's number, owner and model."""
    return JobFolder(_user_folder(job.owner.get_username()) / str(job.pk), safe_name(job.model.model.name))


def link_file(top: Path, name: str, target: Path) -> None:
    """Link the file at `name` below `top`, opened without following links, to `target`. Raises OSError."""
    descriptor = open_below(top, name.split("/"))
    if descriptor is None:
        raise OSError(f"{Path(name).name} is gone, or a link")
    with os.fdopen(descriptor, "rb") as stream:
        try:
            os.link(f"/proc/self/fd/{descriptor}", target, follow_symlinks=True)
        except OSError:  # another file system, or no support for hard links
            with target.open("xb") as copy:
                shutil.copyfileobj(stream, copy)


def link_checkpoint(top: Path, name: str, target: Path) -> None:
    """Create a folder with the files of the checkpoint `name` below `top`. Raises OSError."""
    target.mkdir()
    for part in CHECKPOINT_FILES:
        link_file(top, f"{name}/{part}", target / part)


@dataclass(frozen=True)
class StagedFolder:
    """A new job's folder under a temporary name, before the job has a number."""

    path: Path

    def settle(self, job: Job) -> None:
        """Move the whole folder to its final name, atomically."""
        target = job_folder(job).path
        # A leftover of a lost database is kept under another name.
        with suppress(FileNotFoundError):
            target.rename(target.with_name(f"{target.name}.replaced-{uuid.uuid4().hex[:8]}"))
            _remove_links(target)
        self.path.rename(target)

    def discard(self, job: Job | None = None) -> None:
        """Remove the folder, whether it was settled for `job` or not."""
        shutil.rmtree(self.path, ignore_errors=True)
        if job is not None and job.pk is not None:
            shutil.rmtree(job_folder(job).path, ignore_errors=True)


def stage(user_name: str, model_name: str, code: Path, more: Mapping[str, str] = MappingProxyType({})) -> StagedFolder:
    """Copy the code and create the fixed names, next to the user's jobs. Raises OSError, leaving nothing behind.

    more: names in the code's folder -> contents of files that are written there, too.
    """
    staged = StagedFolder(_user_folder(user_name) / f".new-{uuid.uuid4().hex}")
    try:
        staged.path.mkdir(parents=True, mode=0o755)
        # Links stay links: their targets could be anything.
        copy = staged.path / _CODE / safe_name(model_name)
        copied = partial(_copy_below, code)
        shutil.copytree(code, copy, symlinks=True, ignore=_ignored_of(code), copy_function=copied)
        for name, content in more.items():
            (copy / name).unlink(missing_ok=True)  # a link would lead out of the folder
            (copy / name).write_text(content)
        (staged.path / _MANIFEST).write_text(json.dumps(_facts_of(copy)))
        for name in PUBLISHED:
            (staged.path / name).symlink_to(Path("current") / name)
    except OSError:
        staged.discard()
        raise
    return staged


def _copy_below(code: Path, source: str, target: str) -> None:
    """Copy a file of the code, which a training may replace by a link meanwhile: what that leads to is not copied."""
    descriptor = open_below(Path(os.path.realpath(code)), Path(source).relative_to(code).parts)
    if descriptor is None:
        raise OSError(errno.ENOENT, "it is gone, or no longer a file", source)
    with os.fdopen(descriptor, "rb") as stream, open(target, "xb") as copy:
        status = os.fstat(descriptor)
        shutil.copyfileobj(stream, copy, _CHUNK_BYTES)
        os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _facts_of(folder: Path) -> dict[str, list[int]]:
    found = {name: file.stat() for name, file in regular_files(folder)}
    facts = {name: [status.st_size, status.st_mtime_ns] for name, status in found.items()}
    return facts | {f"{name}/": [0, 0] for name in empty_folders(folder)}


def _manifest_of(code: Path) -> dict[str, list[int]] | None:
    """Return the manifest of a job's submitted code; None if there is none, or the folder is not a job's."""
    try:
        manifest: dict[str, list[int]] = json.loads((code.parent.parent / _MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return manifest if code.parent.name == _CODE else None


def _ignored_of(code: Path) -> Callable[[str, list[str]], set[str]]:
    """Return a filter for `copytree` that excludes the files that a job's run wrote among its code."""
    manifest = _manifest_of(code)
    submitted = {Path(name) for name in manifest or ()}
    kept = submitted | {parent for name in submitted for parent in name.parents}

    def ignored(folder: str, names: list[str]) -> set[str]:
        left_out = set(_IGNORED_CODE(folder, names))
        here = Path(folder).relative_to(code)
        return left_out if manifest is None else left_out | {name for name in names if here / name not in kept}

    return ignored


def safe_name(name: str) -> str:
    """Return a safe folder name for a user-given name: the name itself where possible."""
    clean = re.sub(r"[^\w.@+ -]", "_", name)
    clean = re.sub(r"^\.", "_", clean)
    return clean.encode()[:_MAX_NAME_BYTES].decode(errors="ignore") or "_"


def _user_folder(user_name: str) -> Path:
    return Path(settings.TIDEPOOL_RESULTS_ROOT) / safe_name(user_name) / "batchworkdir"


def _remove_links(target: Path) -> None:
    """Remove the links beside a job's folder, used by scripts for WMLA, before a new job takes its number."""
    for entry in target.parent.iterdir():
        if entry.is_symlink() and entry.readlink() == Path(target.name, "current"):
            entry.unlink(missing_ok=True)
