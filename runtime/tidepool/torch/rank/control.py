"""A rank's connection to its coordinator: a thread that listens, and the messages it has received.

The training loop only reads flags; groups of planned generations are built here in the background. A lost coordinator
is waited for without limit: training continues meanwhile, since no step needs it.
"""

import logging
import select
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec
import torch

from tidepool import fence
from tidepool.coordinator_client import RankConnection
from tidepool.env import RankContext
from tidepool.faults import fault
from tidepool.procfs import end_at_once
from tidepool.protocol import CoordinatorMessage, GenerationPlan, Join, MemberMessage, SpentTime, encode
from tidepool.torch.comm.gather import call_of
from tidepool.torch.comm.process_group import CommunicationError, Group, make_group
from tidepool.torch.comm.shared_transfer import Room, room_for
from tidepool.torch.coordination.heartbeats import HEARTBEAT_SECONDS
from tidepool.torch.rank.step_clock import StepClock
from tidepool.torch.state.training_state import Position

__all__ = ["Control", "PreparedGeneration"]

logger = logging.getLogger(__name__)

#: Seconds between two looks at the fence.
_FENCE_SECONDS = 0.25
#: Leases for which a rank waits for the coordinator of the newest lead.
_LEASES = 3
#: Steps whose median a rank reports.
_STEPS = 16

T = TypeVar("T")


@dataclass
class PreparedGeneration:
    """A planned generation on this rank; without a group when this rank leaves with it."""

    plan: GenerationPlan
    group: Group | None
    #: Places for the state, where it will be received.
    room: Room = field(default_factory=dict)


