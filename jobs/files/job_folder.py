"""The folder of a job: `results/<user>/batchworkdir/<job>/`, the tree that WMLA users know.

One folder per attempt keeps what each life of the job wrote. `current` names the newest, and fixed names beside it
(`log`, `checkpoint`, ...) lead through it, so that a reader need not know about attempts.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from django.conf import settings
from tidepool.safe_open import open_below

from core.folders import regular_files
from jobs.models import Job

__all__ = [
    "CHECKPOINT_FILES",
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

#: What the current attempt publishes beside its folder.
PUBLISHED = ("log", "checkpoint", "model", "metrics.jsonl", "plans.jsonl", "val_dict_list.json")
_FORMER = "attempt-*/checkpoint"
_CODE = "_submitted_code"
#: Below a job's folder: the checkpoint or weights that it begins with.
INITIAL = "initial"
#: Below it, too: the checkpoints that people keep.
KEPT = "kept"
CHECKPOINT_FILES = ("state.safetensors", "state.json")
#: In an attempt's folder: trained weights, as WMLA's `--train_dir`.
TRAIN_DIR = "model/train"
_CREATED_AT_START = ("log", "checkpoint", TRAIN_DIR, "journal")
_IGNORED_CODE = shutil.ignore_patterns("__pycache__", ".git", "*.pyc")
#: Below a job's folder: the submitted files, as `{path: [size, mtime in ns]}`. A run wrote what else is among them.
_MANIFEST = "code.json"
#: Leaves room below the 255 bytes that file systems allow for a name.
_MAX_NAME_BYTES = 120


@dataclass(frozen=True)
class JobFolder:
    path: Path
    #: Folder name of the submitted code below `_submitted_code`.
    code_name: str

    @property
    def code(self) -> Path:
        return self.path / _CODE / self.code_name

    def is_submitted(self, name: str, status: os.stat_result) -> bool:
        """Return whether this file of the code's folder is as it was submitted. `name`: relative to it."""
        return self._submitted is None or self._submitted.get(name) == [status.st_size, status.st_mtime_ns]

    @cached_property
    def _submitted(self) -> dict[str, list[int]] | None:
        return _manifest_of(self.code)

    def attempt(self, number: int) -> Path:
        return self.path / f"attempt-{number}"

    def start_attempt(self, number: int) -> Path:
        """Make the folder of a new attempt and let `current` name it. May be repeated."""
        # What sessions of former attempts were writing when they died: nobody is left to publish it.
        for left in [*self.path.glob(f"{_FORMER}/.writing-*"), *self.path.glob(f"{_FORMER}/.dropped-*")]:
            shutil.rmtree(left, ignore_errors=True)
        folder = self.attempt(number)
        for name in _CREATED_AT_START:
            (folder / name).mkdir(parents=True, exist_ok=True)
        scratch = self.path / f".current-{uuid.uuid4().hex}"
        scratch.symlink_to(folder.name)
        scratch.replace(self.path / "current")
        return folder

    def initial(self) -> Path:
        """The files that the first attempt begins with."""
        [path] = (self.path / INITIAL).iterdir()
        return path

    def relative(self, attempt: int, path: str) -> str:
        """`path` as an attempt wrote it (absolute, or relative to its folder), relative to the job's folder."""
        absolute = Path(os.path.normpath(self.attempt(attempt) / path))
        if not absolute.is_relative_to(self.path):
            raise ValueError(f"{path} is not inside {self.path}")
        return str(absolute.relative_to(self.path))


def job_folder(job: Job) -> JobFolder:
    """Needs the job's owner and model."""
    return JobFolder(_user_folder(job.owner.get_username()) / str(job.pk), safe_name(job.model.model.name))


def link_file(top: Path, name: str, target: Path) -> None:
    """Give the very file that is opened at `name` below `top`, by no link on the way, another name. Raises OSError."""
    descriptor = open_below(top, name.split("/"))
    if descriptor is None:
        raise OSError(f"{Path(name).name} is gone, or a link")
    with os.fdopen(descriptor, "rb") as stream:
        try:
            os.link(f"/proc/self/fd/{descriptor}", target, follow_symlinks=True)
        except OSError:  # another file system, or one without links
            with target.open("xb") as copy:
                shutil.copyfileobj(stream, copy)


