"""Cache of this host's environments: built once, shared by jobs with equal requirements, removed when unused.

Executors of one machine share the folder. A build holds a file lock on its environment; others wait for the lock.
"""

import fcntl
import logging
import os
import platform
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidepool.backoff import Interval
from uv import find_uv_bin

from workers.executor.environments.builder import NOT_WANTED, BuildError, Unsolvable, build, built_at, opened_log
from workers.executor.environments.disk import size_on_disk
from workers.executor.environments.given import FolderError, Folders
from workers.executor.environments.requirements import Wanted, digest_of, installed, wanted_of

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
    #: Size of its files, which may be shared with others.
    size_bytes: int = 0


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
        *,
        answered: Callable[[], None] = lambda: None,
        limit_bytes: int | None = None,
        agreed: Path | None = None,
    ) -> None:
        """answered: called, by another thread, once there is an answer to a question.

        limit_bytes: of all environments and uv's cache; those in use may take more. agreed: folder that all hosts
        share, by which they get the same versions; None: they do not.
        """
        self._agreed = agreed
        self._folder = folder
        self._limit_bytes = limit_bytes
        #: Whether anything was built since the last collection.
        self._has_grown = False
        self._environment = {**environment, "UV_CACHE_DIR": str(folder / "cache")}
        self._installed, self._answered = there, answered
        self.folders = Folders(environment)
        self._guard = threading.Lock()
        self._answers: dict[Hashable, Ready | Failed] = {}
        self._wanted: set[Hashable] = set()
        #: Requirements -> the cluster's packages and the environment found for these.
        self._found: dict[str, tuple[Mapping[str, str], Ready]] = {}
        self._collecting = Interval(_COLLECT_SECONDS, last=time.monotonic())

    def ask(self, who: Hashable, requirements: str, log: Path, *, is_fresh: bool = False) -> Ready | Failed | None:
        """Return the environment of a job, or of whoever wants one, and keep it until `release`.

        None: it is being built, with output in `log`. is_fresh: the first call has it built again, unless others use
        it.
        """
        if not requirements:
            return Ready()
        with self._guard:
            answer, is_known = self._answers.get(who), who in self._wanted
            self._wanted.add(who)
        if answer is None and not is_known:
            if not is_fresh and (kept := self._kept_by_others(requirements)) is not None:
                with self._guard:
                    self._answers[who] = kept
                return kept
            target = (self._make, (who, requirements.splitlines(), log, is_fresh))
            threading.Thread(target=target[0], args=target[1], name=f"environment {who}", daemon=True).start()
        return answer

    def _kept_by_others(self, requirements: str) -> Ready | None:
        """Return the environment for these requirements if others keep it, so that nothing has to be looked up."""
        there, found = self._found.get(requirements, ({}, Ready()))
        # The contents of a folder that an administrator keeps are read again for each attempt.
        is_kept = bool(found.folder) and not found.given and found.folder in self._used()
        return found if is_kept and Path(found.folder).exists() and there == self._installed() else None

    def release(self, who: Hashable) -> None:
        """Forget a job that has ended here. A build for which nobody else waits is abandoned."""
        with self._guard:
            self._wanted.discard(who)
            self._answers.pop(who, None)

    def remove(self, folder: str) -> None:
        """Remove an environment soon, unless somebody uses it or builds it again."""
        threading.Thread(target=self._remove, args=(Path(folder),), name=f"removal {folder}", daemon=True).start()

    def _remove(self, folder: Path) -> None:
        with open(self._folder / f"{folder.name}.lock", "a") as lock:
            if str(folder) not in self._used() and _locked(lock.fileno()):
                shutil.rmtree(folder, ignore_errors=True)

    def _used(self, besides: Hashable = None) -> set[str]:
        """Return the folders of environments in use by anybody else."""
        with self._guard:
            answers = [answer for who, answer in self._answers.items() if who != besides]
        return {answer.folder for answer in answers if isinstance(answer, Ready)}

    def _make(self, who: Hashable, requirements: list[str], log: Path, is_fresh: bool) -> None:
        try:
            answer: Ready | Failed = self._made(who, requirements, log, is_fresh)
        except (BuildError, FolderError) as error:
            answer = Failed(str(error))
        except Exception as error:
            logger.exception("%s: building its environment failed", who)
            answer = Failed(f"{type(error).__name__}: {error}")
        with self._guard:
            if who in self._wanted:
                self._answers[who] = answer
        self._answered()
        self._collect_when_due()

    def _made(self, who: Hashable, requirements: list[str], log: Path, is_fresh: bool) -> Ready:
        there = self._installed()
        found = self._found_for(who, requirements, there, log, is_fresh)
        used = self._used()
        kept = {lines: each for lines, each in self._found.items() if each[1].folder in used}
        self._found = {**kept, "\n".join(requirements): (there, found)}
        return found

    def _found_for(
        self, who: Hashable, requirements: list[str], there: Mapping[str, str], log: Path, is_fresh: bool
    ) -> Ready:
        wanted = wanted_of(requirements, there, platform.python_version())
        if wanted is None:
            return Ready()
        if wanted.given:
            wanted = replace(wanted, contents=self.folders.read(Path(wanted.given)))
        try:
            return self._built(who, wanted, there, log, is_fresh)
        except Unsolvable as error:
            if wanted.is_whole:
                raise
            beside = error
        # A package needs another version of one that no layer replaces. A script may count on torch, as over a layer.
        packages = (*wanted.packages, *({"torch"} & there.keys()))
        try:
            return self._built(who, replace(wanted, packages=packages, is_whole=True), there, log, is_fresh)
        except Unsolvable as error:
            raise BuildError(f"{beside}\nAnd in an environment of its own: {error}") from None

    def _built(self, who: Hashable, wanted: Wanted, there: Mapping[str, str], log: Path, is_fresh: bool) -> Ready:
        folder = self._folder / digest_of(wanted, there, platform.python_version())
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._folder / f"{folder.name}.lock", "a") as lock:
            if not _locked(lock.fileno()):
                with opened_log(log) as output:
                    output.write(b"Waiting for another training on this host that installs the same packages.\n")
            while not _locked(lock.fileno()):
                if not self._is_wanted(who):
                    raise BuildError(NOT_WANTED)
                time.sleep(_LOCK_SECONDS)
            agreed = self._agreed / f"{folder.name}.txt" if self._agreed is not None else None
            if is_fresh and str(folder) not in self._used(besides=who):
                shutil.rmtree(folder, ignore_errors=True)
            if built_at(folder) is None:
                build(
                    folder,
                    wanted,
                    there,
                    environment=self._environment,
                    log=log,
                    wanted=lambda: self._is_wanted(who),
                    agreed=agreed,
                )
                self._has_grown = True
            os.utime(folder)
            built = built_at(folder)
        assert built is not None, "a build leaves a complete environment or raises"
        known = (built.python, built.torch, built.image, built.given, built.size_bytes)
        return Ready(str(folder), built.is_whole, *known)

    def _is_wanted(self, who: Hashable) -> bool:
        with self._guard:
            return who in self._wanted

    def _collect_when_due(self) -> None:
        has_grown = self._has_grown and self._limit_bytes is not None
        if not (has_grown or self._collecting.is_due(time.monotonic())):
            return
        self._has_grown = False
        collect(self._folder, self._used, time.time(), self._limit_bytes)