class Control(RankConnection):
    """State derived from received messages. `changed` is notified with each message, and guards the fields below."""

    REPEATED = frozenset({"switched", "trained", "finished", "restored", "checkpoint", "profile"})

    def __init__(self, context: RankContext, position: Position, device: torch.device, clock: StepClock) -> None:
        super().__init__(context)
        self._clock = clock
        self._device = device
        self._position = position
        self.prepared: dict[int, PreparedGeneration] = {}
        self.committed = 0
        self.recovery: GenerationPlan | None = None
        self.stopping = False
        self.finished = False
        #: Monotonic time of the newest checkpoint, written by any rank.
        self.checkpointed_at = 0.0
        #: Description of the state that this rank, as a holder, gives the joiners of its next groups.
        self.announcement = ""
        self._active: Group | None = None
        #: Group of a recovery, while its members agree on their state.
        self._forming: Group | None = None
        self._fence_due = 0.0
        #: Monotonic time at which the coordinator last said that it makes no plan.
        self.held_at = 0.0
        #: A generation whose group the training thread is waiting for, and since when.
        self._building: tuple[int, float] | None = None
        self._step_seconds: deque[float] = deque(maxlen=_STEPS)
        #: Generations that were voided, possibly while their group was being built.
        self._abandoned: set[int] = set()
        self._ready = False
        self._training_thread = threading.get_ident()
        self._start(self._listen, "control")
        self._start(self._beat, "heartbeat")

    # --- for the training loop ---

    def send(self, message: MemberMessage) -> None:
        self._ready = self._ready or message.kind == "ready"
        super().send(message)

    @property
    def connected(self) -> bool:
        """Return whether the connection to a coordinator is open."""
        return self._connection is not None

    def await_lead(self) -> None:
        """Wait, before results are written, until this rank has heard of the newest lead; end it if it is cut off."""
        begun = time.monotonic()
        if begun < self._fence_due:
            return
        patience = _LEASES * self._context.launch.lease_seconds
        while (newest := fence.newest(self._context.folder)) > self.lead_number:
            if time.monotonic() - begun > patience:
                end_at_once(
                    f"fenced: lead {newest} goes on elsewhere, and nothing was heard of it for {patience:.0f} s"
                )
            self.wait_until(partial(self._follows, newest), 1.0)
        self._fence_due = time.monotonic() + _FENCE_SECONDS

    def _follows(self, number: int) -> bool:
        return self.lead_number >= number

    def step_made(self, seconds: float) -> None:
        self._step_seconds.append(seconds)

    def activate(self, group: Group) -> None:
        """Let the training use `group` from now on; older plans are void.

        Raises CommunicationError if it was abandoned while its state was on its way.
        """
        with self.changed:
            if group.generation in self._abandoned:
                raise CommunicationError(f"generation {group.generation} was abandoned")
            self._active, self._forming = group, None
            for generation in [number for number in self.prepared if number <= group.generation]:
                prepared = self.prepared.pop(generation)
                if prepared.group is not group:
                    _dispose(prepared.group)
            self._abandoned = {generation for generation in self._abandoned if generation > group.generation}
            if self.recovery is not None:
                if self.recovery.generation <= group.generation:
                    self.recovery = None
                else:
                    group.break_off()  # a recovery was announced while the group was being built

    def forget(self, prepared: PreparedGeneration) -> None:
        """Joining `prepared` has failed: only a later generation may still invite this rank."""
        with self.changed:
            self.prepared.pop(prepared.plan.generation, None)
        _dispose(prepared.group)

    def wait_until(self, condition: Callable[[], T], seconds: float | None = None) -> T:
        """Return the first true value of `condition`, or its value when the time is over."""
        with self.changed:
            return self.changed.wait_for(condition, seconds)

    def build(self, plan: GenerationPlan) -> Group:
        """Meet the other members of `plan` now; until `activate`, a newer recovery breaks the group off.

        Raise CommunicationError, also if a newer recovery or the training's end is announced meanwhile.
        """
        done: list[Group | CommunicationError] = []

        def work() -> None:
            try:
                made: Group | CommunicationError = self._make_group(plan, self._active)
            except CommunicationError as error:
                made = error
            with self.changed:
                if isinstance(made, Group) and not self._superseded(plan):
                    self._forming = made
                elif isinstance(made, Group):
                    _dispose(made)
                done.append(made)
                self.changed.notify_all()

        self._start(work, f"build-{plan.generation}")
        self._building = plan.generation, time.monotonic()
        self.wait_until(lambda: bool(done) or self._superseded(plan))
        self._building = None
        if not done or self._superseded(plan):
            raise CommunicationError(f"generation {plan.generation} is superseded")
        if isinstance(done[0], CommunicationError):
            raise done[0]
        return done[0]

    # --- the threads ---

    def _beat(self) -> None:
        """Send heartbeats with the training thread's position, as long as this process can run at all."""
        tells_time = False
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            tells_time = not tells_time
            spent = self._clock.reading() if tells_time and self._connection is not None else None
            line = encode(self._heartbeat(spent))
            with self._send_lock:
                # Never wait here: the training thread also wants the lock, and a stopped coordinator reads nothing.
                if self._connection is not None and select.select([], [self._connection], [], 0)[1]:
                    self._send(line)

    def _heartbeat(self, spent: SpentTime | None) -> MemberMessage:
        receiving = (prepared.group for prepared in list(self.prepared.values()) if prepared.group)
        joining = next((group for group in receiving if group.waiting_since is not None), None)
        group, building = self._forming or self._active or joining, self._building
        generation, waiting_since = (group.generation, group.waiting_since) if group else (0, None)
        if building is not None:
            generation, waiting_since = building
        steps = list(self._step_seconds)
        waits_seconds = None if waiting_since is None else time.monotonic() - waiting_since
        return MemberMessage(
            "alive",
            generation,
            self._position.step,
            self._position.epoch,
            operation=self._position.operation,
            waits_seconds=waits_seconds,
            step_seconds=statistics.median(steps) if steps else 0.0,
            call=call_of(group, self._training_thread) if group is not None and building is None else None,
            spent=spent,
        )

    def _farewell(self, ended: str | None) -> CoordinatorMessage | None:
        if ended == "lost":
            return CoordinatorMessage("fenced")
        if ended is not None:
            return CoordinatorMessage("finished" if ended == "finished" and self._active else "stop")
        return None

    def _join(self) -> Join:
        generation = self._active.generation if self._active else 0
        return msgspec.structs.replace(super()._join(), generation=generation, ready=self._ready)

    def _apply(self, message: CoordinatorMessage) -> None:
        if message.kind == "prepare" and message.plan is not None:
            self._prepare(message.plan)
        elif message.kind == "commit":
            self.committed = max(self.committed, message.generation)
        elif message.kind == "abandon":
            self._abandon(message.generation)
        elif message.kind == "recover" and message.plan is not None:
            self._recover(message.plan)
        elif message.kind == "finished":
            self.finished = True
        elif message.kind == "hold":
            self.held_at = time.monotonic()
        elif message.kind == "checkpointed":
            self.checkpointed_at = time.monotonic() - message.age
            self._is_answered(message.step)
        elif message.kind == "checkpoint_refused":
            self._is_answered(message.step)
        elif message.kind == "stop":
            self.stopping = True
            self._break_off_prepared()
        elif message.kind == "fenced":
            end_at_once("fenced by the coordinator")

    def _is_answered(self, step: int) -> None:
        """Stop repeating the message about the checkpoint of this step, which has been answered."""
        with self._send_lock:
            message = self._repeated.get("checkpoint")
            if message is not None and message.step == step:
                del self._repeated["checkpoint"]

    def _prepare(self, plan: GenerationPlan) -> None:
        if all(member.member_id != self._context.member_id for member in plan.members):
            self.prepared[plan.generation] = PreparedGeneration(plan, None)
            self.send(MemberMessage("prepared", plan.generation))
            return
        self._start(lambda: self._build_prepared(plan), f"prepare-{plan.generation}")

    def _build_prepared(self, plan: GenerationPlan) -> None:
        fault("prepare", self._context.member_id)
        try:
            group = self._make_group(plan)
        except CommunicationError as error:
            logger.warning("generation %s could not be formed: %s", plan.generation, error)
            self.send(MemberMessage("unprepared", plan.generation, error=str(error)))
            return
        receives = self._active is None and group.has_routes
        room = room_for(group.announcement, self._device) if receives else {}
        with self.changed:
            if self._is_over(plan.generation):
                _dispose(group)
                return
            self.prepared[plan.generation] = PreparedGeneration(plan, group, room)
            self.send(MemberMessage("prepared", plan.generation))
            self.changed.notify_all()

    def _make_group(self, plan: GenerationPlan, previous: Group | None = None) -> Group:
        """previous: the group that a death has broken off."""
        rank = [member.member_id for member in plan.members].index(self._context.member_id)
        holders = [number for number, member in enumerate(plan.members) if member.holder]
        tells = rank in holders[:1] and len(holders) < len(plan.members)
        return make_group(
            address=self._context.address,
            store_address=plan.store_address,
            store_port=plan.store_port,
            prefix=f"{self._context.attempt}/{plan.generation}",
            generation=plan.generation,
            rank=rank,
            size=len(plan.members),
            device=self._device,
            secret=self._context.secret,
            announcement=self.announcement if tells else "",
            members=[member.member_id for member in plan.members],
            previous=previous,
            exchanges=self._context.launch.exactness == "bitwise",
        )

    def _abandon(self, generation: int) -> None:
        if self._active is not None and self._active.generation == generation:
            end_at_once(f"generation {generation} was abandoned after this rank had switched to it")
        self._abandoned.add(generation)
        prepared = self.prepared.pop(generation, None)
        if prepared is not None and prepared.group is not None:
            prepared.group.break_off()
            if self._active is not None:  # else the training thread may be waiting in it: destroying it would deadlock
                prepared.group.drop()

    def _recover(self, plan: GenerationPlan) -> None:
        if self._active is None:
            end_at_once("told to recover before it had any state")
        if self._active is not None and plan.generation > self._active.generation:
            self.recovery = plan
            self._active.break_off()
            if self._forming is not None:
                self._forming.break_off()
            self._break_off_prepared()

    def _break_off_prepared(self) -> None:
        for prepared in self.prepared.values():
            if prepared.group is not None:
                prepared.group.break_off()

    def _superseded(self, plan: GenerationPlan) -> bool:
        """Return whether a later message has made building `plan` pointless."""
        return self.finished or (self.recovery is not None and self.recovery.generation > plan.generation)

    def _is_over(self, generation: int) -> bool:
        """Return whether the group for `generation` was completed too late."""
        active = self._active.generation if self._active else 0
        newer = self.recovery.generation if self.recovery else active
        return self.stopping or generation in self._abandoned or generation <= max(active, newer)


def _dispose(group: Group | None) -> None:
    """Drop a group in which no thread of this process waits."""
    if group is not None:
        group.break_off()
        group.drop()
