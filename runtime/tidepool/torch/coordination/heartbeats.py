"""Detection of stuck ranks from their pulses, without any I/O.

Each rank's control thread tells about once a second where its training thread is. Two things are suspicious: silence
(the process is stopped, holds the interpreter's lock, or its host is gone), and a rank that others wait for in a
collective that it has not entered. Being slow is neither: patience grows with the steps, is longer where a rank has not
made its first step (it may compile), and longer each time when somebody had to be given up for being busy.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from tidepool.protocol import MemberMessage

__all__ = ["PULSE_SECONDS", "Pulses", "Stuck"]

#: Time between two pulses of a rank.
PULSE_SECONDS = 1.0
#: Patience in median steps, where that is more than the setting.
_STEPS = 10
#: More patience, in multiples: with a silent rank that nobody waits for, and with one that has made no step yet.
_ALONE = 3
_FIRST_STEP = 10
#: ... with busy ranks, for each time that one was given up: the script may be slow there, whoever runs it.
_ONCE_MORE = 4
#: Patience with a training in which nobody makes a step and nobody is to blame, before it is reported.
_STALL = 5
#: Time that passes between two looks without our looking is our own sleep, not the ranks'.
_SLEEP_SECONDS = 2.0


@dataclass(frozen=True)
class Stuck:
    member_id: str
    #: No line came for so long, or others have waited so long for it.
    silent: bool
    seconds: float

    @property
    def why(self) -> str:
        if self.silent:
            return f"it has not been heard of for {self.seconds:.0f} s"
        return f"the other ranks have waited {self.seconds:.0f} s for it: its script is busy, or hangs"


@dataclass
class _Pulse:
    seen_at: float
    generation: int = 0
    operation: int = 0
    #: Since when it waits for other ranks; None: it does not.
    waiting_since: float | None = None
    #: Its median; 0 before its first step.
    step_seconds: float = 0.0

    @property
    def place(self) -> tuple[int, int]:
        return self.generation, self.operation


class Pulses:
    def __init__(self, stuck_seconds: float) -> None:
        self._stuck_seconds = stuck_seconds
        self._pulses: dict[str, _Pulse] = {}
        self._looked_at: float | None = None
        #: Times that a busy rank was given up.
        self._given_up = 0
        self._newest = 0
        self._moved_at: float | None = None
        self._stall_reported = False

    def seen(self, member_id: str, now: float) -> None:
        """Note a sign of life."""
        self._pulses.setdefault(member_id, _Pulse(now)).seen_at = now

    def record(self, member_id: str, message: MemberMessage, now: float) -> None:
        """Note a pulse."""
        waiting_since = None if message.waits_seconds is None else now - message.waits_seconds
        self._pulses[member_id] = _Pulse(
            now, message.generation, message.operation, waiting_since, message.step_seconds
        )
        if message.generation and (message.operation > self._newest or self._moved_at is None):
            self._newest, self._moved_at, self._stall_reported = message.operation, now, False

    def forget(self, member_id: str) -> None:
        self._pulses.pop(member_id, None)

    def look(self, now: float) -> None:
        """Called often. A gap means that we ourselves stood still: nobody is blamed for that time."""
        slept = 0.0 if self._looked_at is None else now - self._looked_at
        if slept > _SLEEP_SECONDS:
            for pulse in self._pulses.values():
                pulse.seen_at += slept
                if pulse.waiting_since is not None:
                    pulse.waiting_since += slept
            if self._moved_at is not None:
                self._moved_at += slept
        self._looked_at = now

    def patience(self, members: Iterable[str]) -> float:
        steps = [
            pulse.step_seconds for member_id in members if (pulse := self._pulses.get(member_id)) and pulse.step_seconds
        ]
        return max(self._stuck_seconds, _STEPS * statistics.median(steps) if steps else 0.0)

    def stuck(self, members: list[str], now: float) -> list[Stuck]:
        """The members that hold up those they train with, or seem dead."""
        patience = self.patience(members)
        waits = {
            member_id: now - pulse.waiting_since
            for member_id in members
            if (pulse := self._pulses.get(member_id))
            and pulse.waiting_since is not None
            and now - pulse.seen_at <= patience
        }
        found = [self._judge(member_id, waits, patience, now) for member_id in members if member_id in self._pulses]
        return [stuck for stuck in found if stuck is not None]

    def give_up(self, stuck: Stuck) -> None:
        self._given_up += not stuck.silent

    def _judge(self, member_id: str, waits: dict[str, float], patience: float, now: float) -> Stuck | None:
        pulse = self._pulses[member_id]
        silent = now - pulse.seen_at
        longest = max((seconds for other, seconds in waits.items() if other != member_id), default=0.0)
        if silent > patience * (1 if longest > patience else _ALONE):
            return Stuck(member_id, True, silent)
        if silent > patience or pulse.waiting_since is not None:
            return None
        # Who is already further than the one that waits has not kept it waiting: that one's news is older.
        held_up = [
            seconds
            for other, seconds in waits.items()
            if other != member_id and pulse.place <= self._pulses[other].place
        ]
        busy = patience * _ONCE_MORE**self._given_up * (1 if pulse.step_seconds else _FIRST_STEP)
        longest = max(held_up, default=0.0)
        return Stuck(member_id, False, longest) if longest > busy else None

    def stalled(self, members: list[str], now: float) -> str | None:
        """Describe a stall, once: nobody makes a step, though nobody can be blamed for it."""
        if self._moved_at is None or self._stall_reported:
            return None
        seconds = now - self._moved_at
        if seconds <= _STALL * self.patience(members):
            return None
        self._stall_reported = True
        known = {member_id: self._pulses[member_id] for member_id in members if member_id in self._pulses}
        busy = sorted(member_id for member_id, pulse in known.items() if pulse.waiting_since is None)
        doing = f"the script is busy in {', '.join(busy)}" if busy else "all ranks wait for each other"
        return f"No step for {seconds:.0f} s: {doing}."
