"""Tests of the time left of a training: from its own steps, as a range, or not at all."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from insights.time_left import LEAST_STEPS, Change, StepTime, eta


def steps(count: int, *, since: float = 0.0, seconds: float = 1.0, first: int = 1) -> list[StepTime]:
    return [StepTime(first + number, since + (number + 1) * seconds) for number in range(count)]


def test_steady_steps_tell_when_it_ends() -> None:
    found = eta(steps(50), [Change(0, 4)], 0.5)

    assert (found.earliest, found.latest) == (50.0, 50.0)
    assert found.text == "at its speed on 4 GPUs"


def test_uneven_steps_give_a_range() -> None:
    uneven = steps(20) + steps(20, since=20.0, seconds=3.0, first=21)

    found = eta(uneven, [Change(0, 4)], 0.5)

    assert found.earliest is not None
    assert found.latest is not None
    assert found.earliest < 40 * 80 / 40 < found.latest


@pytest.mark.parametrize(("slots", "earliest", "latest"), [(8, 50.0, 100.0), (2, 100.0, 200.0)])
def test_after_a_change_it_lies_between_no_difference_and_in_proportion(
    slots: int, earliest: float, latest: float
) -> None:
    found = eta(steps(100), [Change(0, 4), Change(100.5, slots)], 0.5)

    assert (found.earliest, found.latest) == (pytest.approx(earliest), pytest.approx(latest))
    assert "from its speed on 4 GPUs" in found.text


def test_its_own_steps_at_the_new_size_count_as_soon_as_there_are_enough() -> None:
    faster = steps(100) + steps(20, since=100.5, seconds=0.25, first=101)

    found = eta(faster, [Change(0, 4), Change(100.5, 8)], 0.5)

    assert found.latest == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("made", "changes", "progress", "why"),
    [
        (50, [Change(0, 4)], None, "reports no progress"),
        (LEAST_STEPS - 1, [Change(0, 4)], 0.1, "before 10 steps"),
        (25, [Change(0, 1), Change(8.5, 4), Change(17.5, 8)], 0.2, "before 10 steps and 2 s on 8 GPUs"),
        (50, [Change(0, 4), Change(60, 0)], 0.5, "while the training does not run"),
        (0, [], 0.0, "while the training does not run"),
    ],
)
def test_what_cannot_be_told_is_not(made: int, changes: list[Change], progress: float | None, why: str) -> None:
    found = eta(steps(made), changes, progress)

    assert (found.earliest, found.latest) == (None, None)
    assert why in found.text


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.floats(0.01, 5), st.integers(0, 3)), max_size=60),
    st.lists(st.tuples(st.floats(0, 200), st.integers(0, 8)), max_size=4),
    st.none() | st.floats(0, 1),
)
def test_a_range_is_in_order_and_never_negative(
    made: list[tuple[float, int]], sizes: list[tuple[float, int]], progress: float | None
) -> None:
    at, step, times = 0.0, 0, []
    for seconds, by in made:
        at, step = at + seconds, step + by
        times.append(StepTime(step, at))

    found = eta(times, [Change(*size) for size in sorted(sizes)], progress)

    assert (found.earliest is None) == (found.latest is None)
    if found.earliest is not None and found.latest is not None:
        assert 0 <= found.earliest <= found.latest
