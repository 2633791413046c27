from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webapp.tutorial.moments import StepPoint, choose_lengths, measured_rate, steps_per_epoch

START = datetime(2026, 1, 1, tzinfo=UTC)


def points(count: int, *, per_second: float = 10.0, per_epoch: int = 4, first: int = 1) -> list[StepPoint]:
    return [
        StepPoint(step, (step - 1) // per_epoch, START + timedelta(seconds=(step - first) / per_second))
        for step in range(first, first + count)
    ]


def test_measures_steps_over_time() -> None:
    assert measured_rate(points(21)) == pytest.approx(10.0)


def test_one_point_is_no_rate() -> None:
    with pytest.raises(ValueError, match="two steps"):
        measured_rate(points(1))


def test_counts_the_steps_of_the_first_epoch() -> None:
    assert steps_per_epoch(points(6)) == 4


def test_an_epoch_that_is_not_over_has_no_length() -> None:
    with pytest.raises(ValueError, match="not complete"):
        steps_per_epoch(points(4))


@given(st.floats(0.2, 5000), st.integers(1, 10_000), st.floats(0, 60))
def test_first_training_outlives_the_change_and_second_outlives_the_first(
    rate: float, epoch_steps: int, look: float
) -> None:
    length = choose_lengths(rate, epoch_steps, look)
    seconds = 17 + 2 * look + 5 * look  # to the change, and after it
    assert length.first * epoch_steps / rate >= seconds
    # Not more than twice as long, but for whole epochs.
    assert (length.first - 1) * epoch_steps / rate <= 2 * seconds
    assert length.second >= 2 * length.first
