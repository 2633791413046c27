"""Transitions of a rank between two steps: joining, switching, leaving and recovering.

Off the cluster there is no coordinator: the rank is alone, in a group of one, and nothing ever changes.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tidepool.env import RankContext
from tidepool.faults import fault
from tidepool.gang import leave_gang
from tidepool.procfs import end_at_once, set_title
from tidepool.protocol import GenerationPlan, MemberMessage
from tidepool.rank_exits import ContextLost
from tidepool.rank_process import RankReleased, at_error, could_train, note_rank, note_step
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.comm.routes import MOST_ROUTES
from tidepool.torch.comm.shared_transfer import announced, receive_shares, send_share
from tidepool.torch.comm.state_transfer import HandOver, catch_up, receive_state, send_state
from tidepool.torch.rank import lost_context
from tidepool.torch.rank.control import Control, PreparedGeneration
from tidepool.torch.rank.gpu_shortages import record_shortages
from tidepool.torch.rank.held_gpu import check_held_gpu
from tidepool.torch.rank.step_clock import StepClock, TimePart
from tidepool.torch.state.training_state import TrainingState

__all__ = ["Transitions"]

#: Seconds to wait for the coordinator's plan after a failed collective before requesting one.
ASK_SECONDS = 3.0
#: Seconds to wait for the answer, counted only while a coordinator is connected that does not hold still: its successor
#: may take long to start if the host was lost.
GIVE_UP_SECONDS = 30.0


class Transitions:
    """Holds the active group. Only the training thread calls it."""

    def __init__(
        self, context: RankContext | None, state: TrainingState, clock: StepClock, fixed: Group | None = None
    ) -> None:
        """fixed: off the cluster, the group of all processes from the beginning to the end; None: this one is alone."""
        self.state, self.clock = state, clock
        self.member_id = context.member_id if context else ""
        self.launch = context.launch if context else None
        self._context = context
        leave_gang()  # a single process's session speaks for itself from now on
        self._device = next(state.model.parameters()).device
        self._control = Control(context, state.position, self._device, clock) if context else None
        if context:
            at_error(self.explained)
        self._group: Group | None = None
        self._fixed = fixed
        #: Number of hosts with members of the group.
        self.hosts = 1
        #: Ranks that had the state when the group began, and how many operations were complete then.
        self._holders: list[int] = []
        self._begun_at = -1
        self._hand_overs: list[HandOver] = []
        #: Waits until the state that is being copied for a checkpoint may change.
        self.settle_copy: Callable[[], None] = lambda: None
        #: The script's steps change parameters themselves, not only the update: nothing may be sent meanwhile.
        self.exposed = False
        #: Number of ranks that compute steps; None: all.
        self.most_sharing: int | None = None

    @property
    def group(self) -> Group:
        if self._group is None:
            raise RuntimeError("the session has not begun: iterate session.epochs() first")
        return self._group

    @property
    def sharing(self) -> list[int]:
        """Ranks of the group that compute the coming step; the others take part in its sums with zeros.

        While the state is on its way to new members those that have it compute the step: nobody waits for it.
        """
        if self.state.position.operation == self._begun_at:
            return self._holders[: self.most_sharing]
        return self.all_sharing

    @property
    def all_sharing(self) -> list[int]:
        """Ranks that compute steps once all members have the state."""
        return list(range(self.group.size))[: self.most_sharing]

    @property
    def all_share(self) -> bool:
        """All ranks of the group compute the coming step."""
        return len(self.sharing) == self.group.size

    @property
    def flag(self) -> int:
        """Generation to switch to after this step, as far as this rank knows; 0: none."""
        control = self._control
        return control.committed if control and control.committed > self.group.generation else 0

    @property
    def recovery_is_due(self) -> bool:
        return self._control is not None and self._control.recovery is not None

    @property
    def checkpointed_at(self) -> float:
        """Monotonic time of the attempt's newest known checkpoint; before the first, of the attempt's start."""
        return self._control.checkpointed_at if self._control else 0.0

    def await_lead(self) -> int:
        """Wait until this rank may write results; return the number of the lead that it follows."""
        if self._control is None:
            return 0
        self._control.await_lead()
        return self._control.lead_number

    def send(self, message: MemberMessage) -> None:
        if self._control is not None:
            self._control.send(message)

    def announce(self) -> None:
        """Note what coming joiners are told of the state, so that they make room for it. Raises as `pack` does."""
        packed = self.state.pack()
        if self._control is not None:
            self._control.announcement = announced(*packed)

    def step_made(self, seconds: float) -> None:
        """Record the duration of a step, from which the coordinator derives its timeouts."""
        note_step(self.state.position.step)
        self.clock.count_step()
        if self._control is not None:
            self._control.step_made(seconds)

    def tell(self, message_of: Callable[[], MemberMessage | None]) -> None:
        """Send the message that `message_of` returns. Without a coordinator it is not called, so the change is reported
        later."""
        if self._control is not None and self._control.connected and (message := message_of()) is not None:
            self._control.send(message)

    # --- joining ---

    @property
    def on_cluster(self) -> bool:
        return self._control is not None

    def join(self, load: Callable[[], None]) -> None:
        """Join a generation; return when this rank has the training's state.

        `load` is called by the rank that begins the attempt: it makes the state, or reads a checkpoint.
        """
        if self._control is None:
            self._group = self._fixed or Group(1, 0, 1)
            self._begin_alike(self._group)
            return
        assert self._context is not None
        check_held_gpu(self._device, self._context.host)
        self.state.pack()  # raises now, not at the first switch, for what cannot be carried to another process
        could_train()
        self._control.send(MemberMessage("ready"))
        record_shortages()
        self.clock.watch(self._device)
        while self._group is None:
            prepared = self._next_invitation(self._control)
            try:
                self._accept(prepared, load)
            except CommunicationError:  # the generation is void; another invitation follows
                self._control.forget(prepared)
        self.clock.begin()

    def _begin_alike(self, group: Group) -> None:
        """Give all ranks of a fixed group what rank 0 has. Raises CommunicationError."""
        others = range(1, group.size)
        if group.rank:
            receive_shares(group, self.state, others, in_place=True)
        elif others:
            send_share(group, self.state.snapshot(), others)

    def _next_invitation(self, control: Control) -> PreparedGeneration:
        invitation = control.wait_until(lambda: control.stopping or control.finished or self._invitation(control))
        if not isinstance(invitation, PreparedGeneration):
            raise RankReleased
        return invitation

    def _invitation(self, control: Control) -> PreparedGeneration | None:
        """Return a group to join now: as one that receives the state, or, told to commit, as the first of all.

        A plan that takes this rank for a holder already is no invitation: its state is still on its way.
        """
        for generation, prepared in sorted(control.prepared.items(), reverse=True):
            if prepared.group is None or prepared.group.broken:
                continue
            if self._begins(prepared.plan):
                if control.committed >= generation:
                    return prepared
            elif not self._is_holder(prepared.plan):
                return prepared
        return None

    def _begins(self, plan: GenerationPlan) -> bool:
        """Return whether this rank starts the training, and so creates its state."""
        return plan.cause == "start" and self._is_holder(plan)

    def _is_holder(self, plan: GenerationPlan) -> bool:
        return any(member.member_id == self.member_id and member.holder for member in plan.members)

    def _accept(self, prepared: PreparedGeneration, load: Callable[[], None]) -> None:
        assert prepared.group is not None
        group, plan = prepared.group, prepared.plan
        if self._begins(plan):
            load()
            self._enter(group, plan, time.monotonic())
            return
        fault("receive", self.member_id)
        with group.waiting():
            self._receive(prepared, group)
        self._activate(group, plan)
        self._report_switched(0.0)

    def _receive(self, prepared: PreparedGeneration, group: Group) -> None:
        plan, room = prepared.plan, prepared.room
        prepared.room = {}
        how: dict[str, Any] = {"in_place": plan.cause == "resize", "member_id": self.member_id}
        if group.has_routes:
            receive_shares(group, self.state, _joiners(plan), room=room, **how)
        else:
            receive_state(group, self.state, **how)

    # --- planned changes ---

    def switch(self, generation: int) -> None:
        """Switch to a generation; every member of the present one calls this after the same step.

        A rank that leaves does not return: `RankReleased` ends its script.
        """
        with self.clock.during(TimePart.RESIZE):
            self._switch(generation)

    def _switch(self, generation: int) -> None:
        assert self._control is not None
        begun = time.monotonic()
        prepared = self._control.prepared.get(generation)
        if prepared is None:  # voided after the others received it: the plan of a recovery follows
            self.recover()
            return
        fault("switch", self.member_id)
        if prepared.group is None:
            self.group.leave()
            self._control.send(MemberMessage("left", generation, self.state.position.step))
            raise RankReleased
        old = self.group
        try:
            self._enter(prepared.group, prepared.plan, begun)
        except CommunicationError:
            self.recover()
        old.drop()

    def _enter(self, group: Group, plan: GenerationPlan, begun: float) -> None:
        """Take part in `group` as one that has the state: hand it to this rank's joiners, behind the coming step."""
        self._activate(group, plan)
        self._hand_overs = self._begin_hand_overs(group, plan)
        if self.exposed:
            self.settle()
        self._report_switched((time.monotonic() - begun) * 1000.0)

    def _begin_hand_overs(self, group: Group, plan: GenerationPlan) -> list[HandOver]:
        if group.has_routes:
            joiners = _joiners(plan)
            takes_part = group.broadcasts or group.rank in self._holders[:MOST_ROUTES]
            if not joiners or not takes_part:
                return []
            send = partial(send_share, group, self.state.snapshot(), joiners, self.member_id)
            return [HandOver(group, send, self.member_id)]
        own = [rank for rank in range(group.size) if _source(plan, rank) == group.rank]
        if not own:
            return []
        snapshot = self.state.snapshot()
        return [
            HandOver(group, partial(send_state, group, snapshot, rank, self.member_id), self.member_id) for rank in own
        ]

    def settle(self) -> None:
        """Wait until nothing is being sent or copied: what comes may change parameters or optimizer state."""
        self.settle_copy()
        for hand_over in self._hand_overs:
            with self.group.waiting():
                hand_over.wait()
        self._hand_overs = []

    def _activate(self, group: Group, plan: GenerationPlan) -> None:
        assert self._control is not None
        assert self._context is not None
        self._control.activate(group)
        self._group, self.hosts = group, len({member.host for member in plan.members})
        set_title(self._context.title(f" {group.rank} of {group.size}"))
        note_rank(group.rank)
        self._holders = [rank for rank, member in enumerate(plan.members) if member.holder]
        self._begun_at = self.state.position.operation
        note_step(self.state.position.step)

    def _report_switched(self, pause_ms: float) -> None:
        position, group = self.state.position, self.group
        self.send(MemberMessage("switched", group.generation, position.step, position.epoch, pause_ms))

    def is_halt(self, generation: int) -> bool:
        """Return whether the agreed change stops all ranks."""
        prepared = self._control.prepared.get(generation) if self._control else None
        return prepared is not None and prepared.plan.cause == "halt"

    def wait_halted(self, seconds: float | None = None) -> bool:
        """Wait for the end of a halt. True: the state is saved. False: a recovery is due first, or the time is over."""
        control = self._control
        assert control is not None
        control.wait_until(lambda: control.stopping or control.recovery is not None, seconds)
        return control.stopping

    # --- failures ---

    def recover(self) -> bool:
        """Continue with the survivors, from the newest state among them.

        Returns True if this rank was one operation behind and has received its result with the state.
        """
        self.clock.begin()  # the loop may have been over
        with self.clock.during(TimePart.RESIZE):
            return self._recover()

    def _recover(self) -> bool:
        assert self._control is not None
        begun = time.monotonic()
        old = self.group
        self._hand_overs = []  # they end with their group
        tried = old.generation
        while True:
            plan = self._wait_for_plan(self._control, tried)
            tried = plan.generation
            old.break_off()
            if (lost := lost_context.lost_by_a_death(self._device)) is not None:
                raise lost
            try:
                group = self._control.build(plan)
            except CommunicationError:
                continue  # another rank died: the next plan follows
            try:
                behind = self._agree(group)
            except CommunicationError:
                group.break_off()  # releases the others, who may not have noticed
                group.drop()
                continue
            old.drop()
            self._activate(group, plan)
            self._report_switched((time.monotonic() - begun) * 1000.0)
            return behind

    def explained(self, error: BaseException) -> ContextLost | None:
        """Return what to report in place of an error of the script that comes of another rank's death."""
        lost = None if isinstance(error, ContextLost) else lost_context.lost_by_a_death(self._device)
        if lost is None or self._control is None:
            return None
        # The error may be known here before the coordinator has told of the death.
        return lost if self._control.wait_until(lambda: self.recovery_is_due, ASK_SECONDS) else None

    def _wait_for_plan(self, control: Control, known: int) -> GenerationPlan:
        """Return the coordinator's plan for a generation after `known`; end this rank if it is not needed any more."""
        deadline = time.monotonic() + GIVE_UP_SECONDS

        def newer_plan() -> GenerationPlan | None:
            return control.recovery if control.recovery and control.recovery.generation > known else None

        while not control.wait_until(lambda: control.finished or control.stopping or newer_plan(), ASK_SECONDS):
            if not control.connected or time.monotonic() - control.held_at < GIVE_UP_SECONDS:
                deadline = time.monotonic() + GIVE_UP_SECONDS
            elif time.monotonic() > deadline:
                end_at_once("no plan came after a communication error")
            control.send(MemberMessage("broken", known, self.state.position.step))
        plan = newer_plan()
        if control.finished or plan is None:  # or sent away
            raise RankReleased
        return plan

    def _agree(self, group: Group) -> bool:
        """Bring all members to the newest state among them.

        They are at most one operation apart, because none completes an operation that another has not entered.
        """
        operation = self.state.position.operation
        operations = torch.zeros(group.size, dtype=torch.float64)
        operations[group.rank] = float(operation)
        fault("agree", self.member_id)
        group.wait(group.all_reduce(operations))
        newest = int(operations.max().item())
        source = int(operations.argmax().item())
        late = [rank for rank, number in enumerate(operations.tolist()) if int(number) < newest]
        if group.rank == source:
            for rank in late:
                with group.waiting():
                    send_state(group, self.state.snapshot(), rank)
        if operation < newest - 1:
            end_at_once(f"missed {newest - operation} operations")
        if group.rank in late:
            with group.waiting():
                catch_up(group, self.state)
        return operation < newest

    # --- the end ---

    def wait_for_the_end(self) -> bool:
        """Wait until the training is complete and its weights are written. False: a recovery is due first."""
        control = self._control
        self.clock.end()
        if control is None:
            return True
        control.wait_until(lambda: control.finished or control.recovery is not None)
        return control.finished


def _joiners(plan: GenerationPlan) -> list[int]:
    return [number for number, member in enumerate(plan.members) if not member.holder]


def _source(plan: GenerationPlan, rank: int) -> int | None:
    """The holder that alone hands the state to the joiner of that rank: holders take turns. None for a holder."""
    holders = [number for number, member in enumerate(plan.members) if member.holder]
    joiners = _joiners(plan)
    return holders[joiners.index(rank) % len(holders)] if rank in joiners else None
