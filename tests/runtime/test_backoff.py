from tidepool.backoff import Backoff, Interval


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=5)
    assert [backoff.add(now) for now in (0, 10, 20, 30, 40)] == [1, 2, 4, 5, 5]
    assert backoff.until == 45


def test_begins_anew_after_a_success_or_a_long_time() -> None:
    backoff = Backoff(first_seconds=1, longest_seconds=5, settled_seconds=60)
    assert (backoff.add(0), backoff.add(1), backoff.add(63), backoff.add(128)) == (1, 2, 4, 1)
    backoff.reset()
    assert backoff.until < 0
    assert backoff.add(129) == 1


def test_work_is_due_at_once_and_then_after_each_interval() -> None:
    interval = Interval(10)
    assert [interval.is_due(now) for now in (0, 9, 10, 19, 25)] == [True, False, True, False, True]
