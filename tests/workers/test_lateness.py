"""The delay of the control plane, and what it refuses to judge meanwhile."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from workers import lateness
from workers.lateness import RecentDelay, SilenceWatch, delay_sentence, is_behind, mark_pause_seconds, note_mark
from workers.models import Intake

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("lease", "delay", "behind"),
    [(30, 9.9, False), (30, 10.1, True), (120, 10.1, True), (15, 5.1, True), (15, 4.9, False), (1, 2.9, False)],
)
def test_a_third_of_the_lease_is_behind(settings: Any, lease: int, delay: float, behind: bool) -> None:
    settings.TIDEPOOL_LEASE_SECONDS = lease
    assert is_behind(seconds(delay)) is behind


def test_marks_become_rarer_while_nobody_takes_them() -> None:
    delays = [None, seconds(0.5), seconds(40), seconds(86_400)]
    assert [mark_pause_seconds(delay) for delay in delays] == [1.0, 1.0, 4.0, 10.0]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("marks", "stored"),
    [
        ([0, 5], 5),
        ([5, 4, 5], 5),  # two processes, or a message twice
        ([7200, 1], 1),  # a clock was set back
    ],
)
def test_the_newest_mark_counts(marks: list[float], stored: float) -> None:
    for mark in marks:
        note_mark(NOW + seconds(mark))
    assert Intake.objects.get().taken_until == NOW + seconds(stored)


@pytest.mark.django_db
def test_silence_is_judged_up_to_the_newest_mark_once_the_queue_has_settled() -> None:
    watch = SilenceWatch()
    assert watch.judged_until(NOW) is None, "no mark has been taken"
    note_mark(NOW)
    assert watch.judged_until(NOW + seconds(1)) is None
    assert watch.judged_until(NOW + seconds(6)) == NOW
    assert watch.judged_until(NOW + seconds(11)) is None, "behind"
    note_mark(NOW + seconds(60))
    assert watch.judged_until(NOW + seconds(61)) is None, "executors that were refused have not reported yet"
    note_mark(NOW + seconds(65))
    assert watch.judged_until(NOW + seconds(66)) == NOW + seconds(65)


@pytest.mark.django_db
def test_a_clock_that_was_set_back_judges_no_host_by_the_future() -> None:
    note_mark(NOW + seconds(30))
    watch = SilenceWatch()
    watch.judged_until(NOW - seconds(10))
    assert watch.judged_until(NOW) == NOW


@pytest.mark.django_db
def test_a_process_reads_the_delay_once_a_second(django_assert_num_queries: Callable[..., Any]) -> None:
    clock = iter([0.0, 0.0, 0.5, 1.0, 1.0, 1.2]).__next__
    recent = RecentDelay(clock)
    note_mark(NOW)
    with django_assert_num_queries(2):
        delays = [recent.get(NOW + seconds(number)) for number in (1, 2, 3, 4)]
    assert delays == [seconds(number) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("delay", "begins"),
    [(None, ""), (seconds(2), ""), (seconds(47.4), "The control plane is 47 seconds behind with the reports of hosts")],
)
def test_the_sentence(delay: timedelta | None, begins: str) -> None:
    sentence = delay_sentence(delay)
    assert sentence.startswith(begins)
    assert bool(sentence) == bool(begins)


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/", "/jobs/", "/datasets/", "/account/"])
def test_each_page_says_so_while_the_control_plane_is_behind(alice_client: Client, address: str) -> None:
    lateness.RECENT_DELAY.note(timezone.now())
    assert "delay-of-reports" not in alice_client.get(address).text
    lateness.RECENT_DELAY.note(timezone.now() - seconds(40))
    assert "seconds behind with the reports of hosts" in alice_client.get(address).text
