"""Detection of stuck ranks from their heartbeats, without any I/O.

Each rank's control thread reports about once a second where its training thread is. Two states count as stuck: a silent
rank (its process is stopped, holds the interpreter's lock, or its host is gone), and a rank that others wait for in a
collective that it has not entered. A slow rank is not stuck: the timeouts grow with the duration of steps, are longer
before a rank's first step (which may compile), and grow each time a busy rank is given up.

A training in which nobody makes a step for the deadline is stopped, and so is one whose ranks have parted ways: some
have ended their loop, and the others wait for them, or some wait in one collective and the others in another.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidepool.collective_calls import CollectiveCall, calls_differ, described
from tidepool.protocol import STALL_SECONDS, MemberMessage
from tidepool.rank_exits import CALLS_DIFFER, LOOPS_DIFFER, MODELS_DIFFER, STALLED
from tidepool.torch.coordination.loop_ends import LoopEnds

__all__ = ["HEARTBEAT_SECONDS", "Heartbeats", "Patience", "Stop", "Stuck"]

#: Time between two heartbeats of a rank.
HEARTBEAT_SECONDS = 1.0
#: Timeout in median steps, used where it exceeds the configured one.
_STEPS = 10
#: Factors of the timeout: for a silent rank that no other waits for, and for a rank before its first step.
_ALONE = 3
_FIRST_STEP = 2
#: Factor for busy ranks each time one is given up: the script may be slow at that place on any rank.
_ONCE_MORE = 4
#: Factor of the deadline of a training while one of its ranks may be to blame.
_BLAMED_FIRST = 2
#: Silence after which a rank's last word about its waiting no longer counts.
_MISSED_SECONDS = 5 * HEARTBEAT_SECONDS
#: Time for which ranks have to wait for others that have ended their loop.
_PARTED_SECONDS = 10.0
#: A longer gap between two checks means that the coordinator itself was suspended, so no rank is blamed for it.
_SLEEP_SECONDS = 2.0


@dataclass(frozen=True)
class Patience:
    """Limits in seconds."""

    #: Without a line of a rank.
    silence: float = 60.0
    #: Without a step, of a rank that others wait for, and of the training.
    step: float = STALL_SECONDS
    #: Until a training's first step, where that is more.
    launch: float = 1800.0


@dataclass(frozen=True)
class Stuck:
    member_id: str
    #: Seconds since its last message, or for which others have waited for it.
    silent: bool
    seconds: float

    @property
    def why(self) -> str:
        if self.silent:
            return f"it has not been heard of for {self.seconds:.0f} s"
        return f"the other ranks have waited {self.seconds:.0f} s for it: its script is busy, or hangs"


@dataclass(frozen=True)
class Stop:
    """The training is to be stopped: the kind of error, and a sentence about it."""

    error: str
    why: str


@dataclass
class _Heartbeat:
    seen_at: float
    generation: int = 0
    operation: int = 0
    #: Time since which it has waited for other ranks; None: it does not wait.
    waiting_since: float | None = None
    #: Median duration of a step; 0 before the first.
    step_seconds: float = 0.0
    #: The collective that it waits in, if it has waited for some time.
    call: CollectiveCall | None = None

    @property
    def place(self) -> tuple[int, int]:
        return self.generation, self.operation


class Heartbeats:
    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._looked_at: float | None = None
        #: Number of busy ranks that were given up.
        self._given_up = 0
        #: The furthest place of a rank, and when one came there: a new generation counts as a step.
        self._newest = 0, 0
        self._moved_at: float | None = None

    def note_alive(self, member_id: str, now: float) -> None:
        """Record that the rank sent a message."""
        self._heartbeats.setdefault(member_id, _Heartbeat(now)).seen_at = now

    def record(self, member_id: str, message: MemberMessage, now: float) -> None:
        """Record a heartbeat."""
        waiting_since = None if message.waits_seconds is None else now - message.waits_seconds
        self._heartbeats[member_id] = _Heartbeat(
            now, message.generation, message.operation, waiting_since, message.step_seconds, message.call
        )
        place = message.generation, message.operation
        if message.generation and (place > self._newest or self._moved_at is None):
            self._newest, self._moved_at = place, now

    def forget(self, member_id: str) -> None:
        self._heartbeats.pop(member_id, None)

    def look(self, now: float) -> None:
        """Note that the coordinator is running. After a gap it was suspended itself, so no rank is blamed for that
        time."""
        slept = 0.0 if self._looked_at is None else now - self._looked_at
        if slept > _SLEEP_SECONDS:
            for heartbeat in self._heartbeats.values():
                heartbeat.seen_at += slept
                if heartbeat.waiting_since is not None:
                    heartbeat.waiting_since += slept
            if self._moved_at is not None:
                self._moved_at += slept
        self._looked_at = now

    def judge(self, members: list[str], ends: LoopEnds, generation: int, now: float) -> list[Stuck] | Stop:
        """Return the members that hold the others up, or that the training is to be stopped."""
        if calls := self._calls_apart(members, generation):
            return Stop(CALLS_DIFFER, calls_differ(calls))
        over, going_on = ends.parted(members, generation)
        if over and not going_on:
            return _models_differ(over, different) if (different := ends.differing(over)) else []
        if over and all(self._waits_for(name, max(map(ends.operation, over)), now) for name in going_on):
            return _loops_differ(over, going_on, self._calls(going_on, generation))
        return self.stuck(members, now) or self._stalled(members, now) or []

    def _calls(self, members: Iterable[str], generation: int) -> dict[str, CollectiveCall]:
        """Return the collectives in which the members wait."""
        known = {name: self._heartbeats[name] for name in members if name in self._heartbeats}
        return {
            name: heartbeat.call
            for name, heartbeat in known.items()
            if heartbeat.call is not None and heartbeat.generation == generation
        }

    def _calls_apart(self, members: Iterable[str], generation: int) -> dict[str, str]:
        """Return the calls of members that wait in collectives of different kinds, which none of them can leave.

        Those with the same number are the same collective: a rank that is behind may still come to the one ahead.
        """
        calls = self._calls(members, generation)
        newest = max((call.number for call in calls.values()), default=0)
        same = {name: call for name, call in calls.items() if call.number == newest}
        if len({call.kind for call in same.values()}) < 2:
            return {}
        return {name: described(call.kind, call.place) for name, call in same.items()}

    def _limit(self, members: Iterable[str], least: float) -> float:
        """Return `least`, or some steps of the members where they take longer."""
        steps = [
            heartbeat.step_seconds
            for member_id in members
            if (heartbeat := self._heartbeats.get(member_id)) and heartbeat.step_seconds
        ]
        return max(least, _STEPS * statistics.median(steps) if steps else 0.0)

    def _waits_for(self, member_id: str, operation: int, now: float) -> bool:
        """Return whether a rank waits in the collective after `operation`, and has for some time."""
        heartbeat = self._heartbeats.get(member_id)
        waiting_since = heartbeat.waiting_since if heartbeat and heartbeat.operation >= operation else None
        return waiting_since is not None and now - waiting_since > _PARTED_SECONDS

    def stuck(self, members: list[str], now: float) -> list[Stuck]:
        """Return the members that block the others of their generation, or seem dead."""
        patience = self._limit(members, self._patience.silence)
        waits = {
            member_id: now - heartbeat.waiting_since
            for member_id in members
            if (heartbeat := self._heartbeats.get(member_id))
            and heartbeat.waiting_since is not None
            and now - heartbeat.seen_at <= patience
        }
        busy = self._limit(members, self._patience.step) * _ONCE_MORE**self._given_up
        known = [member_id for member_id in members if member_id in self._heartbeats]
        found = [self._judge(member_id, waits, patience, busy, now) for member_id in known]
        return [stuck for stuck in found if stuck is not None]

    def give_up(self, stuck: Stuck, now: float) -> None:
        self._given_up += not stuck.silent
        self._moved_at = now  # the others have their time to go on

    def _judge(self, member_id: str, waits: dict[str, float], patience: float, busy: float, now: float) -> Stuck | None:
        """patience: with a silent rank, and `busy`: with one that others wait for, in seconds."""
        heartbeat = self._heartbeats[member_id]
        silent = now - heartbeat.seen_at
        longest = max((seconds for other, seconds in waits.items() if other != member_id), default=0.0)
        if silent > patience * (1 if longest > patience else _ALONE):
            return Stuck(member_id, True, silent)
        if silent > patience or heartbeat.waiting_since is not None:
            return None
        # A rank that is already further does not block the waiting one, whose report is older.
        held_up = [
            seconds
            for other, seconds in waits.items()
            if other != member_id and heartbeat.place <= self._heartbeats[other].place
        ]
        longest = max(held_up, default=0.0)
        return (
            Stuck(member_id, False, longest)
            if longest > busy * (1 if heartbeat.step_seconds else _FIRST_STEP)
            else None
        )

    def _stalled(self, members: list[str], now: float) -> Stop | None:
        """Return that nobody has made a step for the deadline.

        Where some ranks wait for others, these have the time first to be given up alone.
        """
        if self._moved_at is None:
            return None
        seconds = now - self._moved_at
        known = {member_id: self._heartbeats[member_id] for member_id in members if member_id in self._heartbeats}
        has_stepped = any(heartbeat.step_seconds for heartbeat in known.values())
        least = self._patience.step if has_stepped else max(self._patience.step, self._patience.launch)
        busy = sorted(
            member_id
            for member_id, heartbeat in known.items()
            if heartbeat.waiting_since is None or now - heartbeat.seen_at > _MISSED_SECONDS
        )
        if seconds <= self._limit(members, least) * (_BLAMED_FIRST if 0 < len(busy) < len(known) else 1):
            return None
        doing = f"the script is busy in {', '.join(busy)}" if busy else "all ranks wait for each other"
        why = (
            f"no step for {seconds:.0f} s: {doing}. The stack of each rank is in its error and its log. A script that "
            "needs longer between two steps is submitted with a longer deadline for a step (stall_seconds)"
        )
        return Stop(STALLED, why)


def _models_differ(members: list[str], different: list[str]) -> Stop:
    why = (
        f"at the end of the training loop, {', '.join(different)} held other weights or buffers than {members[0]}: the "
        "script changes them in some processes only, by an optimizer or a model that was not given to tidepool.torch, "
        "or in code that only the first process runs"
    )
    return Stop(MODELS_DIFFER, why)


def _loops_differ(over: list[str], going_on: list[str], calls: Mapping[str, CollectiveCall]) -> Stop:
    waits = [f"{name} waits in {described(call.kind, call.place)}. " for name, call in calls.items()]
    why = (
        f"the training loop has ended in {', '.join(over)}, and goes on in {', '.join(going_on)}: all processes have "
        f"to leave their loop after the same batch. {''.join(waits)}A script that continues from a snapshot of its own "
        "iterates over tidepool.torch.epochs(range(start, epochs)); one that stops early decides by a number that is "
        "the same in all"
    )
    return Stop(LOOPS_DIFFER, why)
