"""Checkpoints as a rank writes them: when they are due, and a thread that writes while training goes on.

A thread of rank 0 copies the state of a step boundary into buffers that it keeps, while the next step is computed: only
its update waits for that. Then it writes the copy to the disk, and tells the coordinator, which publishes it. One at
most is being written.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from tidepool.faults import fault
from tidepool.protocol import (
    CHECKPOINT_SECONDS,
    MemberMessage,
    Restoration,
    UnusableCheckpoint,
    WrittenCheckpoint,
)
from tidepool.torch.coordination.publication import aside_name, drop, drop_unpublished
from tidepool.torch.rank.step_clock import TimePart
from tidepool.torch.rank.transitions import Transitions
from tidepool.torch.state.checkpoint_files import (
    CheckpointError,
    check_files,
    load_weights,
    read_checkpoint,
    write_files,
)
from tidepool.torch.state.state_copy import StateCopy

__all__ = ["CheckpointPolicy", "Checkpointer"]

#: Seconds between attempts to write the checkpoint of a halt.
HALT_RETRY_SECONDS = 2.0
#: Numbers of each tensor in the trial of a checkpoint.
_FEW = 64


@dataclass(frozen=True)
class CheckpointPolicy:
    """The rule by which checkpoints are due. 0: not by this measure."""

    seconds: float = CHECKPOINT_SECONDS
    every_epochs: int = 0
    #: Number of checkpoints to keep; None: the coordinator's default.
    kept: int | None = None

    def is_due(self, seconds_since: float) -> bool:
        return self.seconds > 0 and seconds_since >= self.seconds

    def is_due_after(self, epochs: int) -> bool:
        return self.every_epochs > 0 and epochs % self.every_epochs == 0


class Checkpointer:
    """One rank's part in checkpoints. Only the training thread calls it."""

    def __init__(self, transitions: Transitions, policy: CheckpointPolicy) -> None:
        self._transitions = transitions
        self._policy = policy
        self._launch = transitions.launch
        self._folder = Path(self._launch.folder) / "checkpoint" if self._launch else None
        self._copy = StateCopy()
        #: Whether the newest copy came to nothing, because the script changed weights while it was made.
        self._is_spoilt = False
        transitions.settle_copy = partial(transitions.clock.timed, TimePart.CHECKPOINT, self._copy.settle)
        #: A single long-lived thread: starting one takes longer than copying a small state.
        self._thread: threading.Thread | None = None
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._started_at = time.monotonic()
        self._is_tried_out = False
        #: Time when this rank began its newest checkpoint, successful or not.
        self._tried_at = 0.0
        #: The error of the checkpoint before: each is reported once.
        self._trouble = ""
        #: The newest copy waits for the ranks to be found alike; and its report, once it is written.
        self._unconfirmed = False
        self._held: MemberMessage | None = None
        self._lock = threading.Lock()

    def offer(self, *, epoch_is_over: bool = False, is_wanted: bool = False) -> bool:
        """Begin a checkpoint if one is due; rank 0 calls this at each step boundary. True: something was copied.

        is_wanted: the script has asked for one.
        """
        if self._folder is None:
            return False
        with self._transitions.clock.during(TimePart.CHECKPOINT):
            return self._offer(epoch_is_over=epoch_is_over, is_wanted=is_wanted)

    def _offer(self, *, epoch_is_over: bool, is_wanted: bool) -> bool:
        assert self._folder is not None
        if not self._is_tried_out:
            self._is_tried_out = True
            self._try_out(self._folder)
        tried_at = self._tried_at
        if is_wanted or (epoch_is_over and self._policy.is_due_after(self._transitions.state.position.epoch)):
            self.finish()
            self._begin(at_once=True, behind=not epoch_is_over)
        elif self._idle.is_set() and (self._is_spoilt or self._policy.is_due(self._seconds_since_the_newest())):
            self._begin(at_once=self._is_spoilt, behind=not epoch_is_over)
        return self._tried_at != tried_at

    def halt(self, generation: int) -> None:
        """Write the checkpoint of a halt, once all ranks have stopped after the same step.

        On a full disk, retry until the coordinator ends this rank or a recovery is due.
        """
        self.finish()
        self._transitions.await_lead()
        structure, tensors = self._transitions.state.pack()
        held = [tensor.cpu().contiguous() for tensor in tensors]
        position = self._transitions.state.position
        fault("halt", self._transitions.member_id)
        while not self._write(position.step, position.epoch, structure, held, halt=generation):
            if self._transitions.wait_halted(HALT_RETRY_SECONDS) or self._transitions.recovery_is_due:
                return

    def finish(self) -> None:
        """Wait until a checkpoint under way is on the disk."""
        with self._transitions.clock.during(TimePart.CHECKPOINT):
            self._idle.wait()

    @property
    def is_unconfirmed(self) -> bool:
        """Return whether the newest copy of the state does not count yet."""
        return self._unconfirmed

    def confirm(self) -> None:
        """Let the newest copy count: the ranks have been found alike since."""
        with self._lock:
            self._unconfirmed, held, self._held = False, self._held, None
        if held is not None:
            self._transitions.send(held)

    def load(self) -> None:
        """Load the newest usable checkpoint, if there is one; the rank that begins an attempt calls this.

        Raises CheckpointError if the one that the user asked to start from cannot be used.
        """
        launch, state = self._launch, self._transitions.state
        if launch is None:
            return
        used, unusable = self._load_newest(launch.checkpoints)
        if not used and launch.initial_checkpoint:
            loop = state.position.loop
            read_checkpoint(Path(launch.initial_checkpoint), state)
            state.position.loop, state.position.earlier_loops = loop, []  # this job may train for longer
            used = launch.initial_checkpoint
        elif not used and launch.initial_weights:
            load_weights(Path(launch.initial_weights), state.model)
        if used and state.position.cursor:
            state.position.resumed_in = [state.position.epoch, state.position.passes]
        state.position.records = []  # the previous attempt's file has them
        if used or unusable:
            for each in unusable:
                _warn(f"{each.why}; {f'training continues from {Path(used).name}' if used else 'from nothing'}")
            restoration, position = Restoration(used, unusable), state.position
            self._transitions.send(MemberMessage("restored", 0, position.step, position.epoch, restoration=restoration))

    def _load_newest(self, candidates: Sequence[str]) -> tuple[str, list[UnusableCheckpoint]]:
        """Load the first usable candidate; its path ("" if there is none) and the candidates before it."""
        unusable = []
        for path in candidates:
            try:
                read_checkpoint(Path(path), self._transitions.state)
            except CheckpointError as error:
                unusable.append(UnusableCheckpoint(path, str(error)))
            else:
                return path, unusable
        return "", unusable

    # --- writing ---

    def _try_out(self, folder: Path) -> None:
        """Write and read a checkpoint of a few numbers of each tensor: what cannot be saved is told at once."""
        structure, tensors = self._transitions.state.pack()
        position = self._transitions.state.position
        few = [tensor.reshape(-1)[:_FEW].cpu().contiguous() for tensor in tensors]
        aside = folder / aside_name(position.step, f"{self._transitions.member_id}.trial")
        try:
            write_files(aside, structure, few)
            check_files(aside, structure, few)
        except Exception as error:
            self._tell_trouble(position.step, position.epoch, _words(error))
        finally:
            drop(aside)

    def _seconds_since_the_newest(self) -> float:
        """Return the time since the newest checkpoint of any rank: a change of rank 0 does not restart the period."""
        newest_at = self._transitions.checkpointed_at or self._started_at
        return time.monotonic() - max(self._tried_at, newest_at)

    def _begin(self, *, at_once: bool, behind: bool) -> None:
        """Copy the state and have the copy written.

        First writes to new memory are slow, so unless `at_once`, the first copy is left to a later step.
        behind: whether parameters and optimizer state may be copied until the next update. Between epochs, and in
        steps whose body changes them, scripts do that at other times.
        """
        structure, tensors = self._transitions.state.pack()
        if not self._copy.fits(tensors):
            if not at_once and not self._copy.tensors:
                self._run(lambda: self._copy.make_room(tensors))
                return
            self._copy.make_room(tensors)  # for shapes that change, maybe with each step
        fault("snapshot", self._transitions.member_id)
        state = self._transitions.state
        behind = behind and not self._transitions.exposed and not state.position.writes_weights
        self._copy.begin(tensors, [behind and shared for shared in state.are_shared(tensors)])
        self._is_spoilt = False
        with self._lock:
            self._unconfirmed, self._held = True, None
        self._tried_at = time.monotonic()
        position = self._transitions.state.position
        step, epoch = position.step, position.epoch
        self._run(lambda: self._write_copy(step, epoch, structure))

    def _run(self, work: Callable[[], object]) -> None:
        self._idle.clear()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._serve, name="checkpoint", daemon=True)
            self._thread.start()
        self._work.put(work)

    def _serve(self) -> None:
        """Do the thread's work. An unforeseen error ends it, with a traceback; the next checkpoint starts another."""
        while True:
            work = self._work.get()
            try:
                work()
            finally:
                self._idle.set()

    def _write_copy(self, step: int, epoch: int, structure: Any) -> None:
        if self._copy.finish():
            self._write(step, epoch, structure, self._copy.tensors)
        else:
            self._transitions.exposed = self._is_spoilt = True

    def _write(
        self, step: int, epoch: int, structure: Any, tensors: Sequence[torch.Tensor], halt: int | None = None
    ) -> bool:
        assert self._folder is not None
        member_id = self._transitions.member_id
        drop_unpublished(self._folder, member_id)
        aside = self._folder / aside_name(step, member_id)
        try:
            fault("checkpoint-write", member_id, OSError)
            size_bytes, sha256 = write_files(aside, structure, tensors)
        except Exception as error:  # whatever it is, the owner of the training learns of it
            drop(aside)
            self._tell_trouble(step, epoch, _words(error))
            return False
        fault("checkpoint-written", member_id)
        self._trouble = ""
        written = WrittenCheckpoint(size_bytes, sha256, self._policy.kept, halt)
        generation = self._transitions.group.generation
        report = MemberMessage("checkpoint", generation, step, epoch, written=written)
        with self._lock:
            is_held = self._unconfirmed and halt is None
            self._held = report if is_held else None
        if not is_held:
            self._transitions.send(report)
        return True

    def _tell_trouble(self, step: int, epoch: int, trouble: str) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        _warn(f"no checkpoint was written at step {step}: {trouble}; older ones stay, training goes on")
        self._transitions.send(MemberMessage("checkpoint_failed", 0, step, epoch, error=trouble))


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"


def _warn(sentence: str) -> None:
    print(f"tidepool: {sentence}", file=sys.stderr, flush=True)  # noqa: T201
