"""When a rank writes a checkpoint, and how without making training wait.

At a step boundary rank 0 copies the state in memory, once, into buffers that it keeps. A thread writes the copy to the
disk while training goes on, and then tells the coordinator, which publishes it. One at most is being written.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import torch

from tidepool.faults import fault
from tidepool.protocol import CHECKPOINT_SECONDS, LaunchSpec, MemberMessage
from tidepool.torch.checkpoint import CheckpointError, load_weights, read_checkpoint, write_files
from tidepool.torch.publication import aside_name, drop, drop_unpublished
from tidepool.torch.transitions import Transitions

__all__ = ["CheckpointPolicy", "Checkpointer", "StateCopy"]

#: At a halt: when to try again to write what could not be written.
HALT_RETRY_SECONDS = 2.0


@dataclass(frozen=True)
class CheckpointPolicy:
    """When checkpoints are due. 0: not by this measure."""

    seconds: float = CHECKPOINT_SECONDS
    every_epochs: int = 0
    #: None: the coordinator's default.
    kept: int | None = None

    @staticmethod
    def of(
        launch: LaunchSpec | None, *, seconds: float | None = None, every_epochs: int | None = None, kept: int | None
    ) -> CheckpointPolicy:
        """Values of the job take precedence over those of its script."""
        submitted = launch.checkpoint_seconds if launch else None
        if submitted is not None:
            return CheckpointPolicy(submitted, (every_epochs or 0) if submitted else 0, kept)
        if seconds is None:
            seconds = 0.0 if every_epochs == 0 else CHECKPOINT_SECONDS
        return CheckpointPolicy(seconds, every_epochs or 0, kept)

    def is_due(self, seconds_since: float) -> bool:
        return self.seconds > 0 and seconds_since >= self.seconds

    def is_due_after(self, epochs: int) -> bool:
        return self.every_epochs > 0 and epochs % self.every_epochs == 0


class StateCopy:
    """The state as it was at a step boundary, in buffers of main memory that are used again and again."""

    def __init__(self) -> None:
        self.structure = ""
        self.tensors: list[torch.Tensor] = []

    def fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        return [(t.shape, t.dtype) for t in self.tensors] == [(t.shape, t.dtype) for t in tensors]

    def make_room(self, tensors: Sequence[torch.Tensor]) -> None:
        """Buffers for copies of `tensors`, with their pages touched; pinned where a GPU will fill them."""
        self.tensors = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).zero_() for tensor in tensors
        ]

    def take(self, structure: str, tensors: Sequence[torch.Tensor]) -> None:
        self.structure = structure
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
        #: One thread for good: starting one takes longer than copying a small state.
        self._thread: threading.Thread | None = None
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._started_at = time.monotonic()
        #: When this rank began its newest one, whatever became of it.
        self._tried_at = 0.0
        #: The error of the checkpoint before: each is reported once.
        self._trouble = ""

    def offer(self, *, epoch_is_over: bool = False) -> None:
        """At a step boundary, on rank 0: begin a checkpoint if one is due."""
        if self._folder is None:
            return
        if epoch_is_over and self._policy.is_due_after(self._transitions.state.position.epoch):
            self.finish()
            self._begin()
        elif self._policy.is_due(self._seconds_since_the_newest()) and not self._is_writing:
            self._begin_or_make_room()

    def halt(self, generation: int) -> None:
        """Everybody has stopped after the step under way: leave a checkpoint of it, told as the one of that halt.

        A disk without room is tried again until the coordinator ends this rank or a recovery is due.
        """
        self.finish()
        structure, tensors = self._transitions.state.pack()
        held = [tensor.cpu().contiguous() for tensor in tensors]
        position = self._transitions.state.position
        fault("halt", self._transitions.member_id)
        while not self._write(position.step, position.epoch, structure, held, halt=generation):
            if self._transitions.wait_halted(HALT_RETRY_SECONDS) or self._transitions.recovery_is_due:
                return

    def finish(self) -> None:
        """Wait until what is being written is on the disk and reported."""
        self._idle.wait()

    def load(self) -> None:
        """On the rank that begins an attempt: continue from the newest usable checkpoint, or from nothing.

        Raises CheckpointError if the one that the user asked to start from cannot be used.
        """
        launch, state = self._launch, self._transitions.state
        if launch is None:
            return
        unusable: list[dict[str, str]] = []
        used = self._load_newest(launch.checkpoints, unusable)
        if not used and launch.initial_checkpoint:
            read_checkpoint(Path(launch.initial_checkpoint), state)
            used = launch.initial_checkpoint
        elif not used and launch.initial_weights:
            load_weights(Path(launch.initial_weights), state.model)
        state.position.records = []  # they stand in the previous attempt's file
        if used or unusable:
            for each in unusable:
                _warn(f"{each['why']}; {f'training continues from {Path(used).name}' if used else 'from nothing'}")
            detail = {"used": used, "unusable": unusable}
            self._transitions.send(
                MemberMessage("restored", 0, state.position.step, state.position.epoch, detail=detail)
            )

    def _load_newest(self, candidates: Sequence[str], unusable: list[dict[str, str]]) -> str:
        """The first one that is whole; "" if none is. Those before it are added to `unusable`."""
        for path in candidates:
            try:
                read_checkpoint(Path(path), self._transitions.state)
            except CheckpointError as error:
                unusable.append({"path": path, "why": str(error)})
            else:
                return path
        return ""

    # --- writing ---

    @property
    def _is_writing(self) -> bool:
        return not self._idle.is_set()

    def _seconds_since_the_newest(self) -> float:
        """Since the newest checkpoint, whichever rank wrote it: the period goes on when rank 0 changes."""
        newest_at = self._transitions.checkpointed_at or self._started_at
        return time.monotonic() - max(self._tried_at, newest_at)

    def _begin_or_make_room(self) -> None:
        """Memory that is touched for the first time is slow: the copy waits for a later step boundary then."""
        _, tensors = self._transitions.state.pack()
        if self._copy.fits(tensors):
            self._begin()
        else:
            self._run(lambda: self._copy.make_room(tensors))

    def _begin(self) -> None:
        fault("snapshot", self._transitions.member_id)
        structure, tensors = self._transitions.state.pack()
        if not self._copy.fits(tensors):
            self._copy.make_room(tensors)
        self._copy.take(structure, tensors)
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
        """An error that nobody foresaw ends this thread, with a traceback; the next checkpoint starts another."""
        while True:
            work = self._work.get()
            try:
                work()
            finally:
                self._idle.set()

    def _write(
        self, step: int, epoch: int, structure: str, tensors: Sequence[torch.Tensor], halt: int | None = None
    ) -> bool:
        assert self._folder is not None
        member_id = self._transitions.member_id
        drop_unpublished(self._folder, member_id)
        aside = self._folder / aside_name(step, member_id)
        try:
            fault("checkpoint-write", member_id, OSError)
            detail = write_files(aside, structure, tensors)
        except OSError as error:
            drop(aside)
            self._tell_trouble(step, epoch, error.strerror or str(error))
            return False
        fault("checkpoint-written", member_id)
        self._trouble = ""
        detail = {**detail, "kept": self._policy.kept, "halt": halt}
        self._transitions.send(
            MemberMessage("checkpoint", self._transitions.group.generation, step, epoch, detail=detail)
        )
        return True

    def _tell_trouble(self, step: int, epoch: int, trouble: str) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        _warn(f"no checkpoint was written at step {step}: {trouble}; older ones stay, training goes on")
        self._transitions.send(MemberMessage("checkpoint_failed", 0, step, epoch, detail={"error": trouble}))


def _warn(sentence: str) -> None:
    print(f"tidepool: {sentence}", file=sys.stderr, flush=True)  # noqa: T201
