from datetime import UTC, datetime, timedelta

from webapp.tutorial.moments import Expected, Point, Seen, find, moments, pause_at, table, violations

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def series(*changes: tuple[float, int], attempt: int = 1) -> list[Point]:
    return [Point(at(seconds), slots, attempt, 10.0 * slots) for seconds, slots in changes]


FIRST = series((0, 1), (1, 8), (5, 4), (9, 3), (30, 0))
SECOND = series((5.1, 1), (5.2, 4), (9.1, 5), (31, 8), (40, 0))


def test_eight_gpus_give_the_tutorials_table() -> None:
    assert [(expected.first, expected.second) for expected in moments(8)] == [
        (1, None),
        (8, None),
        (4, 4),
        (3, 5),
        (None, 8),
    ]


def test_every_moment_of_a_good_play_is_found_in_order() -> None:
    last, found = START, []
    for expected in moments(8):
        moment = find(expected, FIRST, SECOND, last)
        assert moment is not None, expected.title
        found.append((moment - START).total_seconds())
        last = moment
    assert found == [0, 1, 5.2, 9.1, 31]


def test_a_moment_of_the_past_does_not_count() -> None:
    assert find(Expected("", 8, None), FIRST, [], at(1)) == at(1)
    assert find(Expected("", 8, None), FIRST, [], at(6)) is None


def test_both_sizes_must_hold_at_once() -> None:
    second = series((9.5, 4))
    assert find(Expected("", 4, 4), FIRST, second, START) is None


def test_a_training_that_only_changed_size_was_not_disturbed() -> None:
    assert violations("T1", FIRST) == []
    assert violations("T2", SECOND) == []


def test_stopping_in_between_is_a_violation() -> None:
    assert violations("T1", series((0, 1), (1, 8), (2, 0), (3, 4))) == ["T1 stopped in between: [1, 8, 0, 4]."]


def test_starting_again_is_a_violation() -> None:
    again = series((0, 1), (1, 8)) + series((2, 4), attempt=2)
    assert violations("T2", again) == ["T2 was started again in between."]


def test_pause_is_that_of_the_switch_in_force() -> None:
    assert pause_at(FIRST, at(6)) == 40.0
    assert pause_at(SECOND, at(1)) is None


def test_table_shows_sizes_times_and_pauses() -> None:
    lines = table([Seen(Expected("T1 takes every GPU", 8, None), 1.25, (80.4, None))])
    assert lines[1].split() == ["T1", "takes", "every", "GPU", "8", "-", "1.2", "s", "80", "ms", "-"]
