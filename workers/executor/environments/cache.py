"""Cache of this host's environments: built once, shared by jobs with equal requirements, removed when unused.

Executors of one machine share the folder. A build holds a file lock on its environment; others wait for the lock.
"""

import fcntl
import logging
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidepool.backoff import Interval

from workers.executor.environments.builder import BuildError, Unsolvable, build, built_at
from workers.executor.environments.given import FolderError, Folders
from workers.executor.environments.requirements import Wanted, digest_of, installed, wanted_of
from workers.executor.saved_state import JobKey

__all__ = ["Environments", "Failed", "Ready"]

logger = logging.getLogger(__name__)

#: Seconds for which any unused environment is kept, and for which at most _KEPT of them are kept.
_KEPT_SECONDS: Final = 24 * 3600.0
_LONGEST_SECONDS: Final = 14 * 24 * 3600.0
_KEPT: Final = 20
_COLLECT_SECONDS: Final = 3600.0
_LOCK_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Ready:
    #: Folder of the environment; "": the cluster's packages suffice.
    folder: str = ""
    #: Whether it has nothing of the cluster's: its processes have another parent.
    is_whole: bool = False
    #: Version of the Python of a whole one, and of its torch; "": it has none.
    python: str = ""
    torch: str = ""
    #: Container image that its Python is in; "": this machine has it.
    image: str = ""
    #: Virtual or conda environment that has its Python; "": `folder` is one itself.
    given: str = ""


@dataclass(frozen=True)
class Failed:
    why: str


class Environments:
    """Environments of jobs. The supervisor's thread asks and never waits; builds run in their own threads."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        there: Callable[[], Mapping[str, str]] = installed,
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        """answered: called, by another thread, once there is an answer to a question."""
        self._folder = folder
        self._environment = {**environment, "UV_CACHE_DIR": str(folder / "cache")}
        self._installed, self._answered = there, answered
        self.folders = Folders(environment)
        self._guard = threading.Lock()
        self._answers: dict[JobKey, Ready | Failed] = {}
        self._wanted: set[JobKey] = set()
        self._collecting = Interval(_COLLECT_SECONDS, last=time.monotonic())

    def ask(self, job: JobKey, requirements: str, log: Path) -> Ready | Failed | None:
        """Return the environment of a job; None while it is being built, with output in `log`."""
        if not requirements:
            return Ready()
        with self._guard:
            answer, is_known = self._answers.get(job), job in self._wanted
            self._wanted.add(job)
        if answer is None and not is_known:
            target = (self._make, (job, requirements.splitlines(), log))
            threading.Thread(target=target[0], args=target[1], name=f"environment {job[0]}", daemon=True).start()
        return answer

    def release(self, job: JobKey) -> None:
        """Forget a job that has ended here. A build for which no other job waits is abandoned."""
        with self._guard:
            self._wanted.discard(job)
            self._answers.pop(job, None)

    def _make(self, job: JobKey, requirements: list[str], log: Path) -> None:
        try:
            answer: Ready | Failed = self._made(job, requirements, log)
        except (BuildError, FolderError) as error:
            answer = Failed(str(error))
        except Exception as error:
            logger.exception("job=%s attempt=%s: building its environment failed", *job)
            answer = Failed(f"{type(error).__name__}: {error}")
        with self._guard:
            if job in self._wanted:
                self._answers[job] = answer
        self._answered()
        self._collect_when_due()

    def _made(self, job: JobKey, requirements: list[str], log: Path) -> Ready:
        there = self._installed()
        wanted = wanted_of(requirements, there, platform.python_version())
        if wanted is None:
            return Ready()
        if wanted.given:
            wanted = replace(wanted, contents=self.folders.read(Path(wanted.given)))
        try:
            return self._built(job, wanted, there, log)
        except Unsolvable as error:
            if wanted.is_whole:
                raise
            beside = error
        # A package needs another version of one that no layer replaces. A script may count on torch, as over a layer.
        packages = (*wanted.packages, *({"torch"} & there.keys()))
        try:
            return self._built(job, replace(wanted, packages=packages, is_whole=True), there, log)
        except Unsolvable as error:
            raise BuildError(f"{beside}\nAnd in an environment of its own: {error}") from None

    def _built(self, job: JobKey, wanted: Wanted, there: Mapping[str, str], log: Path) -> Ready:
        folder = self._folder / digest_of(wanted, there, platform.python_version())
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._folder / f"{folder.name}.lock", "a") as lock:
            if not _locked(lock.fileno()):
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a") as output:
                    output.write("Waiting for another training on this host that installs the same packages.\n")
            while not _locked(lock.fileno()):
                if not self._is_wanted(job):
                    raise BuildError("no training waits for the environment any longer")
                time.sleep(_LOCK_SECONDS)
            if built_at(folder) is None:
                build(
                    folder,
                    wanted,
                    there,
                    environment=self._environment,
                    log=log,
                    wanted=lambda: self._is_wanted(job),
                )
            os.utime(folder)
            built = built_at(folder)
        assert built is not None, "a build leaves a complete environment or raises"
        return Ready(str(folder), built.is_whole, built.python, built.torch, built.image, built.given)

    def _is_wanted(self, job: JobKey) -> bool:
        with self._guard:
            return job in self._wanted

    def _collect_when_due(self) -> None:
        if not self._collecting.is_due(time.monotonic()):
            return
        with self._guard:
            used = {answer.folder for answer in self._answers.values() if isinstance(answer, Ready)}
        collect(self._folder, used, time.time())


def collect(folder: Path, used: set[str], now: float) -> list[str]:
    """Remove old environments that no job uses, except the newest ones; return their names."""
    for name in filter(None, used):
        os.utime(name)
    found = [path for path in folder.iterdir() if built_at(path) is not None]
    found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    removed = []
    for place, path in enumerate(found):
        age = now - path.stat().st_mtime
        if str(path) in used or age < _KEPT_SECONDS or (place < _KEPT and age < _LONGEST_SECONDS):
            continue
        with open(folder / f"{path.name}.lock", "a") as lock:
            if _locked(lock.fileno()):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path.name)
    return removed


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
