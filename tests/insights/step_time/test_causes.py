"""Causes of the time: the rank that the others wait for, and waits that count for the part that makes ranks late."""

import pytest

from insights.step_time.advice import advice_on
from insights.step_time.answer import sentence_of
from insights.step_time.shares import RankShare, straggler_of
from tests.insights.step_time.ranks import rank, shares


def test_the_rank_that_the_others_wait_for_is_named_with_the_reason() -> None:
    ranks = [
        rank(0, compute=0.5, straggling=0.5, last_in=0.04, caused=0.1),
        rank(1, compute=0.5, straggling=0.5, last_in=0.02, caused=0.1),
        rank(2, compute=0.5, data=0.5, last_in=0.94, caused=50.0),
    ]
    slowest = straggler_of(ranks)
    assert slowest is ranks[2]
    every = shares(compute=0.5, straggling=0.33, data=0.17)
    assert sentence_of(every, ranks, slowest) == (
        "50 % of the others' time is spent waiting for rank 2 on gpu2, which comes last in 94 % of the steps: "
        "it waits longer for its data."
    )
    [advice] = advice_on(every, ranks, slowest)
    assert (advice.code, advice.speedup) == ("STRAGGLER", 2.0), "the data of all ranks are not late"
    assert advice.text.startswith("Rank 2 on gpu2 holds the others up: it waits longer for its data.")


@pytest.mark.parametrize(
    "ranks",
    [
        [],
        [rank(0, last_in=1.0, caused=9)],
        [rank(0, last_in=0.5, compared=4), rank(1, last_in=0.5, compared=4)],
        [rank(0, last_in=0.9, caused=3, compute=1.0), rank(1, compute=0.98, straggling=0.02)],
        [rank(0, last_in=0.4, caused=3), rank(1, last_in=0.3), rank(2, last_in=0.3)],
        [rank(0, last_in=0.7, caused=50, straggling=0.4), rank(1, last_in=0.3, caused=40, straggling=0.5)],
    ],
)
def test_without_a_rank_that_mostly_comes_last_none_is_blamed(ranks: list[RankShare]) -> None:
    assert straggler_of(ranks) is None


def test_waits_for_ranks_that_are_late_in_turns_count_for_what_makes_them_late() -> None:
    ranks = [
        rank(0, data=0.54, straggling=0.45, compute=0.01, last_in=0.69, caused=50),
        rank(1, data=0.48, straggling=0.51, compute=0.01, last_in=0.31, caused=45),
    ]
    every = shares(data=0.51, straggling=0.48, compute=0.01)
    advice = advice_on(every, ranks, straggler_of(ranks))
    assert [(one.code, one.fraction) for one in advice] == [("DATA", pytest.approx(0.98, abs=0.01))]
    assert sentence_of(every, ranks, None, advice) == (
        "98 % of the time is spent waiting for data, or waiting for a rank that this makes late, 1 % computing."
    )


def test_a_part_that_is_slow_for_all_comes_before_the_rank_that_takes_longest_over_it() -> None:
    ranks = [
        rank(0, data=0.95, compute=0.05, last_in=0.95, caused=50),
        rank(1, data=0.45, compute=0.05, straggling=0.5, last_in=0.05, caused=1),
    ]
    every, slowest = shares(data=0.7, straggling=0.25, compute=0.05), straggler_of(ranks)
    assert slowest is ranks[0]
    advice = advice_on(every, ranks, slowest)
    assert [(one.code, one.fraction) for one in advice] == [("DATA", 0.95), ("STRAGGLER", 0.5)]
    assert sentence_of(every, ranks, slowest, advice) == (
        "95 % of the time is spent waiting for data, or waiting for a rank that this makes late, 5 % computing."
    )


def test_waiting_for_the_rank_that_saves_counts_as_checkpoints() -> None:
    ranks = [
        rank(0, compute=0.6, checkpoint=0.4, last_in=0.9, caused=40),
        rank(1, compute=0.6, straggling=0.4, last_in=0.1),
    ]
    [advice] = advice_on(shares(compute=0.6, checkpoint=0.2, straggling=0.2), ranks, straggler_of(ranks))
    assert (advice.code, advice.fraction, advice.speedup) == ("CHECKPOINTS", 0.4, 1.67)
