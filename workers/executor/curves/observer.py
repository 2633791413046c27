"""The executor's thread that reads what plain scripts print and write, for the journals of their curves.

Only the lead host of a job reads. What it finds it appends to a file in its run folder, one line for each step of a
source, which the reports carry on as those of the other journals. Where it is is written down after that: an
executor that was killed in between says some steps again, and they are stored as what they are.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidepool.protocol import DesiredJob

from workers.executor.curves.reader import Watch, as_line
from workers.executor.saved_state import JobKey, load_json, save_json

__all__ = ["CurveObserver"]

logger = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 1.0
#: Looks between two searches for new files.
_SEARCH_EVERY: Final = 4
#: Of what was observed of an attempt. A point has about 150 bytes.
_MAX_JOURNAL_BYTES: Final = 128 * 1024**2
#: Looks at a job whose processes are gone, until nothing more comes.
_LAST_LOOKS: Final = 60


class CurveObserver:
    """Thread-safe: the supervisor watches and releases jobs, the reporter asks whether they are still looked at."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._guard = threading.Lock()
        self._watches: dict[JobKey, Watch] = {}
        self._released: set[JobKey] = set()
        #: The owners' patterns with their numbers, for the next look: reading a file may take long.
        self._patterns: dict[JobKey, tuple[str, int]] = {}
        self._turn = 0
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="curves", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()

    def path(self, job: JobKey) -> Path:
        """The journal of what is observed."""
        return self._folder / f"{job[0]}.{job[1]}.jsonl"

    def recall(self) -> None:
        """Go on with what an earlier executor watched."""
        for file in self._folder.glob("*.state.json"):
            job, attempt = file.name.split(".")[:2]
            if values := load_json(file):
                self._watches[int(job), int(attempt)] = Watch.from_json(values)

    def watch(self, desired: DesiredJob) -> None:
        key, launch = (desired.job, desired.attempt), desired.launch
        with self._guard:
            self._patterns[key] = desired.log_pattern, desired.log_pattern_revision
            is_read_out = key in self._released or self.path(key).exists()
            if key not in self._watches and not is_read_out:
                self._watches[key] = Watch(Path(launch.folder), Path(launch.code_folder), list(launch.arguments))

    def release(self, job: JobKey) -> None:
        """Read what is left of an attempt whose processes are gone, and no more."""
        with self._guard:
            self._released.add(job)

    def watches(self, job: JobKey) -> bool:
        with self._guard:
            return job in self._watches

    def forget(self, job: JobKey) -> None:
        """The journal is stored."""
        self.path(job).unlink(missing_ok=True)
        with self._guard:
            self._released.discard(job)

    def look(self) -> None:
        """Read on, once, in each job."""
        self._turn += 1
        with self._guard:
            watches, released, patterns = dict(self._watches), set(self._released), dict(self._patterns)
        for key, watch in watches.items():
            try:
                watch.set_pattern(*patterns.get(key, ("", 0)))
                if key in released:
                    self._read_out(key, watch)
                else:
                    self._look_at(key, watch, search=self._turn % _SEARCH_EVERY == 1, is_last=False)
            except Exception:
                logger.exception("job=%s attempt=%s: what it writes could not be read this time", *key)

    def _read_out(self, key: JobKey, watch: Watch) -> None:
        try:
            for _ in range(_LAST_LOOKS):
                if not self._look_at(key, watch, search=True, is_last=True):
                    break
        finally:
            with self._guard:
                self._watches.pop(key, None)
                self._patterns.pop(key, None)
            self._state_file(key).unlink(missing_ok=True)

    def _look_at(self, key: JobKey, watch: Watch, *, search: bool, is_last: bool) -> bool:
        """Read new lines and files. Returns whether there was anything new."""
        before = watch.to_json()
        steps = watch.look(self._clock(), search=search, is_last=is_last)
        after = watch.to_json()
        if steps:
            self._append(self.path(key), b"".join(map(as_line, steps)))
        if after != before:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            save_json(self._state_file(key), after)
        return after != before

    def _append(self, journal: Path, lines: bytes) -> None:
        journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(journal, "ab") as file:
            if file.tell() < _MAX_JOURNAL_BYTES:
                file.write(lines)

    def _state_file(self, job: JobKey) -> Path:
        return self._folder / f"{job[0]}.{job[1]}.state.json"

    def _run(self) -> None:
        while not self._leaving.wait(_EVERY_SECONDS):
            self.look()
