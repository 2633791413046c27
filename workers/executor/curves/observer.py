"""The executor's thread that reads output and files of plain scripts into journals of their curves.

Only the lead host of a job reads. The thread appends each step of a source as a line to a journal in the run folder;
reports carry these lines like those of the other journals. The thread saves its positions after the lines: an executor
killed in between repeats some steps, and storing those again changes nothing.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import structs
from tidepool.protocol import DesiredJob, ObservedStep

from workers.executor.curves.reader import Watch, as_line
from workers.executor.saved_state import JobKey, load_json, save_json

__all__ = ["CurveObserver"]

logger = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 1.0
#: Number of reads between two searches for new files.
_SEARCH_EVERY: Final = 4
#: Size of the journal of an attempt from which on not all points are kept. A point has about 150 bytes.
_MAX_JOURNAL_BYTES: Final = 128 * 1024**2
#: Time in seconds for which one job's files are read without a pause: other jobs wait for it.
_TURN_SECONDS: Final = 0.3
#: Highest number of turns for a job whose processes have ended: other processes may go on writing.
_LAST_TURNS: Final = 600


class CurveObserver:
    """Thread that reads the curves of jobs. Thread-safe: the supervisor adds and releases jobs, the reporter asks."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._guard = threading.Lock()
        self._watches: dict[JobKey, Watch] = {}
        self._released: set[JobKey] = set()
        #: Turns since the processes of a job have ended.
        self._last_turns: Counter[JobKey] = Counter()
        #: Patterns of the jobs' owners with their revisions, for the next read: reading a file may take long.
        self._patterns: dict[JobKey, tuple[str, int]] = {}
        #: Numbers of the newest read that has begun, and of the newest one that is over.
        self._turn = 0
        self._read_turn = 0
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="curves", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()

    def path(self, job: JobKey) -> Path:
        """Return the path of the journal of observed steps."""
        return self._folder / f"{job[0]}.{job[1]}.jsonl"

    def recall(self) -> None:
        """Continue watching the jobs of an earlier executor."""
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
        """Read the rest of an attempt whose processes have ended, then stop watching it."""
        with self._guard:
            self._released.add(job)

    def watches(self, job: JobKey) -> bool:
        with self._guard:
            return job in self._watches

    @property
    def turn(self) -> int:
        """Return the number of the newest read that has begun: it may have passed lines that are written now."""
        return self._turn

    def has_read_after(self, turn: int) -> bool:
        """Return whether a read that began after this one is over."""
        return self._read_turn > turn

    def forget(self, job: JobKey) -> None:
        """Delete the journal, which is stored."""
        self.path(job).unlink(missing_ok=True)
        with self._guard:
            self._released.discard(job)

    def look(self) -> None:
        """Read new lines and files of each job, once."""
        self._turn += 1
        with self._guard:
            watches, released, patterns = dict(self._watches), set(self._released), dict(self._patterns)
        for key, watch in watches.items():
            try:
                watch.set_pattern(*patterns.get(key, ("", 0)))
                is_last = key in released
                is_read = self._read_on(key, watch, search=is_last or self._turn % _SEARCH_EVERY == 1, is_last=is_last)
                self._last_turns[key] += is_last
                if is_last and (is_read or self._last_turns[key] >= _LAST_TURNS):
                    self._stop_watching(key)
            except Exception:
                logger.exception("job=%s attempt=%s: reading its curves failed, retrying", *key)
                if key in released:
                    self._stop_watching(key)
        self._read_turn = self._turn

    def _read_on(self, key: JobKey, watch: Watch, *, search: bool, is_last: bool) -> bool:
        """Read on for a while; return whether all of the files has been read."""
        end = time.monotonic() + _TURN_SECONDS
        while self._look_at(key, watch, search=search, is_last=is_last):
            search = False
            if time.monotonic() > end:
                return False
        return True

    def _stop_watching(self, key: JobKey) -> None:
        with self._guard:
            self._watches.pop(key, None)
            self._patterns.pop(key, None)
        self._last_turns.pop(key, None)
        self._state_file(key).unlink(missing_ok=True)

    def _look_at(self, key: JobKey, watch: Watch, *, search: bool, is_last: bool) -> bool:
        """Read new lines and files; return whether there were any."""
        before = watch.to_json()
        steps = watch.look(self._clock(), search=search, is_last=is_last)
        after = watch.to_json()
        if steps:
            self._append(self.path(key), steps)
        if after != before:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            save_json(self._state_file(key), after)
        return after != before

    def _append(self, journal: Path, steps: list[ObservedStep]) -> None:
        """Append the steps; to a full journal, only the newest of each source."""
        journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(journal, "ab") as file:
            if file.tell() >= _MAX_JOURNAL_BYTES:
                newest = {(step.kind, step.where): step for step in steps}
                steps = [structs.replace(step, has_gaps=True) for step in newest.values()]
            file.write(b"".join(map(as_line, steps)))

    def _state_file(self, job: JobKey) -> Path:
        return self._folder / f"{job[0]}.{job[1]}.state.json"

    def _run(self) -> None:
        while not self._leaving.wait(_EVERY_SECONDS):
            self.look()
