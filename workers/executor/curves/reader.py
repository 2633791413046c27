"""Reader of one training's output and files, which continues from its last positions."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tidepool.journal import entries_in
from tidepool.nni_environment import REPORTS_FILE
from tidepool.own_checkpoints import PROGRESS_FILE
from tidepool.protocol import GenerationPlanned, ObservedStep, to_json
from tidepool.recorded_metrics import RECORDED_FILE, chart_value
from tidepool.safe_open import open_below

from workers.executor.curves.curve_sources import Names, Owner
from workers.executor.curves.growing_files import (
    BEHIND_AT_END,
    EventSource,
    LibrarySource,
    LogSource,
    ResultsSource,
    TableSource,
)
from workers.executor.curves.parsed_points import Point
from workers.executor.curves.pattern import LinePattern, PatternError, compiled
from workers.executor.curves.val_dict_list import RESULTS_FILE

__all__ = ["Watch", "as_line", "read_again"]

Source = LogSource | TableSource | ResultsSource | EventSource | LibrarySource

_KINDS: Final[dict[str, type[Source]]] = {
    "log": LogSource,
    "csv": TableSource,
    "json": ResultsSource,
    "tensorboard": EventSource,
    "library": LibrarySource,
}
_STREAMS: Final = ("stdout", "stderr")
#: Highest number of files of metrics of a training, of entries per search, and depth of folders.
_MAX_FILES: Final = 50
_MAX_ENTRIES: Final = 5_000
_MAX_DEPTH: Final = 8
_EPOCH_ARGUMENTS: Final = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "epoch")
_NOT_LOOKED_INTO: Final = frozenset({"checkpoint", "journal", "__pycache__", ".git", "node_modules"})
#: Largest value of the database's column.
_MAX_STEP: Final = 2**31 - 1
_MANIFEST: Final = "code.json"
_LIBRARY: Final = f"attempt:{PROGRESS_FILE}"
#: Files that libraries, and `nni`, report to.
_REPORTED: Final = (PROGRESS_FILE, REPORTS_FILE)
#: Highest number of reads when logs are parsed again, each of at most 200 lines.
_MOST_LOOKS: Final = 2_000


@dataclass
class Watch:
    """Sources of an attempt with their positions."""

    #: Folder of the attempt, and folder of the code, in which the script runs.
    folder: Path
    code_folder: Path
    arguments: list[str]
    #: Pattern of the job's owner and its revision; "": common formats.
    pattern: str = ""
    revision: int = 0
    #: Sources by top folder and path.
    sources: dict[str, Source] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    #: Progress of the whole training, by stream or file.
    parts: dict[str, float | None] = field(default_factory=dict)
    #: Streams whose first step was read.
    begun: list[str] = field(default_factory=list)

    def look(self, now: float, *, search: bool, is_last: bool) -> list[ObservedStep]:
        """Return the new steps. search: look for new files, too."""
        if self.has_session():
            return []
        self._find_logs()
        for where in _REPORTED:
            if _size(self.folder / where):
                self.sources.setdefault(f"attempt:{where}", LibrarySource(where))
        if search:
            self._find_files()
        steps: list[ObservedStep] = []
        for key, source in self.sources.items():
            file = self._opened(key)
            if file is None:
                continue
            try:
                steps += self._steps(source, source.read(file, self._pattern(), is_last=is_last), now)
            finally:
                os.close(file)
        return steps

    def has_session(self) -> bool:
        """Return whether the script reports its metrics itself, through a session or WMLA's EMetrics."""
        return any(_size(self.folder / name) for name in ("metrics.jsonl", RECORDED_FILE))

    def set_pattern(self, pattern: str, revision: int) -> None:
        """Set a newer pattern, by which the logs are parsed again from their beginning."""
        if revision <= self.revision:
            return
        self.pattern, self.revision = pattern, revision
        self.parts = {where: part for where, part in self.parts.items() if where == PROGRESS_FILE}
        self.sources = {key: source for key, source in self.sources.items() if source.kind != "log"}
        self.names.forget_logs()

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "code_folder": str(self.code_folder),
            "arguments": self.arguments,
            "pattern": self.pattern,
            "revision": self.revision,
            "sources": [[key, source.kind, source.to_json()] for key, source in self.sources.items()],
            "names": self.names.owners,
            "parts": self.parts,
            "begun": self.begun,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Watch":
        return cls(
            Path(values["folder"]),
            Path(values["code_folder"]),
            values["arguments"],
            values["pattern"],
            values["revision"],
            {key: _KINDS[kind].from_json(source) for key, kind, source in values["sources"]},
            Names({name: Owner(*owner) for name, owner in values["names"].items()}),
            values["parts"],
            values.get("begun", []),
        )

    # --- sources ---

    def _find_logs(self) -> None:
        """Add the logs of rank 0 as soon as its member is known."""
        if any(source.kind == "log" for source in self.sources.values()):
            return
        entries = entries_in(self.folder / "plans.jsonl")
        planned = next((entry for entry in entries if isinstance(entry, GenerationPlanned)), None)
        if planned is None or not planned.members:
            return
        first = planned.members[0]
        for stream in _STREAMS:
            key = f"attempt:log/{first.member_id}.{first.host}/{stream}"
            source = LogSource(stream)
            source.reader.total_epochs = _epochs_in(self.arguments)
            self.sources[key] = source

    def _find_files(self) -> None:
        submitted = _submitted(self.code_folder)
        for key, where in _metric_files({"attempt": self.folder, "code": self.code_folder}, submitted):
            if len(self.sources) >= _MAX_FILES:
                return
            if key not in self.sources:
                self.sources[key] = _source_of(where)

    def _opened(self, key: str) -> int | None:
        top, _, path = key.partition(":")
        return open_below(self.folder if top == "attempt" else self.code_folder, path.split("/"))

    def _pattern(self) -> LinePattern | None:
        try:
            return compiled(self.pattern) if self.pattern else None
        except PatternError:  # validated by a control plane with another RE2: fall back to common formats
            return None

    # --- points ---

    def _steps(self, source: Source, points: Iterable[Point], now: float) -> list[ObservedStep]:
        """Return one entry per step; values that a source repeats for a step replace earlier ones."""
        owner, found = Owner(source.kind, source.where[-200:]), dict[int, ObservedStep]()
        for point in points:
            if point.step > _MAX_STEP:
                continue
            if source.kind in ("log", "library"):
                self.parts[source.where] = point.progress
            named = {
                known: value if value is None else chart_value(known, value)
                for name, value in point.metrics.items()
                if (known := self.names.name_for(owner, source.stem, name)) is not None
            }
            before = found.pop(point.step, None)
            metrics = {**before.metrics, **named} if before else named
            found[point.step] = ObservedStep(
                step=point.step,
                at=now if point.at is None else point.at,
                kind=owner.kind,
                where=owner.where,
                metrics=metrics,
                epoch=min(point.epoch, _MAX_STEP),
                progress=self._progress(),
                revision=self.revision,
                left_out=self.names.left_out,
                has_gaps=getattr(source, "has_gaps", False),
                counted=point.counted,
            )
        steps = list(found.values())
        if source.kind == "log" and _LIBRARY in self.sources:  # the library counts, and bars may count otherwise
            return [step for step in steps if step.metrics]
        # A bar without metrics is drawn ten times a second: keep its newest position, and the very first, which tells
        # whether the script continued.
        first = next((step for step in steps if step.step), None) if source.where not in self.begun else None
        if first is not None:
            self.begun.append(source.where)
        return [step for step in steps[:-1] if step.metrics or step is first] + steps[-1:]

    def _progress(self) -> float | None:
        """Return the progress according to the library, or else the highest of the logs."""
        reported = self.parts.get(PROGRESS_FILE)
        logged = (part for part in self.parts.values() if part is not None)
        return max(logged, default=None) if reported is None else reported


