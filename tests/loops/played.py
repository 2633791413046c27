"""Plays a pattern of sizes to a loop, with a real forkserver, shims, coordinator and ranks."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidepool.protocol import StepRecord

from tests.loops.loop import CORPUS, Loop
from tests.loops.patterns import MOST, Event, Pattern
from tests.runtime.lab import Lab

__all__ = ["Played", "play"]

#: Deadlines of the training's own: for a rank that holds the others up, and for a step. They hold before ours.
_STUCK_SECONDS, _STALL_SECONDS = 15.0, 30.0
#: A run without a step, a join or an exit for so many seconds hangs.
SILENCE_SECONDS = 60.0
#: After a rank with an error, the others may be so many seconds without a step or an exit before they end.
_GRACE_SECONDS = 10.0
#: Largest number of attempts, of which some begin because all ranks of another have died.
_MOST_ATTEMPTS = 8
#: Steps of a generation after which all of its members have the training's state.
_STEPS_TO_SETTLE = 3
#: A go file with it lets ranks go on only when a halt is announced: no training has so many ranks.
_ANY_SIZE = 1_000_000
_PAUSE_SECONDS = 0.05


@dataclass
class Played:
    """Attempts of the loop's training, which have ended, and what was done to them."""

    labs: list[Lab] = field(default_factory=list)
    #: Ranks that the pattern killed, by (attempt, member_id).
    killed: set[tuple[int, str]] = field(default_factory=set)
    #: Ends of ranks that failed by themselves, in their order.
    failures: list[dict[str, Any]] = field(default_factory=list)
    #: Members of the training that trained on, or ended without an error, although others had failed.
    survivors: set[str] = field(default_factory=set)
    #: Stacks of all ranks if the run hung, else "".
    hung: str = ""

    def steps(self) -> list[int]:
        """Return the steps that count: an attempt may continue from a checkpoint that is older than the last step."""
        steps: list[int] = []
        for lab in self.labs:
            made = [record["step"] for record in _without_further_lines(lab.steps())]
            steps = [step for step in steps if not made or step < made[0]] + made
        return steps

    def sizes(self) -> str:
        """Return the numbers of ranks with the steps from which on they trained, as in `1 2@14`."""
        said, size = "", None
        for record in (record for lab in self.labs for record in lab.steps()):
            if record["world_size"] != size:
                said += f" {record['world_size']}@{record['step']}" if said else str(record["world_size"])
                size = record["world_size"]
        return said