def collect(folder: Path, used: Callable[[], set[str]], now: float, limit_bytes: int | None = None) -> list[str]:
    """Remove environments that nobody uses, and return their names: old ones, and above the limit more.

    used: returns the folders in use. Above the limit, uv's cache goes first, whose files the environments share, and
    then those environments whose last use is longest ago.
    """
    for name in filter(None, used()):
        os.utime(name)
    found = [path for path in folder.iterdir() if built_at(path) is not None]
    found.sort(key=lambda path: path.stat().st_mtime)
    if _is_above(folder, limit_bytes):
        clean = [find_uv_bin(), "cache", "clean", "--cache-dir", str(folder / "cache"), "--no-config"]
        subprocess.run(clean, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    newest, removed = {*found[-_KEPT:]}, []
    for path in found:
        age = now - path.stat().st_mtime
        is_old = age >= (_LONGEST_SECONDS if path in newest else _KEPT_SECONDS)
        if str(path) in used() or not (is_old or _is_above(folder, limit_bytes)):
            continue
        with open(folder / f"{path.name}.lock", "a") as lock:
            if _locked(lock.fileno()) and str(path) not in used():
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path.name)
    return removed


def _is_above(folder: Path, limit_bytes: int | None) -> bool:
    return limit_bytes is not None and size_on_disk(folder) > limit_bytes


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