def read_again(
    folder: Path, code_folder: Path, logs: Iterable[tuple[str, str]], pattern: str, revision: int, now: float
) -> list[ObservedStep]:
    """Parse the logs of an attempt that has ended again, from their beginning, by another pattern.

    logs: (path below the folder, stream). now: time of steps that have none.
    """
    sources: dict[str, Source] = {
        f"attempt:{path}": LogSource(stream, most_behind=BEHIND_AT_END) for path, stream in logs
    }
    watch = Watch(folder, code_folder, [], pattern, revision, sources)
    # Search other files only for the names of their curves: each name belongs to one source.
    steps = watch.look(now, search=True, is_last=True)
    for _ in range(_MOST_LOOKS):
        before = watch.to_json()
        steps += watch.look(now, search=False, is_last=True)
        if watch.to_json() == before:
            break
    return [step for step in steps if step.kind == "log"]


def _epochs_in(arguments: list[str]) -> int:
    """Return the number of epochs in the script's arguments, such as `--epochs 10`; 0 if there is none."""
    for name, value in pairwise([*arguments, ""]):
        option, _, assigned = name.partition("=")
        number = assigned or value
        plain = option.lstrip("-").replace("-", "_").lower()
        if option.startswith("-") and plain in _EPOCH_ARGUMENTS and number.isdecimal() and len(number) < 8:
            return int(number)
    return 0


def _metric_files(tops: dict[str, Path], submitted: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield (key, path) of files that can have metrics, in a fixed order. Links are not followed."""
    for top, folder in tops.items():
        entry_count = 0
        for parent, folders, files in os.walk(folder):
            entry_count += len(folders) + len(files)
            below = Path(parent).relative_to(folder)
            if entry_count > _MAX_ENTRIES:
                break
            is_deep = len(below.parts) >= _MAX_DEPTH
            folders[:] = [] if is_deep else sorted(name for name in folders if name not in _NOT_LOOKED_INTO)
            for name in sorted(files):
                path = (below / name).as_posix()
                if _can_have_metrics(name) and not (top == "code" and path in submitted):
                    yield f"{top}:{path}", path


def _can_have_metrics(name: str) -> bool:
    return "tfevents" in name or name.endswith((".csv", ".tsv")) or name == RESULTS_FILE


def _source_of(where: str) -> Source:
    name = where.rpartition("/")[2]
    if name == RESULTS_FILE:
        return ResultsSource(where)
    return EventSource(where) if "tfevents" in name else TableSource(where)


def _submitted(code_folder: Path) -> frozenset[str]:
    """Return the files that were submitted with the script, some of which may be tables."""
    try:
        return frozenset(json.loads((code_folder.parent.parent / _MANIFEST).read_text()))
    except (OSError, ValueError, TypeError):
        return frozenset()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def as_line(step: ObservedStep) -> bytes:
    return json.dumps(to_json(step), separators=(",", ":")).encode() + b"\n"