def _without_further_lines(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records but the further lines of a step, in which are metrics that came when it was written."""
    own = StepRecord.__struct_fields__

    def is_further(record: dict[str, Any], before: dict[str, Any]) -> bool:
        return all(record.get(name) == before.get(name) for name in own)

    return [each for each, before in zip(records, [{}, *records], strict=False) if not is_further(each, before)]


class _Ended(Exception):
    """The run is over: complete, failed or hung."""


def play(loop: Loop, pattern: Pattern, forkserver: Path, folder: Path) -> Played:
    """Return when every process of the run has ended."""
    player = _Player(loop, pattern, forkserver, folder)
    try:
        player.play()
    except _Ended:
        pass
    finally:
        for lab in player.played.labs:
            lab.stop()
    return player.played


class _Player:
    def __init__(self, loop: Loop, pattern: Pattern, forkserver: Path, folder: Path) -> None:
        self._loop, self._pattern, self._forkserver, self._folder = loop, pattern, forkserver, folder
        self.played = Played()
        #: Number of ranks that are wanted since the newest resize.
        self._wanted = 0
        #: Events to which a further attempt, if there is one, still comes.
        self._left = pattern.events

    @property
    def _lab(self) -> Lab:
        return self.played.labs[-1]

    @property
    def _data(self) -> Path:
        return self._lab.folder.parent

    def play(self) -> None:
        self._begin(self._pattern.size)
        for number, event in enumerate(self._pattern.events):
            self._left = self._pattern.events[number + 1 :]
            self._until(lambda event=event: self._is_held(event) or self._is_past(event))  # type: ignore[misc]
            if self._is_held(event):
                self._happen(event)
        self._until(lambda: False)

    def _is_held(self, event: Event) -> bool:
        return any(self._data.glob(f"held-{event.step}-*"))

    def _is_past(self, event: Event) -> bool:
        """Return whether the step of the event was made while an earlier event was still under way."""
        return max(self.played.steps(), default=0) > event.step

    def _begin(self, size: int, **launch: Any) -> None:
        folder = self._folder / f"attempt-{len(self.played.labs) + 1}"
        smallest = min([size, *(event.size for event in self._pattern.events)])
        options = {
            "min_slots": smallest,
            "max_slots": MOST,
            "code_folder": str(CORPUS),
            "stuck_seconds": _STUCK_SECONDS,
            "stall_seconds": _STALL_SECONDS,
            **self._loop.launch,
            **launch,
        }
        lab = Lab(self._forkserver, folder, self._loop.script.name, **options)
        self.played.labs.append(lab)
        self._wanted = 0
        for event in self._left:
            (folder / f"hold-{event.step}").touch()
        lab.size(size, wait=self._until)

    # --- events ---

    def _happen(self, event: Event) -> None:
        match event.what:
            case "resize":
                self._lab.size(event.size)
                self._let_go(event, event.size)
            case "replace":
                self._let_go(event, event.size)
            case "suspend":
                self._lab.halt()
                self._go(event, _ANY_SIZE)
                self._let_all_go(after=event.step)
                self._until(lambda: bool(self._lab.journal("halted")) and self._all_have_ended())
                self._begin(event.size, checkpoints=self._checkpoints())
            case kill:
                self._kill(event, is_first=kill == "kill-first")
                self._go(event, 0)

    def _checkpoints(self) -> list[str]:
        """Return those of all attempts, the newest first."""
        return [
            str(lab.folder / entry["path"])
            for lab in reversed(self.played.labs)
            for entry in reversed(lab.journal("checkpoint"))
        ]

    def _kill(self, event: Event, *, is_first: bool) -> None:
        """Kill a rank, unless the others may not have the training's state yet."""
        active, attempt = self._lab.active(), len(self.played.labs) - 1
        living = [member for member in active["members"] if member["member_id"] not in self._lab.exits()]
        if len(living) < 2 or active["step"] + _STEPS_TO_SETTLE > event.step:
            return
        victim = sorted(living, key=lambda member: int(member["rank"]))[0 if is_first else -1]["member_id"]
        self.played.killed.add((attempt, victim))
        self._lab.kill(victim)

    def _let_go(self, event: Event, size: int) -> None:
        """Go on when all wanted ranks have come, in which step the others learn of the new ones."""
        self._wanted = size
        self._until(lambda: len(self._joined()) >= size)
        self._go(event, size)

    def _go(self, event: Event, size: int) -> None:
        fresh = self._data / f"go-{event.step}.new"
        fresh.write_text(str(size))
        fresh.rename(self._data / f"go-{event.step}")

    def _let_all_go(self, after: int) -> None:
        for event in self._pattern.events:
            if event.step > after:
                self._go(event, 0)

    def _joined(self) -> set[str]:
        joined = {entry["member_id"] for entry in self._lab.journal("rank_joined")}
        return joined - self._lab.exits().keys()

    # --- waiting ---

    def _until(self, met: Callable[[], bool]) -> None:
        """Wait for it. Raises _Ended if the run is over before."""
        seen, since = None, time.monotonic()
        while not met():
            if self._failures():
                self._await_ends()
                self._note_failures()
                raise _Ended
            if self._begins_again() and self._all_have_ended() and len(self.played.labs) < _MOST_ATTEMPTS:
                self._begin(len(self._lab.members), checkpoints=self._checkpoints())
            if self._is_over():
                raise _Ended
            if (now := self._signs()) != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > SILENCE_SECONDS:
                self.played.hung = self._stacks()
                raise _Ended
            time.sleep(_PAUSE_SECONDS)

    def _is_over(self) -> bool:
        """Return whether all ranks have ended. One that was killed is replaced, while others train.

        A training that is suspended may have come to its end before.
        """
        return self._all_have_ended() and (not self._lab.halting or bool(self._lab.journal("finished")))

    def _failures(self) -> list[dict[str, Any]]:
        """Return the ends of ranks that failed, and that left a training which they should have joined."""
        attempt, lab = len(self.played.labs) - 1, self._lab
        ends = {
            name: end
            for name, end in lab.exits().items()
            if (attempt, name) not in self.played.killed and not self._ended_itself(name)
        }
        is_lost = bool(lab.journal("lost"))  # then the ranks without an error are ended, too
        failed = [end for end in ends.values() if end["code"] != 0 and (end["error"] or not is_lost)]
        if lab.halting and all(map(self._is_refused_newcomer, failed)):
            failed = []  # the others save the training, which another attempt continues
        is_over = lab.halting or is_lost or lab.journal("finished")
        if failed or is_over or len(lab.started()) - len(lab.exits()) >= self._wanted:
            return failed
        took_part = {member["member_id"] for entry in lab.journal("generation_active") for member in entry["members"]}
        early = {"kind": "exit", "message": "its script ended without an error before it took part"}
        return [end | {"error": early} for name, end in ends.items() if name not in took_part]

    def _is_refused_newcomer(self, end: dict[str, Any]) -> bool:
        return end["member_id"] not in self._lab.founders() and self._loop.refuses(end["error"])

    def _note_failures(self) -> None:
        """Note who failed, and who trained on. Ranks that were ended after the others' errors are neither."""
        failures, lab = self._failures(), self._lab
        self.played.failures = [end for end in failures if end["error"]] or failures
        failed = {end["member_id"] for end in failures}
        self.played.survivors = set(lab.member_ids()) - failed - {victim for _, victim in self.played.killed}

    def _begins_again(self) -> bool:
        """Return whether the ranks have ended themselves, to continue from a checkpoint in another attempt."""
        return bool(self._lab.journal("lost")) and any(map(self._ended_itself, self._lab.exits()))

    def _ended_itself(self, member_id: str) -> bool:
        logs = self._lab.folder.glob(f"log/{member_id}*/stderr")
        return any("start again from the checkpoint" in path.read_text() for path in logs)

    def _all_have_ended(self) -> bool:
        started, exits = self._lab.started(), self._lab.exits()
        return bool(started) and len(started) == len(exits)

    def _await_ends(self) -> None:
        self._let_all_go(after=0)
        seen, since = self._signs(), time.monotonic()
        while not self._all_have_ended() and time.monotonic() - since < _GRACE_SECONDS:
            if (now := self._signs()) != seen:
                seen, since = now, time.monotonic()
            time.sleep(_PAUSE_SECONDS)

    def _signs(self) -> tuple[int, ...]:
        lab = self._lab
        held = len(list(self._data.glob("held-*")))
        return len(lab.steps()), len(lab.started()), len(lab.exits()), len(lab.journal("rank_joined")), held

    def _stacks(self) -> str:
        """Have the ranks write their stacks, which ends them."""
        lab = self._lab
        for member_id in lab.started().keys() - lab.exits().keys():
            lab.kill(member_id, signal.SIGABRT)
        self._await_ends()
        return "\n".join(path.read_text() for path in sorted(lab.folder.glob("log/*/fatal"))) or "no stacks"
