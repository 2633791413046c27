import random

import pytest

from tests.loops.patterns import PATTERNS, Event, Pattern, pattern_of, shrunk
from tests.loops.twins import Course

#: Four passes of six steps.
COURSE = Course(24, [0, 6, 12, 18], {})
DICE = random.Random(3)


def test_a_pattern_is_read_as_it_is_written() -> None:
    for name in PATTERNS:
        pattern = pattern_of(name, COURSE, DICE)
        assert pattern_of(str(pattern), COURSE, DICE) == pattern


@pytest.mark.parametrize("text", ["resize@8=3", "1,resize@8", "1,vanish@8=3"])
def test_another_text_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError):
        pattern_of(text, COURSE, DICE)


@pytest.mark.parametrize(("name", "first"), [("join-first", 14), ("join-last", 18), ("join-between", 19)])
def test_a_joiner_takes_part_from_the_place_in_an_epoch_that_the_pattern_names(name: str, first: int) -> None:
    [event] = PATTERNS[name](COURSE, DICE).events
    assert event.step + 2 == first, "ranks learn of a joiner in the step after the event, and it comes after that one"


def test_a_wrong_pattern_is_shrunk_to_the_events_that_it_needs() -> None:
    needed = Event(9, "kill-first", 3)
    pattern = Pattern(1, (Event(4, "resize", 3), needed, Event(12, "suspend", 3), Event(15, "resize", 2)))
    assert shrunk(pattern, lambda fewer: needed in fewer.events) == Pattern(1, (needed,))
