"""Readers of the journals of this host's jobs, from the last entry that the control plane has acknowledged.

The files are the record; at most a few thousand entries of each are in memory. Entries that are not acknowledged in
time are sent again.
"""

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from tidepool.journal import LONGEST_LINE_BYTES, Leads, object_in
from tidepool.protocol import DesiredJob, JournalEntry, from_json
from tidepool.recorded_metrics import RECORDED_FILE, RecordedMetrics
from tidepool.safe_open import open_ours
from tidepool.units import size_words

from workers.executor.curves.observer import CurveObserver
from workers.executor.environments.requirements import folder_in
from workers.executor.folder_watch import host_journal_path
from workers.executor.saved_state import JobKey, load_json, save_json

__all__ = ["JournalTail", "Journals"]

logger = logging.getLogger(__name__)

#: Entries of a journal, and bytes of their lines, after which no more is read until some are acknowledged.
_MEMORY_LIMIT, _MEMORY_BYTES = 2000, 8 * 1024 * 1024
#: Bytes of the lines of a report. Sealed, they are at most five times as long, and the control plane reads 16 MiB.
_REPORT_BYTES = 3 * 1024 * 1024
#: Depth of an entry's lists and objects, above which none of ours goes.
_DEEPEST = 20
_LEAD = re.compile(rb'"lead_number":\s*(\d{1,18})\b')
#: Seconds without acknowledgement before entries are sent again; doubled each time, as they may only be queued.
_RESEND_SECONDS = 5.0
_LONGEST_RESEND_SECONDS = 40.0
#: Seconds for which the successful exit of a plain script waits for the last points of its curves.
_CURVES_SECONDS = 3.0


class _Waiting(NamedTuple):
    entry: JournalEntry
    #: Length of its line in bytes.
    size: int


