"""Tests of a host's clock offset, told by readings that each came later than they were made."""

import pytest

from workers.clocks import READINGS, behind_seconds, clock_warning, late_seconds, with_reading


def readings(*offsets: float) -> list[float]:
    kept: list[float] = []
    for offset in offsets:
        kept = with_reading(kept, offset)
    return kept


def test_the_quickest_report_tells_how_far_the_clock_is_behind() -> None:
    assert behind_seconds(readings(47.0, 40.2, 41.0, 40.1, 44.0)) == 40.1
    assert behind_seconds(readings(-39.0, -39.9, -33.0, -39.8, -39.5)) == -39.9


def test_a_few_slow_reports_are_no_reason_to_warn() -> None:
    assert behind_seconds(readings(3.0, 4.0, 5.0, 3.5)) is None


@pytest.mark.parametrize(("least", "behind"), [(None, 24.0), (-30.0, 0.0), (0.4, 0.4), (23.5, 23.5), (24.5, 24.0)])
def test_reports_that_are_all_late_do_not_make_the_clock_wrong(least: float | None, behind: float) -> None:
    assert behind_seconds(readings(24.0, 26.0, 31.0, 25.0, 40.0), least) == behind


def test_a_clock_ahead_needs_no_other_estimate() -> None:
    assert behind_seconds(readings(*[-39.0] * 5), -41.0) == -39.0


def test_old_readings_are_forgotten_so_that_a_clock_that_was_set_is_believed() -> None:
    assert behind_seconds(readings(0.0, *[40.0] * READINGS)) == 40.0


def test_a_report_is_late_when_it_took_longer_than_others() -> None:
    kept = readings(*[40.0] * 5)
    assert late_seconds(kept, 3640.0) == 3600.0
    assert late_seconds(kept, 41.5) == 0.0, "that is usual"
    assert late_seconds([], 3640.0) == 0.0, "nothing to compare it with"


@pytest.mark.parametrize(
    ("behind", "sentence"),
    [
        (40.0, "Its clock is 40 s behind: set up NTP there."),
        (-3600.0, "Its clock is 1 h 0 min ahead: set up NTP there."),
        (1.9, ""),
        (None, ""),
    ],
)
def test_the_warning_says_which_way(behind: float | None, sentence: str) -> None:
    assert clock_warning(behind) == sentence
