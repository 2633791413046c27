"""Membership: the coordinator's decisions about which ranks train together, without any I/O.

`Membership` takes events (`joined`, `received`, `disconnected`, `retarget`, `ticked`) and returns a list of actions:
messages for ranks (`Send`) and journal entries (`Entry`). It never reads a clock: `now` is passed in.

A change of size takes two phases. PREPARE: every member of the next generation builds its group in the background,
and those who leave take note; training goes on. COMMIT: the present members set a flag that rides on their next
all-reduce, so that all of them switch after the same step. Until the commit, any mishap just voids the plan. A member
that dies (at any time) voids it too, and those that hold the training's state go on in a generation of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tidepool.backoff import Backoff
from tidepool.protocol import (
    AttemptFailed,
    Cause,
    CoordinatorMessage,
    Finished,
    GenerationAbandoned,
    GenerationPlan,
    Halted,
    Join,
    Lost,
    Member,
    MemberMessage,
    NoProgress,
    RankFailed,
    RankJoined,
    RankStuck,
    ShimCommand,
    ShimJoin,
    host_of,
)
from tidepool.torch.coordination.failures import Failures
from tidepool.torch.coordination.heartbeats import Heartbeats, Patience, Stop
from tidepool.torch.coordination.loop_ends import LoopEnds
from tidepool.torch.coordination.minority import Minority
from tidepool.torch.coordination.publication import Publications
from tidepool.torch.coordination.roster import (
    Action,
    Pending,
    PredecessorPlans,
    Rank,
    Send,
    abandonments,
    active_record,
    dismissals,
    first_members,
    generation_of,
    holders_of,
    is_history,
    let_leavers_go,
    member_ids,
    new_plan,
    next_change,
    planned_record,
    training_members,
    wanted_of,
)

__all__ = ["Membership"]

#: Seconds after which an unprepared plan is void and the ranks that have not answered are ended.
PREPARE_TIMEOUT_SECONDS = 30.0


@dataclass
class Membership:
    """The state of one attempt's process groups. The module's docstring describes the protocol."""

    store_address: str
    store_port: int
    min_slots: int
    patience: Patience = field(default_factory=Patience)
    target: list[Member] = field(default_factory=list)
    target_revision: int = -1
    generation: int = 0
    active: GenerationPlan | None = None
    pending: Pending | None = None
    ranks: dict[str, Rank] = field(default_factory=dict)
    finished: bool = False
    #: Whether the attempt is over because every rank that held the state is gone.
    lost: bool = False
    succession: PredecessorPlans = field(default_factory=PredecessorPlans)
    #: Newest generation whose beginning is in the journal.
    recorded: int = 0
    publications: Publications = field(default_factory=Publications)
    #: Whether all ranks are to stop after the same step, once it is saved; and whether they have.
    halting: bool = False
    halted: bool = False
    #: Ranks that were given up, with the reason: they count as dead, and their messages are ignored.
    fenced: dict[str, str] = field(default_factory=dict)
    failures: Failures = field(default_factory=Failures)
    #: Rank that was told that it comes first; "": nobody has asked before the first generation.
    first: str = ""
    loop_ends: LoopEnds = field(default_factory=LoopEnds)
    minority: Minority = field(default_factory=Minority)
    #: Backoff after changes whose group could not be built.
    backoff: Backoff = field(default_factory=lambda: Backoff(first_seconds=0.25, longest_seconds=15.0))

    def __post_init__(self) -> None:
        self._heartbeats = Heartbeats(self.patience)

    # --- events ----------

    def retarget(self, target: list[Member], target_revision: int, now: float, *, halt: bool = False) -> list[Action]:
        if target_revision < self.target_revision:
            return []
        self.target, self.target_revision, self.halting = target, target_revision, halt
        return self._replan(now)

    def joined(self, join: Join, now: float) -> list[Action]:
        if join.member_id in self.fenced:
            return [Send(join.member_id, CoordinatorMessage("fenced")), *self._fences([join.member_id])]
        if self.lost or (not self.finished and is_history(join, self.active, self.pending, self.succession)):
            return [Send(join.member_id, CoordinatorMessage("fenced"))]
        if self.halted:
            return [Send(join.member_id, CoordinatorMessage("stop"))]
        if self.finished:
            return [Send(join.member_id, CoordinatorMessage("finished" if join.generation else "stop"))]
        ready_at = now if join.ready else None
        rank = Rank(join.member_id, join.host, join.slot, ready_at, join.generation, False, join.target_revision)
        self.ranks[join.member_id] = rank
        self._heartbeats.note_alive(join.member_id, now)
        self.minority.heard_of(join.host)
        self.active = self.succession.catch_up(join, self.active, self.ranks)
        self.succession.returned(join.member_id)
        joined = RankJoined(rank.member_id, rank.host, rank.slot, at=now)
        void = [] if join.generation else self.succession.void
        abandoned = [Send(join.member_id, CoordinatorMessage("abandon", generation)) for generation in void]
        return [
            joined,
            *abandoned,
            *self.publications.newest(rank.member_id, now),
            *self._end_succession(now),
            *self._end_hold(now),
            *self._replan(now),
        ]

    def received(self, member_id: str, message: MemberMessage, now: float) -> list[Action]:
        rank = self.ranks.get(member_id)
        if rank is None:
            return []
        self._heartbeats.note_alive(member_id, now)
        answers: dict[str, Callable[[Rank, MemberMessage, float], list[Action]]] = {
            "ready": self._ready,
            "prepared": self._prepared,
            "unprepared": self._unprepared,
            "switched": self._switched,
            "left": self._left,
            "broken": self._broken,
            "trained": self._loop_ended,
            "finished": self._loop_ended,
            "checkpoint": self._checkpoint,
            "checkpoint_failed": lambda rank, message, now: [self.publications.failed(message, now)],
            "restored": lambda rank, message, now: self.publications.restored(message, now),
            "alive": self._alive,
        }
        return answers[message.kind](rank, message, now)

    def disconnected(self, member_id: str, now: float) -> list[Action]:
        self._heartbeats.forget(member_id)
        rank = self.ranks.pop(member_id, None)
        if rank is None or self.finished or self.halted or rank.left:
            return []
        if self.loop_ends.gone(rank, generation_of(self.active), now):
            return []
        self.minority.lost_sight(rank.host)
        return self._died([rank], now)

    def _died(self, ranks: list[Rank], now: float) -> list[Action]:
        actions: list[Action] = []
        for rank in [] if self.finished or self.lost else ranks:
            took_part = rank.member_id in member_ids(self.active) or bool(rank.generation)
            self.failures.rank_failed(rank.member_id, took_part=took_part, newcomer=rank.is_newcomer(self.active))
            actions += self._gone(rank, now)
        return [*actions, *self._apply_failures(now)]

    def shim_joined(self, join: ShimJoin, now: float) -> list[Action]:
        """A shim reports the living ranks of its host: those that it does not list are awaited no longer."""
        fences = self._fences(join.living)
        if not {*join.living} & {*member_ids(self.active)}:  # ranks that live will join by themselves
            self.minority.heard_of(join.host)
        if host_of(self.first) == join.host and self.first not in join.living:
            self.first = ""
        dead = self.succession.dead_on(join)
        for member_id in dead:
            self.failures.rank_failed(member_id, took_part=True)
        for end in join.ended:
            self.failures.ended(end, connected=end.member_id in self.ranks, under_way=self.active is not None)
        killed = self._died(self.loop_ends.reported(join), now)
        ended = [*(self._end_succession(now) if dead else []), *killed, *self._finish_if_over(now)]
        return [*fences, *ended, *self._end_hold(now)]

    def names_first(self, member_id: str) -> bool:
        """Return whether that rank comes first; none does that comes while others train."""
        if self.active is not None or self.finished or self.lost:
            return False
        self.first = self.first or (member_ids(self.pending.plan)[0] if self.pending else member_id)
        return self.first == member_id

    def ticked(self, now: float) -> list[Action]:
        self._heartbeats.look(now)
        killed = self._died(self.loop_ends.overdue(now), now)
        finished, overdue = self._finish_if_over(now), [*self._give_up_stuck(now), *self._overdue(now)]
        return [*killed, *finished, *overdue, *self._end_hold(now), *self._replan(now)]

    def _overdue(self, now: float) -> list[Action]:
        self.succession.pass_time(now)
        actions = self._end_succession(now)
        pending = self.pending
        if pending and not pending.committed and now - pending.since > PREPARE_TIMEOUT_SECONDS:
            late = sorted(pending.unprepared)
            actions += self._abandon(f"not prepared in time: {', '.join(late)}", now)
            for member_id in late:
                if member_id not in member_ids(self.active):
                    actions += self._fence(member_id, "it did not prepare for its generation in time")
        return actions

    def restore(self, planned: dict[int, GenerationPlan], active: int, target_revision: int, now: float) -> None:
        """Continue after a restart of the coordinator, from its journal: members have a while to join again."""
        self.generation, self.active = max(planned), planned.get(active)
        self.recorded, self.target_revision = active, target_revision
        self.succession = PredecessorPlans.of(planned, self.active, now)
        for member in self.active.members if self.active else []:
            self.minority.lost_sight(member.host)

    def _end_succession(self, now: float) -> list[Action]:
        """Void the plans of our predecessor that nobody trains in, once nobody is awaited any more.

        Its members may have been told to switch, or not: only a new generation makes all of them agree again.
        """
        succession = self.succession
        if not succession.under_way or succession.awaited or self.finished:
            return []
        succession.end(generation_of(self.active))
        if not succession.void and set(member_ids(self.active)) <= set(self.ranks):
            return []
        waiting = sorted(set(self.ranks) - set(holders_of(self.ranks, self.active)))
        abandon = [CoordinatorMessage("abandon", generation) for generation in succession.void]
        return [*(Send(member_id, message) for message in abandon for member_id in waiting), *self._recover(now)]

    # --- messages of ranks ---

    def _ready(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        rank.ready_at = now
        return self._replan(now)

    def _prepared(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        pending = self.pending
        if pending is None or not pending.is_prepared_in(message):
            return []
        pending.unprepared.discard(rank.member_id)
        return self._commit_if_prepared()

    def _unprepared(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        if self.pending is None or not self.pending.is_prepared_in(message):
            return []
        self.backoff.add(now)
        return self._abandon(f"{rank.member_id}: {message.error}", now)

    def _switched(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        """A generation begins when rank 0 has switched; after a restart, when any of its members has."""
        pending = self.pending
        rank.switched(message, pending.plan if pending else self.active)
        if pending and pending.is_begun_by(rank.member_id, message):
            let_leavers_go(self.ranks, self.active, pending.plan)
            self.active, self.pending = pending.plan, None
        if self.active is None or self.active.generation != message.generation or self.recorded == message.generation:
            return []
        self.recorded = message.generation
        self.backoff.reset()
        self.publications.newest_at = self.publications.newest_at or now
        self.failures.went_on(message.generation, message.step)
        return [active_record(self.active, message, now), *self._apply_failures(now), *self._replan(now)]

    def _left(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        rank.left = True
        pending = self.pending.plan if self.pending else None
        counted_on = pending and pending.cause == "failure" and rank.member_id in member_ids(pending)
        return self._recover(now) if counted_on else []

    def _broken(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        """Form a generation of the survivors of a failed collective, though no connection has closed yet."""
        if self.finished:
            return [Send(rank.member_id, CoordinatorMessage("finished"))]
        if rank.left or self.halted:  # the others have continued without it, as planned
            return [Send(rank.member_id, CoordinatorMessage("stop"))]
        if self.minority.since is not None:
            return [Send(rank.member_id, CoordinatorMessage("hold"))]
        recovering = self.pending is not None and self.pending.plan.cause == "failure"
        latest = self.generation if recovering else generation_of(self.active)
        if message.generation < latest and rank.member_id in member_ids(self.active):
            return []  # an older group's failure; its recovery is under way
        return self._recover(now) if rank.member_id in holders_of(self.ranks, self.active) else []

    def _loop_ended(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        self.loop_ends.note(rank.member_id, message)
        return self._finish_if_over(now)

    def _finish_if_over(self, now: float) -> list[Action]:
        """Let everybody go once the loops of all ranks are over."""
        if self.finished or self.lost or self.succession.awaited or self.active is None:
            return []
        members = member_ids(self.active)
        living = [member_id for member_id in members if member_id in self.ranks]
        report = self.loop_ends.of_training(living, self.active.generation)
        if report is None:
            return []
        self.finished, self.pending = True, None
        trained = {member_id for member_id, other in self.ranks.items() if other.generation or member_id in members}
        end, stop = CoordinatorMessage("finished"), CoordinatorMessage("stop")
        record = Finished(report.step, report.epoch, at=now)
        return [record, *(Send(member_id, end if member_id in trained else stop) for member_id in self.ranks)]

    def _checkpoint(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        takes_part = rank.member_id in holders_of(self.ranks, self.active)
        over = self.finished or self.lost
        answer = self.publications.decide(rank.member_id, message, now, takes_part=takes_part, over=over)
        return [*answer, *(self._halt_if_saved(message, now) if message.step in self.publications.steps else [])]

    def published(self, message: MemberMessage, path: str, now: float) -> list[Action]:
        return [*self.publications.published(message, path, list(self.ranks), now), *self._halt_if_saved(message, now)]

    def _halt_if_saved(self, message: MemberMessage, now: float) -> list[Action]:
        """End the training once all have stopped after the step of this checkpoint: nothing is lost now."""
        pending = self.pending
        halted = message.written and message.written.halt
        if pending is None or pending.plan.cause != "halt" or pending.plan.generation != halted:
            return []
        self.halted, self.pending = True, None
        record = Halted(message.step, message.epoch, at=now)
        return [record, *(Send(member_id, CoordinatorMessage("stop")) for member_id in self.ranks)]

    def _alive(self, rank: Rank, message: MemberMessage, now: float) -> list[Action]:
        rank.epoch = message.epoch
        self._heartbeats.record(rank.member_id, message, now)
        self.loop_ends.stepped(rank.member_id, message.operation)
        overcome = self.failures.overcome(message.step) if rank.member_id in member_ids(self.active) else []
        return [ShimCommand("retry", member_id) for member_id in overcome]

    # --- decisions ---

    def _give_up_stuck(self, now: float) -> list[Action]:
        """Continue without the members that block the others. Stop a training that makes no step."""
        if self.finished or self.lost or self.succession.awaited or self.active is None or self.minority.since:
            return []
        members = training_members(self.ranks, self.active, self.pending)
        verdict = self._heartbeats.judge(members, self.loop_ends, self.active.generation, now)
        if isinstance(verdict, Stop):
            return self._stop_all(verdict, now)
        actions: list[Action] = []
        for stuck in verdict:
            host, seconds = self.ranks[stuck.member_id].host, round(stuck.seconds, 1)
            actions.append(RankStuck(stuck.member_id, host, stuck.silent, seconds, stuck.why, at=now))
            actions += self._fence(stuck.member_id, stuck.why, stacks=not stuck.silent)
            self._heartbeats.give_up(stuck, now)
        return actions + self._recover(now) if actions else []

    def _stop_all(self, stop: Stop, now: float) -> list[Action]:
        """End the attempt, and have the stacks of all ranks written."""
        aborts = [ShimCommand("abort", member_id, stop.why, stop.error) for member_id in sorted(self.ranks)]
        self.fenced |= dict.fromkeys(self.ranks, stop.why)
        self.lost, self.active = True, None
        return [NoProgress(stop.why, at=now), *aborts, Lost(self.generation, at=now)]

    def _apply_failures(self, now: float) -> list[Action]:
        """Let the others continue without a rank that a script error ended, unless this step's error repeats."""
        actions: list[Action] = []
        if self.active is None or self.finished:
            return actions
        for failure in self.failures.take_complete():
            actions.append(failure.record(RankFailed, now))
            if failure.again and failure.step is not None:
                return [*actions, failure.record(AttemptFailed, now), *self._lose(now)]
            if failure.in_circles:
                actions.append(failure.growth_given_up(self.active, now))
        return actions

    def _fence(self, member_id: str, why: str, *, stacks: bool = False) -> list[Action]:
        """Treat a rank as dead from now on: its shim kills it. stacks: after its stacks are written."""
        self.fenced[member_id] = why
        self._heartbeats.forget(member_id)
        del self.ranks[member_id]
        if stacks:
            return [ShimCommand("abort", member_id, why)]
        return [Send(member_id, CoordinatorMessage("fenced")), ShimCommand("fence", member_id, why)]

    def _fences(self, names: list[str]) -> list[ShimCommand]:
        return [ShimCommand("fence", name, self.fenced[name]) for name in names if name in self.fenced]

    def _gone(self, rank: Rank, now: float) -> list[Action]:
        if rank.member_id in member_ids(self.active) or rank.generation:
            return self._recover(now)
        pending = self.pending
        if pending is None or rank.member_id not in member_ids(pending.plan):
            return self._replan(now)
        if pending.committed:
            return self._recover(now)
        return [*self._abandon(f"{rank.member_id} died while preparing", now), *self._replan(now)]

    def _recover(self, now: float) -> list[Action]:
        """Plan a generation of the live ranks that hold the state; joiners wait for the next plan.

        After a restart of the coordinator, wait until all members are back or given up: a missing one may be alive.
        """
        if self.succession.awaited:
            return []
        if (held := self.minority.decide(self.ranks, self.active, now)) is not None:
            return held
        holders = holders_of(self.ranks, self.active)
        actions: list[Action] = abandonments(self.ranks, self.active)
        if self.pending:
            actions += self._abandon("a member died", now, to=sorted(set(self.ranks) - set(holders)))
        if not holders:
            return actions + (self._lose(now) if self.active else self._replan(now))
        plan = self._new_plan(holders, [], "failure")
        self.pending = Pending(plan, now, set(), committed=True)
        actions.append(planned_record(plan, now))
        return actions + [
            Send(member_id, CoordinatorMessage("recover", plan.generation, plan)) for member_id in holders
        ]

    def _end_hold(self, now: float) -> list[Action]:
        """Go on once the control plane or enough hosts are back; give up after a while."""
        if self.minority.since is None or self.finished or self.lost:
            return []
        return self._lose(now) if self.minority.is_over(now) else self._recover(now)

    def _lose(self, now: float, farewell: Literal["fenced", "stop"] = "fenced") -> list[Action]:
        self.lost, self.active = True, None
        return [Lost(self.generation, at=now), *(Send(one, CoordinatorMessage(farewell)) for one in sorted(self.ranks))]

    def _replan(self, now: float) -> list[Action]:
        """Start the next planned change, if one is due."""
        over = self.finished or self.lost or self.halted
        if over or self.target_revision < 0 or self.succession.awaited or self.minority.since is not None:
            return []
        if self.halting:
            return self._halt(now)
        if self.pending or now < self.backoff.until:
            return []
        dismissed = dismissals(self.ranks, self.target, self.active, self.target_revision)
        return [*dismissed, *(self._resize(now) if self.active else self._start(now))]

    def _halt(self, now: float) -> list[Action]:
        """Plan that all ranks leave after the same step. A change in progress that is not committed is void."""
        if self.pending and (self.pending.committed or self.pending.plan.cause == "halt"):
            return []
        actions = self._abandon("the training is to halt", now) if self.pending else []
        if self.active is None:  # nothing trains yet
            return actions + self._lose(now, "stop")
        leave = [member_id for member_id in member_ids(self.active) if member_id in self.ranks]
        return actions + self._prepare(self._new_plan([], [], "halt"), leave, now)

    def _resize(self, now: float) -> list[Action]:
        active = [member_id for member_id in member_ids(self.active) if member_id in self.ranks]
        ready_at = {member_id: rank.ready_at for member_id, rank in self.ranks.items() if rank.ready_at is not None}
        change = next_change(wanted_of(self.ranks, self.target), active, ready_at, places=len(self.target), now=now)
        if change is None:
            return []
        stay, join, leave = change
        return self._prepare(self._new_plan(stay, join, "resize"), leave, now)

    def _start(self, now: float) -> list[Action]:
        first = first_members(wanted_of(self.ranks, self.target), self.ranks, self.min_slots, self.first)
        return self._prepare(self._new_plan(first[:1], first[1:], "start"), [], now) if first else []

    def _prepare(self, plan: GenerationPlan, leave: list[str], now: float) -> list[Action]:
        concerned = member_ids(plan) + leave
        self.pending = Pending(plan, now, set(concerned))
        message = CoordinatorMessage("prepare", plan.generation, plan)
        return [planned_record(plan, now), *(Send(member_id, message) for member_id in concerned)]

    def _commit_if_prepared(self) -> list[Action]:
        pending = self.pending
        if pending is None or pending.unprepared:
            return []
        pending.committed = True
        deciders = member_ids(self.active or pending.plan)
        message = CoordinatorMessage("commit", pending.plan.generation)
        return [Send(member_id, message) for member_id in deciders if member_id in self.ranks]

    def _abandon(self, why: str, now: float, to: list[str] | None = None) -> list[Action]:
        pending, self.pending = self.pending, None
        assert pending is not None
        generation = pending.plan.generation
        concerned = sorted(self.ranks) if to is None else to
        record = GenerationAbandoned(generation, why, at=now)
        return [record, *(Send(member_id, CoordinatorMessage("abandon", generation)) for member_id in concerned)]

    def _new_plan(self, holders: list[str], joiners: list[str], cause: Cause) -> GenerationPlan:
        self.generation += 1
        place = (self.store_address, self.store_port)
        return new_plan(self.generation, self.ranks, holders, joiners, place, self.target_revision, cause)
