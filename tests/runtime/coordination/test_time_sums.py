"""Sums of the ranks' time, as the coordinator compares them."""

import math

import pytest
from tidepool.protocol import SPENT_PARTS, Entry, SpentTime, TimeSpent
from tidepool.torch.coordination.time_sums import TimeSums

MEMBERS = ["a", "b"]


def spent(compute: float, communication: float, *waits: tuple[int, float], steps: int = 1) -> SpentTime:
    seconds = dict.fromkeys(SPENT_PARTS, 0.0) | {"compute": compute, "communication": communication}
    return SpentTime([*seconds.values()], steps, list(waits))


def told(entries: list[Entry]) -> dict[str, dict[str, float]]:
    [entry] = entries
    assert isinstance(entry, TimeSpent)
    return {rank.member_id: dict(zip(SPENT_PARTS, rank.seconds, strict=True)) for rank in entry.ranks}


def test_what_others_wait_for_the_last_rank_is_straggling() -> None:
    sums = TimeSums()
    assert sums.received("a", spent(1, 9, (0, 4.5), (1, 4.5)), 1, MEMBERS, 100.0) == []
    assert sums.received("b", spent(9, 1, (0, 0.5), (1, 0.5)), 1, MEMBERS, 100.1) == []
    [entry] = sums.received("a", spent(1.1, 9.9), 2, MEMBERS, 102.0)
    assert isinstance(entry, TimeSpent)
    ranks = {rank.member_id: rank for rank in entry.ranks}
    shares = told([entry])
    assert shares["a"]["straggling"] == pytest.approx(9.9 * 8 / 9, abs=1e-3)
    assert shares["a"]["communication"] == pytest.approx(9.9 / 9, abs=1e-3)
    assert shares["b"]["straggling"] == 0
    assert (ranks["b"].last_in, ranks["b"].sums, ranks["b"].caused_seconds) == (2, 2, 8.0)
    assert (ranks["a"].last_in, ranks["a"].caused_seconds) == (0, 0.0)


@pytest.mark.parametrize(("jump", "next_entries"), [(-3600.0, [20, 22]), (3600.0, [20, 80])])
def test_a_clock_that_jumps_interrupts_nothing(jump: float, next_entries: list[int]) -> None:
    sums, times = TimeSums(), []
    for second in range(100):
        now = 1000.0 + second + (jump if second >= 20 else 0.0)
        if entries := sums.received("a", spent(float(second), 0.0), second, ["a"], now):
            times.append(second)
            assert told(entries)["a"]["compute"] == second
    assert [second for second in times if second >= 20][:2] == next_entries


def test_entries_get_rarer_as_the_training_gets_older() -> None:
    sums, times = TimeSums(), []
    for second in range(2000):
        if sums.received("a", spent(float(second), 0.0), second, ["a"], 1000.0 + second):
            times.append(second)
    assert times[:3] == [2, 4, 6]
    assert times[-1] - times[-2] == 60
    assert len(times) < 150


@pytest.mark.parametrize(
    "bad",
    [
        SpentTime([1.0], 1),
        spent(math.nan, 0),
        spent(math.inf, 0),
        spent(-5, 0),
        spent(1e6, 0),
        spent(1, 1, (0, -1.0)),
        spent(1, 1, (0, 1e9)),
        spent(0, 0),
    ],
)
def test_what_cannot_be_is_left_out(bad: SpentTime) -> None:
    sums = TimeSums()
    sums.received("a", spent(1, 1), 1, ["a"], 100.0)
    sums.received("a", bad, 1, ["a"], 101.0)
    assert told(sums.received("a", spent(3, 1), 2, ["a"], 103.0))["a"]["compute"] == 3.0


def test_a_successor_goes_on_from_what_was_told() -> None:
    first = TimeSums()
    first.received("b", spent(9, 1, (0, 0.5)), 1, MEMBERS, 100.0)
    first.received("a", spent(1, 9, (0, 4.5)), 1, MEMBERS, 100.0)
    entries = first.received("a", spent(1, 9), 1, MEMBERS, 103.0)
    second = TimeSums()
    second.recall(entries)
    second.received("a", spent(1, 9), 1, MEMBERS, 110.0)
    again = told(second.received("a", spent(2, 9), 1, MEMBERS, 113.0))
    assert again["a"]["straggling"] == told(entries)["a"]["straggling"] > 0


def test_waits_of_ranks_that_never_answer_do_not_pile_up() -> None:
    sums = TimeSums()
    for number in range(3000):
        sums.received("a", spent(1 + number / 10, 1, (number, 0.1)), 1, MEMBERS, 100.0 + number / 10)
    assert len(sums._waits) <= 1024
