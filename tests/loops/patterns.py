"""Patterns of sizes: on how many ranks a loop begins, and what happens to it after which steps."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from tests.loops.twins import Course

__all__ = ["MOST", "PATTERNS", "Event", "Pattern", "pattern_of", "shrunk"]

#: Largest number of ranks.
MOST = 4
#: Largest number of events in a random pattern.
_EVENTS = 4
What = Literal["resize", "kill-first", "kill-other", "replace", "suspend"]


@dataclass(frozen=True)
class Event:
    """Happens while all ranks are held at the end of the body of this step.

    `resize`: another number of ranks is wanted, which the ranks learn in the next step. `kill-first` and `kill-other`:
    a rank dies, and its shim starts another one. `replace`: the other one has come. `suspend`: the training halts, and
    another attempt continues from its checkpoint.
    """

    step: int
    what: What
    #: Number of ranks that are wanted from now on.
    size: int

    def __str__(self) -> str:
        return f"{self.what}@{self.step}={self.size}"


@dataclass(frozen=True)
class Pattern:
    size: int
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        """Return the pattern as `pattern_of` reads it, as in `1,resize@8=3,kill-first@12=3`."""
        return ",".join([str(self.size), *map(str, self.events)])


def _of_size(size: int) -> Callable[[Course, random.Random], Pattern]:
    return lambda _course, _dice: Pattern(size)


def _grow_and_shrink(course: Course, _dice: random.Random) -> Pattern:
    grow, shrink = max(1, course.steps // 3), max(2, 2 * course.steps // 3)
    return Pattern(1, (Event(grow, "resize", 3), Event(shrink, "resize", 2)))


def _join(place: int) -> Callable[[Course, random.Random], Pattern]:
    """The second rank takes part from a step of an epoch in the middle on: 1: after the first one, -1: from the last
    one, 0: after the last one, which is between two epochs."""

    def pattern(course: Course, _dice: random.Random) -> Pattern:
        begin, end = _middle(course)
        # The ranks learn of the joiner in the step after the event, and it takes part after that one.
        return Pattern(1, (Event(max(1, begin if place == 1 else end - 1 + place), "resize", 2),))

    return pattern


def _middle(course: Course) -> tuple[int, int]:
    """Return the steps before and after a pass in the middle of the training."""
    passes = [*(course.passes or [0]), course.steps]
    number = (len(passes) - 1) // 2
    return passes[number], passes[number + 1]


def _death(of: What) -> Callable[[Course, random.Random], Pattern]:
    def pattern(course: Course, _dice: random.Random) -> Pattern:
        step = max(1, course.steps // 3)
        return Pattern(2, (Event(step, of, 2), Event(step + max(1, course.steps // 4), "replace", 2)))

    return pattern


def _suspension(course: Course, _dice: random.Random) -> Pattern:
    return Pattern(2, (Event(max(1, course.steps // 2), "suspend", 2),))


def _random(course: Course, dice: random.Random) -> Pattern:
    begun = size = dice.randint(1, MOST)
    events = []
    # The ranks take two steps to follow an event.
    steps = range(dice.randint(1, 3), max(4, course.steps - 1), 3)
    for step in sorted(dice.sample(steps, min(_EVENTS, len(steps)))):
        possible: list[What] = ["resize", "suspend"]
        what = dice.choice([*possible, "kill-first", "kill-other"] if size > 1 else possible)
        if what == "resize":
            size = dice.choice([number for number in range(1, MOST + 1) if number != size])
        events.append(Event(step, what, size))
    return Pattern(begun, tuple(events))


#: Patterns by name: given the course of the plain twin and a die, what happens to the training.
PATTERNS: dict[str, Callable[[Course, random.Random], Pattern]] = {
    "1": _of_size(1),
    "2": _of_size(2),
    "4": _of_size(4),
    "1-3-2": _grow_and_shrink,
    "join-first": _join(1),
    "join-last": _join(-1),
    "join-between": _join(0),
    "kill-first": _death("kill-first"),
    "kill-other": _death("kill-other"),
    "suspend": _suspension,
    "random": _random,
}


def pattern_of(text: str, course: Course, dice: random.Random) -> Pattern:
    """Return the pattern of that name, or the one that the text spells out. Raises ValueError."""
    if text in PATTERNS:
        return PATTERNS[text](course, dice)
    size, *events = text.split(",")
    return Pattern(int(size), tuple(map(_event, events)))


def _event(text: str) -> Event:
    found = re.fullmatch(r"(\S+)@(\d+)=(\d+)", text)
    if found is None or found[1] not in get_args(What):
        raise ValueError(f"{text!r} is no event: one of {', '.join(get_args(What))}, as in resize@8=3")
    return Event(int(found[2]), cast(What, found[1]), int(found[3]))


def shrunk(pattern: Pattern, is_wrong: Callable[[Pattern], bool]) -> Pattern:
    """Return the pattern without the events that a wrong outcome does not need."""
    for event in pattern.events:
        fewer = Pattern(pattern.size, tuple(one for one in pattern.events if one is not event))
        if is_wrong(fewer):
            return shrunk(fewer, is_wrong)
    return pattern