class JournalTail:
    """Reader of one journal. Lines of metrics are bare: they have neither number nor kind."""

    def __init__(self, name: str, path: Path, acknowledged: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.path = path
        self.acknowledged = acknowledged
        self._bare = name.endswith(".metrics")
        #: Whether entries are sent only after those before are acknowledged, so that the control plane sets the pace.
        self._paced = name.endswith((".metrics", ".recorded", ".observed"))
        self._observed = name.endswith(".observed")
        self._recorded = RecordedMetrics() if name.endswith(".recorded") else None
        self._leads = Leads()
        self._clock = clock
        self._offset = 0
        self._read = 0
        self._sent = acknowledged
        #: Time of the last acknowledgement, or of the first entry sent since then.
        self._unanswered_since = 0.0
        self._patience_seconds = _RESEND_SECONDS
        #: Entries that are read and not acknowledged, and the length of their lines.
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0

    def has_unsent(self) -> bool:
        self._rewind_when_due()
        self._read_on()
        if self._paced and self._sent > self.acknowledged:
            return False
        return bool(self._waiting) and self._waiting[-1].entry.number > self._sent

    def has_urgent(self) -> bool:
        """Return whether an unsent entry may change decisions of the control plane: metrics and checkpoints do not."""
        return not self._paced and self.has_unsent() and any(each.entry.kind != "checkpoint" for each in self._unsent())

    def done(self) -> bool:
        """Return whether everything written so far is acknowledged."""
        self._read_on()
        return not self._waiting

    def take(self, limit: int, share_bytes: int, most_bytes: int) -> "list[_Waiting]":
        """Return the next entries to send, and count them as sent.

        share_bytes: length that their lines may have together; a single one may be longer, up to most_bytes.
        """
        taken: list[_Waiting] = []
        length = 0
        for each in islice(self._unsent(), limit):
            length += each.size
            if length > (share_bytes if taken else most_bytes):
                break
            taken.append(each)
        if taken:
            if self._sent == self.acknowledged:
                self._unanswered_since = self._clock()
            self._sent = taken[-1].entry.number
        return taken

    def put_back(self, number: int) -> None:
        """Count the entry `number`, which was taken but not sent, and those after it as unsent again."""
        self._sent = max(self.acknowledged, min(self._sent, number - 1))

    def acknowledge(self, number: int) -> None:
        if number > self.acknowledged:
            self.acknowledged, self._unanswered_since = number, self._clock()
            self._patience_seconds = _RESEND_SECONDS
        while self._waiting and self._waiting[0].entry.number <= self.acknowledged:
            self._waiting_bytes -= self._waiting.popleft().size
        self._sent = max(self._sent, self.acknowledged)

    def has_success(self) -> bool:
        """Return whether the exit of a rank that has ended with 0 by itself is to be sent."""
        exits = [each.entry.data for each in self._unsent() if each.entry.kind == "rank_exited"]
        return any(data.get("code") == 0 and not data.get("stopped") for data in exits)

    def _unsent(self) -> "Iterator[_Waiting]":
        return (each for each in self._waiting if each.entry.number > self._sent)

    def _rewind_when_due(self) -> None:
        if self._sent > self.acknowledged and self._clock() - self._unanswered_since > self._patience_seconds:
            self._sent = self.acknowledged
            self._patience_seconds = min(2 * self._patience_seconds, _LONGEST_RESEND_SECONDS)

    def _place(self) -> tuple[Path, int]:
        """Return the file's path, and how many of its last parts scripts might make links. Raises ValueError."""
        if self._recorded is None or not self.path.is_symlink():
            return self.path, 2
        target = self.path.readlink()  # of ours, to the file of rank 0
        if target.is_absolute() or ".." in target.parts:
            raise ValueError(f"it leads to {target}")
        return self.path.parent / target, 1 + len(target.parts)

    def _read_on(self) -> None:
        """Read what is new. Raises OSError, or ValueError for what is no journal of ours: scripts may write there."""
        path, parts = self._place()
        if not path.is_file() or path.lstat().st_size <= self._offset:
            return
        with open(open_ours(path, os.O_RDONLY, parts=parts), "rb") as file:
            file.seek(self._offset)
            while len(self._waiting) < _MEMORY_LIMIT and self._waiting_bytes < _MEMORY_BYTES:
                line = file.readline(LONGEST_LINE_BYTES)
                if len(line) == LONGEST_LINE_BYTES:
                    raise ValueError(f"line {self._read + 1} is longer than {size_words(LONGEST_LINE_BYTES)}")
                if not line.endswith(b"\n"):  # still being written
                    break
                self._offset += len(line)
                self._read += 1
                # The step of a recorded entry depends on the lines before it.
                if self._read > self.acknowledged or self._recorded:
                    entry = self._parsed(line)
                elif lead := _LEAD.search(line):
                    self._leads.believes({"lead_number": int(lead[1])})
                if self._read > self.acknowledged:
                    self._waiting.append(_Waiting(entry, len(line)))
                    self._waiting_bytes += len(line)

    def _parsed(self, line: bytes) -> JournalEntry:
        if self._recorded:
            return self._entry("recorded", self._recorded.point(line))
        if self._observed:
            return self._entry("observed", object_in(line))
        values = object_in(line)
        if not values or _depth_exceeds(values, _DEEPEST):
            raise ValueError(f"line {self._read} is no entry")
        kind, data = ("step", values) if self._bare else (values["kind"], values["data"])
        if not self._leads.believes(values):
            # The control plane counts it, and does nothing about it.
            kind, data = "superseded", {}
        return self._entry(kind, data)

    def _entry(self, kind: Any, data: Any) -> JournalEntry:
        """Return an entry that makes no report invalid. Raises ProtocolError."""
        values = {"journal": self.name, "number": self._read, "kind": kind, "data": data}
        return from_json(JournalEntry, values)


class Journals:
    """All journals of this host. Thread-safe: the supervisor adds journals and acknowledges, the reporter takes."""

    def __init__(
        self, host: str, file: Path, clock: Callable[[], float] = time.monotonic, curves: CurveObserver | None = None
    ) -> None:
        self._host = host
        self._file = file
        self._curves = curves or CurveObserver(file.parent / "curves")
        self._clock = clock
        self._guard = threading.Lock()
        self._tails: dict[str, JournalTail] = {}
        #: Jobs that have ended here: their journals are read to the end.
        self._released: set[JobKey] = set()
        #: Journals whose exit waits for curves: the time, and the read of the curves under way then.
        self._waiting_exits: dict[str, tuple[float, int]] = {}

    def recall(self) -> None:
        """Continue from the positions of an earlier executor."""
        self._curves.recall()
        with self._guard:
            for name, (path, acknowledged) in load_json(self._file).items():
                self._tails[name] = JournalTail(name, Path(path), acknowledged, self._clock)

    def follow(self, desired: DesiredJob) -> None:
        folder, prefix = Path(desired.launch.folder), f"{desired.job}.{desired.attempt}"
        paths = {f"{prefix}.shim.{self._host}": folder / "journal" / f"shim.{self._host}.jsonl"}
        if folder_in(desired.launch.requirements.splitlines()):
            paths[f"{prefix}.host.{self._host}"] = host_journal_path(folder, self._host)
        if desired.lead:
            paths[f"{prefix}.coordinator"] = folder / "plans.jsonl"
            paths[f"{prefix}.metrics"] = folder / "metrics.jsonl"
            if desired.launch.engine != "elastic":
                paths[f"{prefix}.recorded"] = folder / RECORDED_FILE
                paths[f"{prefix}.observed"] = self._curves.path((desired.job, desired.attempt))
                self._curves.watch(desired)
        with self._guard:
            self._released.discard((desired.job, desired.attempt))
            new = {name: JournalTail(name, path, 0, self._clock) for name, path in paths.items()}
            if new.keys() - self._tails.keys():
                self._tails = new | self._tails
                self._save()

    def acknowledged(self, name: str) -> int:
        """Return the number of the journal's last entry that the control plane has stored."""
        with self._guard:
            return self._tails[name].acknowledged if name in self._tails else 0

    def release(self, job: JobKey) -> None:
        self._curves.release(job)
        with self._guard:
            self._released.add(job)

    def acknowledge(self, numbers: dict[str, int]) -> None:
        with self._guard:
            changed = False
            for name, number in numbers.items():
                tail = self._tails.get(name)
                if tail is not None and number > tail.acknowledged:
                    tail.acknowledge(number)
                    changed = True
            if self._forget_read_out() or changed:
                self._save()

    def has_urgent(self) -> bool:
        """Return whether an unsent entry should be sent at once."""
        with self._guard:
            return any(tail.has_urgent() for tail in self._tails_with_unsent())

    def has_unsent(self) -> bool:
        with self._guard:
            return bool(self._tails_with_unsent())

    def take(self, limit: int) -> list[JournalEntry]:
        """Return the next entries of all journals, each journal with an equal share of the limit."""
        with self._guard:
            tails = self._tails_with_unsent()
            taken: list[_Waiting] = []
            bytes_left = _REPORT_BYTES
            for tails_left, tail in zip(range(len(tails), 0, -1), tails, strict=True):
                some = tail.take((limit - len(taken)) // tails_left, bytes_left // tails_left, bytes_left)
                bytes_left -= sum(each.size for each in some)
                taken += some
            return [each.entry for each in taken]

    def put_back(self, entries: Sequence[JournalEntry]) -> None:
        """Return the entries of a report that was not sent, so that the next report carries them."""
        with self._guard:
            for entry in entries:
                if tail := self._tails.get(entry.journal):
                    tail.put_back(entry.number)

    def _tails_with_unsent(self) -> list[JournalTail]:
        found = []
        for tail in list(self._tails.values()):
            try:
                if tail.has_unsent() and not self._awaits_curves(tail):
                    found.append(tail)
            except (OSError, ValueError, KeyError) as error:
                logger.error("journal=%s: reading failed, the journal is no longer followed: %s", tail.name, error)
                del self._tails[tail.name]
        return found

    def _awaits_curves(self, tail: JournalTail) -> bool:
        """Return whether an exit is held back: a training that has succeeded has the last points of its curves."""
        observed = self._tails.get(".".join([*tail.name.split(".")[:2], "observed"]))
        if observed is None or ".shim." not in tail.name or not tail.has_success():
            self._waiting_exits.pop(tail.name, None)
            return False
        since, turn = self._waiting_exits.setdefault(tail.name, (self._clock(), self._curves.turn))
        if self._clock() - since > _CURVES_SECONDS:
            return False
        return not (self._curves.has_read_after(turn) and observed.done())

    def _forget_read_out(self) -> bool:
        gone = [name for name, tail in self._tails.items() if self._is_over(_job_of(name)) and tail.done()]
        for name in gone:
            del self._tails[name]
            if name.endswith(".observed"):
                self._curves.forget(_job_of(name))
        return bool(gone)

    def _is_over(self, job: JobKey) -> bool:
        return job in self._released and not self._curves.watches(job)

    def _save(self) -> None:
        save_json(self._file, {name: [str(tail.path), tail.acknowledged] for name, tail in self._tails.items()})


def _depth_exceeds(values: Any, most: int) -> bool:
    """Return whether lists and objects are nested more deeply."""
    level = [values]
    for _ in range(most):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [*chain.from_iterable(inner)]
    return bool(level)


def _job_of(name: str) -> JobKey:
    job, attempt, _ = name.split(".", 2)
    return int(job), int(attempt)
