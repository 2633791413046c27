"""Detection of stuck ranks from their heartbeats, without any I/O.

Each rank's control thread reports about once a second where its training thread is. Two states count as stuck: a silent
rank (its process is stopped, holds the interpreter's lock, or its host is gone), and a rank that others wait for in a
collective that it has not entered. A slow rank is not stuck: the timeouts grow with the duration of steps, are longer
before a rank's first step (which may compile), and grow each time a busy rank is given up.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from tidepool.protocol import MemberMessage

__all__ = ["HEARTBEAT_SECONDS", "Heartbeats", "Stuck"]

#: Time between two heartbeats of a rank.
HEARTBEAT_SECONDS = 1.0
#: Timeout in median steps, used where it exceeds the configured one.
_STEPS = 10
#: Factors of the timeout: for a silent rank that no other waits for, and for a rank before its first step.
_ALONE = 3
_FIRST_STEP = 10
#: Factor for busy ranks each time one is given up: the script may be slow at that place on any rank.
_ONCE_MORE = 4
#: Factor of the timeout after which a stall is reported: no step is completed, though no rank is stuck.
_STALL = 5
#: A longer gap between two checks means that the coordinator itself was suspended, so no rank is blamed for it.
_SLEEP_SECONDS = 2.0


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


@dataclass
class _Heartbeat:
    seen_at: float
    generation: int = 0
    operation: int = 0
    #: Time since which it has waited for other ranks; None: it does not wait.
    waiting_since: float | None = None
    #: Median duration of a step; 0 before the first.
    step_seconds: float = 0.0

    @property
    def place(self) -> tuple[int, int]:
        return self.generation, self.operation


class Heartbeats:
    def __init__(self, stuck_seconds: float) -> None:
        self._stuck_seconds = stuck_seconds
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._looked_at: float | None = None
        #: Number of busy ranks that were given up.
        self._given_up = 0
        self._newest = 0
        self._moved_at: float | None = None
        self._stall_reported = False

    def note_alive(self, member_id: str, now: float) -> None:
        """Record that the rank sent a message."""
        self._heartbeats.setdefault(member_id, _Heartbeat(now)).seen_at = now

    def record(self, member_id: str, message: MemberMessage, now: float) -> None:
        """Record a heartbeat."""
        waiting_since = None if message.waits_seconds is None else now - message.waits_seconds
        self._heartbeats[member_id] = _Heartbeat(
            now, message.generation, message.operation, waiting_since, message.step_seconds
        )
        if message.generation and (message.operation > self._newest or self._moved_at is None):
            self._newest, self._moved_at, self._stall_reported = message.operation, now, False

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

    def patience(self, members: Iterable[str]) -> float:
        steps = [
            heartbeat.step_seconds
            for member_id in members
            if (heartbeat := self._heartbeats.get(member_id)) and heartbeat.step_seconds
        ]
        return max(self._stuck_seconds, _STEPS * statistics.median(steps) if steps else 0.0)

    def stuck(self, members: list[str], now: float) -> list[Stuck]:
        """Return the members that block the others of their generation, or seem dead."""
        patience = self.patience(members)
        waits = {
            member_id: now - heartbeat.waiting_since
            for member_id in members
            if (heartbeat := self._heartbeats.get(member_id))
            and heartbeat.waiting_since is not None
            and now - heartbeat.seen_at <= patience
        }
        found = [self._judge(member_id, waits, patience, now) for member_id in members if member_id in self._heartbeats]
        return [stuck for stuck in found if stuck is not None]

    def give_up(self, stuck: Stuck) -> None:
        self._given_up += not stuck.silent

    def _judge(self, member_id: str, waits: dict[str, float], patience: float, now: float) -> Stuck | None:
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
        busy = patience * _ONCE_MORE**self._given_up * (1 if heartbeat.step_seconds else _FIRST_STEP)
        longest = max(held_up, default=0.0)
        return Stuck(member_id, False, longest) if longest > busy else None

    def stalled(self, members: list[str], now: float) -> str | None:
        """Return the description of a stall, once: no rank completes a step, though none is stuck."""
        if self._moved_at is None or self._stall_reported:
            return None
        seconds = now - self._moved_at
        if seconds <= _STALL * self.patience(members):
            return None
        self._stall_reported = True
        known = {member_id: self._heartbeats[member_id] for member_id in members if member_id in self._heartbeats}
        busy = sorted(member_id for member_id, heartbeat in known.items() if heartbeat.waiting_since is None)
        doing = f"the script is busy in {', '.join(busy)}" if busy else "all ranks wait for each other"
        return f"No step for {seconds:.0f} s: {doing}."
