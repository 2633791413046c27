"""Pure rules of alerts: the events and rows that cause them, and the times at which they are sent."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import pytest

from alerts.alert_kinds import Kind
from alerts.batching import Quiet, is_quiet, messages_of, next_try
from alerts.routing import Happening, Rule, alerts_of, kind_of_event
from jobs.states import JobState, Reason
from scheduling.plan import PlanReason

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALICE, BOB, CAROL = 1, 2, 3
GROUP, OTHER_GROUP = 7, 8
RULE = Rule(10, ALICE, False, Kind.FAILED, None, None, NOW - timedelta(days=1))
FAILED = Happening(Kind.FAILED, "event 5", NOW, GROUP, 40, ALICE)
WAITS = Happening(Kind.WAITS, "training_waits 40", NOW - timedelta(minutes=31), GROUP, 40, ALICE, 31 * 60.0)


@pytest.mark.parametrize(
    ("old", "new", "reason", "kind"),
    [
        (JobState.RUNNING, JobState.FAILED, Reason.EXIT_NONZERO, Kind.FAILED),
        (JobState.PENDING, JobState.FAILED, Reason.NO_PROGRESS, Kind.FAILED),
        (JobState.RUNNING, JobState.SUCCEEDED, Reason.COMPLETED, Kind.DONE),
        (JobState.RUNNING, JobState.RUNNING, PlanReason.SHRUNK_FOR_FAIR_SHARE, Kind.TAKEN),
        (JobState.RUNNING, JobState.PREEMPTING, PlanReason.PREEMPTED_BY_PRIORITY, Kind.TAKEN),
        (JobState.RUNNING, JobState.PENDING, Reason.HOST_LOST, Kind.TAKEN),
        # The job loses ranks and others train on; it grows; its owner suspends it.
        (JobState.RUNNING, JobState.RUNNING, Reason.HOST_LOST, None),
        (JobState.RUNNING, JobState.RUNNING, PlanReason.GREW_INTO_FREE_SLOTS, None),
        (JobState.RUNNING, JobState.PREEMPTING, Reason.SUSPENDED_BY_USER, None),
        (JobState.PREEMPTING, JobState.PENDING, PlanReason.PREEMPTED_BY_PRIORITY, None),
        (JobState.CANCELLING, JobState.CANCELLED, Reason.CANCELLED_BY_USER, None),
    ],
)
def test_what_an_event_is_an_alert_of(old: str, new: str, reason: str, kind: Kind | None) -> None:
    assert kind_of_event(old, new, reason) == kind


def test_an_owner_is_told_once_by_each_channel() -> None:
    same_channel = replace(RULE, group=GROUP)
    other_channel = replace(RULE, channel=11)
    found = alerts_of([FAILED], [RULE, same_channel, other_channel])
    assert [(alert.channel, alert.key) for alert in found] == [(10, "event 5"), (11, "event 5")]


def test_others_trainings_are_told_to_who_sees_all_and_only_by_a_rule_about_their_group() -> None:
    of_bob = replace(FAILED, owner=BOB)
    stranger = replace(RULE, group=GROUP)
    admin = replace(RULE, owner=CAROL, sees_all=True)
    assert alerts_of([of_bob], [RULE, stranger, admin, replace(admin, group=OTHER_GROUP)]) == []
    assert len(alerts_of([of_bob], [replace(admin, group=GROUP)])) == 1


def test_what_happened_before_the_rule_is_not_told() -> None:
    assert alerts_of([FAILED], [replace(RULE, created_at=NOW + timedelta(seconds=1))]) == []


def test_what_lasts_is_told_after_the_minutes_of_the_rule() -> None:
    rule = replace(RULE, kind=Kind.WAITS, minutes=31, created_at=NOW)
    [alert] = alerts_of([WAITS], [rule])
    assert alert.key == "training_waits 40 31 min"
    assert alerts_of([WAITS], [replace(rule, minutes=32)]) == []


def test_a_quota_concerns_rules_about_its_group() -> None:
    full = Happening(Kind.QUOTA, "quota 7", NOW, GROUP)
    rule = replace(RULE, kind=Kind.QUOTA, group=GROUP)
    assert len(alerts_of([full], [rule])) == 1
    assert alerts_of([full], [replace(rule, group=OTHER_GROUP)]) == []


def test_more_than_five_messages_in_ten_minutes_become_a_digest() -> None:
    def ago(*minutes: float) -> list[datetime]:
        return [NOW - timedelta(minutes=count) for count in minutes]

    assert messages_of([1, 2], ago(1, 2, 3), NOW) == [[1], [2]]
    assert messages_of([1, 2], ago(1, 2, 3, 4), NOW) == [[1, 2]]
    assert messages_of([1, 2], ago(1, 2, 3, 4, 9.9), NOW) == []
    assert messages_of([1, 2], ago(1, 2, 3, 4, 10), NOW) == [[1, 2]]
    assert messages_of([1, 2, 3, 4, 5], [], NOW) == [[1], [2], [3], [4], [5]]
    assert messages_of([1, 2, 3, 4, 5, 6], [], NOW) == [[1, 2, 3, 4, 5, 6]]
    assert messages_of([], [], NOW) == []


@pytest.mark.parametrize(
    ("begins", "ends", "zone", "quiet"),
    [
        ((11, 0), (13, 0), "UTC", True),
        ((12, 0), (13, 0), "UTC", True),
        ((11, 0), (12, 0), "UTC", False),
        ((22, 0), (7, 0), "UTC", False),
        ((22, 0), (12, 30), "UTC", True),
        # Noon in UTC is nine in the evening there.
        ((20, 0), (8, 0), "Asia/Tokyo", True),
        ((22, 0), (8, 0), "Asia/Tokyo", False),
    ],
)
def test_quiet_hours(begins: tuple[int, int], ends: tuple[int, int], zone: str, quiet: bool) -> None:
    assert is_quiet(Quiet(time(*begins), time(*ends), zone), NOW) is quiet


def test_tries_come_later_and_later() -> None:
    assert [(next_try(tries, NOW) - NOW).total_seconds() for tries in (1, 2, 3, 4)] == [60, 120, 240, 480]
    assert not is_quiet(None, NOW)
