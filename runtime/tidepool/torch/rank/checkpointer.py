"""Checkpoints as a rank writes them: when they are due, and a thread that writes while training goes on.

At a step boundary rank 0 copies the state in memory, once, into buffers that it keeps. A thread writes the copy to the
disk while training goes on, and then tells the coordinator, which publishes it. One at most is being written.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from tidepool.torch.rank.transitions import Transitions
from tidepool.torch.state.checkpoint_files import (
    CheckpointError,
    check_files,
    load_weights,
    read_checkpoint,
    write_files,
)

__all__ = ["CheckpointPolicy", "Checkpointer", "StateCopy"]

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


class StateCopy:
    """The state as it was at a step boundary, in buffers of main memory that are used again and again."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []

    def fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        return [(t.shape, t.dtype) for t in self.tensors] == [(t.shape, t.dtype) for t in tensors]

    def make_room(self, tensors: Sequence[torch.Tensor]) -> None:
        """Buffers for copies of `tensors`, with their pages touched; pinned where a GPU will fill them."""
        self.tensors = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).zero_() for tensor in tensors
        ]

    def take(self, tensors: Sequence[torch.Tensor]) -> None:
        for buffer, tensor in zip(self.tensors, tensors, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors):
            torch.cuda.synchronize()


class Checkpointer:
    """One rank's part in checkpoints. Only the training thread calls it."""

    def __init__(self, transitions: Transitions, policy: CheckpointPolicy) -> None:
        self._transitions = transitions
        self._policy = policy
        self._launch = transitions.launch
        self._folder = Path(self._launch.folder) / "checkpoint" if self._launch else None
        self._copy = StateCopy()
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
        if not self._is_tried_out:
            self._is_tried_out = True
            self._try_out(self._folder)
        tried_at = self._tried_at
        if is_wanted or (epoch_is_over and self._policy.is_due_after(self._transitions.state.position.epoch)):
            self.finish()
            self._begin(at_once=True)
        elif self._policy.is_due(self._seconds_since_the_newest()) and self._idle.is_set():
            self._begin(at_once=False)
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

    def _begin(self, *, at_once: bool) -> None:
        """Copy the state and have the copy written.

        First writes to new memory are slow, so unless `at_once`, the first copy is left to a later step.
        """
        structure, tensors = self._transitions.state.pack()
        if not self._copy.fits(tensors):
            if not at_once and not self._copy.tensors:
                self._run(lambda: self._copy.make_room(tensors))
                return
            self._copy.make_room(tensors)  # for shapes that change, maybe with each step
        fault("snapshot", self._transitions.member_id)
        self._copy.take(tensors)
        with self._lock:
            self._unconfirmed, self._held = True, None
        self._tried_at = time.monotonic()
        position = self._transitions.state.position
        step, epoch = position.step, position.epoch
        self._run(lambda: self._write(step, epoch, structure, self._copy.tensors))

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
