"""Publication of checkpoints: a rename by the coordinator, so that a half-written one is never seen.

A rank writes a checkpoint to a temporary folder, syncs it to disk, and reports it. Only the coordinator renames it, if
the writer still takes part in the training. A crash leaves at most a temporary folder, which is removed later.
"""

import os
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tidepool.protocol import (
    CheckpointFailed,
    CheckpointPublished,
    CoordinatorMessage,
    Entry,
    GenerationActive,
    MemberMessage,
    Restored,
)
from tidepool.torch.coordination.roster import Action, Publish, Send

__all__ = [
    "Publications",
    "aside_name",
    "drop",
    "drop_unpublished",
    "final_name",
    "prune",
    "publish",
    "sweep",
]

_ASIDE, _DROPPED = ".writing-", ".dropped-"


@dataclass
class Publications:
    """The coordinator's record of its attempt's checkpoints. Pure: no file is touched."""

    steps: set[int] = field(default_factory=set)
    #: Time when the newest one was published; before the first, when training started. 0: it has not started.
    newest_at: float = 0.0
    restoration_told: bool = False

    def recall(self, entries: Iterable[Entry]) -> None:
        """Take over the records of an earlier coordinator from its journal."""
        for entry in entries:
            match entry:
                case Restored():
                    self.restoration_told = True
                case CheckpointPublished():
                    self.steps.add(entry.step)
                    self.newest_at = entry.at
                case GenerationActive():
                    self.newest_at = self.newest_at or entry.at

    def newest(self, member_id: str, now: float) -> list[Action]:
        """Return the newest checkpoint's age, for a rank that may become rank 0 and write the next."""
        return [Send(member_id, CoordinatorMessage("checkpointed", age=now - self.newest_at))] if self.newest_at else []

    def decide(
        self, member_id: str, message: MemberMessage, now: float, *, takes_part: bool, over: bool
    ) -> list[Action]:
        """Publish the checkpoint of a rank that goes on training, once for each step; refuse others."""
        if message.step in self.steps:  # the answer was lost with the predecessor
            return [Send(member_id, CoordinatorMessage("checkpointed", step=message.step, age=now - self.newest_at))]
        superseded = any(message.step < step for step in self.steps)
        if over or not takes_part or superseded or message.written is None:
            return self.refused(member_id, message)
        return [Publish(member_id, message)]

    def published(self, message: MemberMessage, path: str, ranks: Iterable[str], now: float) -> list[Action]:
        written = message.written
        assert written is not None, "nothing else is asked to be published"
        record = CheckpointPublished(message.step, message.epoch, path, written.size_bytes, written.sha256, at=now)
        self.steps.add(message.step)
        self.newest_at = now
        return [
            record,
            *(Send(member_id, CoordinatorMessage("checkpointed", step=message.step)) for member_id in ranks),
        ]

    def not_published(self, member_id: str, message: MemberMessage, error: str, now: float) -> list[Action]:
        return [CheckpointFailed(message.step, message.epoch, error, at=now), *self.refused(member_id, message)]

    def refused(self, member_id: str, message: MemberMessage) -> list[Action]:
        """Tell the writer of a checkpoint that it is not published."""
        return [Send(member_id, CoordinatorMessage("checkpoint_refused", step=message.step))]

    def failed(self, message: MemberMessage, now: float) -> CheckpointFailed:
        return CheckpointFailed(message.step, message.epoch, message.error, at=now)

    def restored(self, message: MemberMessage, now: float) -> list[Action]:
        """Record once the checkpoint that the attempt continues from; the rank reports it on each connection."""
        restoration = message.restoration
        if self.restoration_told or restoration is None:
            return []
        self.restoration_told = True
        return [Restored(message.step, message.epoch, restoration.used, restoration.unusable, at=now)]


def final_name(step: int) -> str:
    return f"step-{step:09d}"


def aside_name(step: int, member_id: str) -> str:
    return f"{_ASIDE}{step:09d}-{member_id}"


def publish(folder: Path, step: int, member_id: str) -> Path:
    """Give the checkpoint that `member_id` wrote its final name. May be repeated. Raises OSError if there is none."""
    aside, final = folder / aside_name(step, member_id), folder / final_name(step)
    if aside.exists() and final.exists():  # by a rank that died before its checkpoint was recorded
        drop(final)
    if aside.exists() or not final.exists():
        aside.rename(final)
    _sync(folder)
    return final


def prune(folder: Path, kept: int, stored: Collection[str] = ()) -> None:
    """Remove all published checkpoints but the newest `kept`, and the newest `kept` of those that are `stored`.

    stored: names of the checkpoints that the control plane knows of: the next attempt continues from one of them.
    """
    published = sorted(folder.glob("step-*"))
    known = [path for path in published if path.name in stored]
    left = {*published[-max(1, kept) :], *known[-max(1, kept) :]}
    for old in published:
        if old not in left:
            drop(old)


def sweep(folder: Path, writers: Collection[str]) -> None:
    """Remove what was left aside by ranks that are not among `writers`, and removals that were not finished."""
    for path in [*folder.glob(f"{_ASIDE}*"), *folder.glob(f"{_DROPPED}*")]:
        member_id = path.name.removeprefix(_ASIDE).partition("-")[2]
        if path.name.startswith(_DROPPED) or member_id not in writers:
            drop(path)


def drop_unpublished(folder: Path, member_id: str) -> None:
    """Remove the unpublished checkpoint of `member_id`, which is about to write a newer one."""
    for path in folder.glob(f"{_ASIDE}*-{member_id}"):
        drop(path)


def drop(path: Path) -> None:
    """Remove a checkpoint atomically: no reader sees an incomplete one under its name."""
    scratch = path if path.name.startswith(_DROPPED) else path.with_name(f"{_DROPPED}{os.getpid()}{path.name}")
    try:
        path.rename(scratch)
        shutil.rmtree(scratch)
    except FileNotFoundError:  # another process removed it first
        return


def _sync(folder: Path) -> None:
    """A rename is on the disk only once the folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