def link_checkpoint(top: Path, name: str, target: Path) -> None:
    """Make a folder with the files of the checkpoint `name` below `top`. Raises OSError."""
    target.mkdir()
    for part in CHECKPOINT_FILES:
        link_file(top, f"{name}/{part}", target / part)


@dataclass(frozen=True)
class StagedFolder:
    """A job's folder made under a temporary name, before the job has a number."""

    path: Path

    def settle(self, job: Job) -> None:
        """Give it its place, at once and as a whole."""
        target = job_folder(job).path
        # Left by a database that is gone: kept, under another name.
        with suppress(FileNotFoundError):
            target.rename(target.with_name(f"{target.name}.replaced-{uuid.uuid4().hex[:8]}"))
            _remove_links(target)
        self.path.rename(target)

    def discard(self, job: Job | None = None) -> None:
        """Leave nothing behind, whether it was settled for `job` or not."""
        shutil.rmtree(self.path, ignore_errors=True)
        if job is not None and job.pk is not None:
            shutil.rmtree(job_folder(job).path, ignore_errors=True)


def stage(user_name: str, model_name: str, code: Path) -> StagedFolder:
    """Copy the code and make the fixed names, next to the user's jobs. Raises OSError and leaves nothing then."""
    staged = StagedFolder(_user_folder(user_name) / f".new-{uuid.uuid4().hex}")
    try:
        staged.path.mkdir(parents=True, mode=0o755)
        # Links stay links: copying what they lead to could copy anything.
        copy = staged.path / _CODE / safe_name(model_name)
        shutil.copytree(code, copy, symlinks=True, ignore=_ignored_of(code))
        (staged.path / _MANIFEST).write_text(json.dumps(_facts_of(copy)))
        for name in PUBLISHED:
            (staged.path / name).symlink_to(Path("current") / name)
    except OSError:
        staged.discard()
        raise
    return staged


def _facts_of(folder: Path) -> dict[str, list[int]]:
    found = {name: file.stat() for name, file in regular_files(folder)}
    return {name: [status.st_size, status.st_mtime_ns] for name, status in found.items()}


def _manifest_of(code: Path) -> dict[str, list[int]] | None:
    """Return the manifest of a job's submitted code; None where there is none, or the folder is no job's."""
    try:
        manifest: dict[str, list[int]] = json.loads((code.parent.parent / _MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return manifest if code.parent.name == _CODE else None


def _ignored_of(code: Path) -> Callable[[str, list[str]], set[str]]:
    """Return a filter for `copytree`: of a job's code, all that its run wrote."""
    manifest = _manifest_of(code)
    submitted = {Path(name) for name in manifest or ()}
    kept = submitted | {parent for name in submitted for parent in name.parents}

    def ignored(folder: str, names: list[str]) -> set[str]:
        left_out = set(_IGNORED_CODE(folder, names))
        here = Path(folder).relative_to(code)
        return left_out if manifest is None else left_out | {name for name in names if here / name not in kept}

    return ignored


def safe_name(name: str) -> str:
    """A folder name for what a person named: the name itself where it can be one."""
    clean = re.sub(r"[^\w.@+ -]", "_", name)
    clean = re.sub(r"^\.", "_", clean)
    return clean.encode()[:_MAX_NAME_BYTES].decode(errors="ignore") or "_"


def _user_folder(user_name: str) -> Path:
    return Path(settings.TIDEPOOL_RESULTS_ROOT) / safe_name(user_name) / "batchworkdir"


def _remove_links(target: Path) -> None:
    """Remove the links beside a job's folder, by which scripts for WMLA find it: the next job of this number is new."""
    for entry in target.parent.iterdir():
        if entry.is_symlink() and entry.readlink() == Path(target.name, "current"):
            entry.unlink(missing_ok=True)
