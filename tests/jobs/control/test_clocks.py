"""Hosts whose clocks are wrong stay in service, and reports that waited for long revive nobody."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from tidepool.protocol import Report, from_json

from jobs.control.dispatch import build_sync
from jobs.control.hosts import record_hosts
from tests.jobs.cluster import Cluster
from workers import lateness
from workers.models import GpuReading, Host

NAME = "gpu-host-1"


@pytest.fixture
def begin() -> datetime:
    """Later than what the cluster has reported, by half an hour also on a clock that is half an hour behind."""
    return timezone.now() + timedelta(hours=1)


def take(
    cluster: Cluster, begin: datetime, *, second: float, at: float, clock: float | None = None, boot: str = "boot-1"
) -> Host:
    """A report that comes in at this second of ours, made when the host's executor had `at`."""
    values = cluster.hosts[NAME].report(at=at, boot=boot, clock=at if clock is None else clock)
    record_hosts([from_json(Report, values)], begin + timedelta(seconds=second))
    return Host.objects.get(name=NAME)


@pytest.mark.parametrize("ahead", [-1800.0, -40.0, 0.0, 40.0, 3600.0])
def test_a_host_is_in_service_whatever_its_clock_says_and_its_page_warns(
    cluster: Cluster, begin: datetime, ahead: float
) -> None:
    now = begin.timestamp()
    for second in range(6):
        host = take(cluster, begin, second=second, at=now + second + ahead, boot="boot-2")
    assert host.state == Host.State.ONLINE
    assert host.clock_behind_seconds == pytest.approx(-ahead, abs=2.0)
    assert bool(host.clock_warning) == (ahead != 0.0)
    assert build_sync(NAME).echo == now + 5 + ahead, "by the host's own clock, it answers a fresh report"


def test_a_clock_that_is_set_back_makes_no_report_late(cluster: Cluster, begin: datetime) -> None:
    now = begin.timestamp()
    for second in range(6):
        take(cluster, begin, second=second, at=now + second, boot="boot-2")
    host = take(cluster, begin, second=6, at=now + 6, clock=now - 34, boot="boot-2")
    assert host.reported_at == now + 6
    assert host.clock_behind_seconds == pytest.approx(40.0, abs=2.0)


def test_a_control_plane_whose_own_clock_is_set_back_reads_clocks_on(cluster: Cluster, begin: datetime) -> None:
    now = begin.timestamp()
    for second in range(6):
        take(cluster, begin + timedelta(hours=1), second=second, at=now + second, boot="boot-2")
    for second in range(6, 46):
        host = take(cluster, begin, second=second, at=now + second, boot="boot-2")
    assert host.clock_warning == ""
    assert host.clock_read_at == begin + timedelta(seconds=45)
    assert host.last_report_at == begin + timedelta(seconds=45)


def test_a_reading_from_the_future_keeps_back_none_of_now(cluster: Cluster, begin: datetime) -> None:
    take(cluster, begin, second=3600, at=begin.timestamp(), boot="boot-2")
    host = take(cluster, begin, second=1, at=begin.timestamp() + 1, boot="boot-2")
    reading = GpuReading.objects.filter(slot__host=host).first()
    assert reading is not None
    assert reading.at == host.last_report_at == begin + timedelta(seconds=1)


def test_reports_that_waited_while_nobody_took_them_do_not_revive_a_host(cluster: Cluster, begin: datetime) -> None:
    now = begin.timestamp()
    for second in range(6):
        take(cluster, begin, second=second, at=now + second, boot="boot-2")
    Host.objects.filter(name=NAME).update(state=Host.State.LOST)
    for number in range(60):  # reports of an hour ago, taken within a second
        host = take(cluster, begin, second=3600 + number / 60, at=now + 6 + number, boot="boot-2")
    assert host.state == Host.State.LOST
    assert host.last_report_at is not None
    assert host.last_report_at.timestamp() == pytest.approx(now + 65, abs=3.0)
    for second in range(25):  # a machine that was asleep is believed before long
        host = take(cluster, begin, second=7300 + second, at=now + 100 + second, boot="boot-2")
    assert host.state == Host.State.ONLINE


def test_reports_that_wait_give_no_reading_of_the_clock_and_move_nobody(cluster: Cluster, begin: datetime) -> None:
    now = begin.timestamp()
    for second in range(6):
        take(cluster, begin, second=second, at=now + second, boot="boot-2")
    for second in range(6, 46):  # taken 24 s late for longer than readings are kept
        lateness.RECENT_DELAY.note(begin + timedelta(seconds=second))
        host = take(cluster, begin, second=24 + second, at=now + second, boot="boot-2")
    assert host.clock_warning == ""
    assert host.last_report_at == begin + timedelta(seconds=45), "when it was heard, not when that was taken"
    reading = GpuReading.objects.filter(slot__host=host).first()
    assert reading is not None
    assert reading.at == host.last_report_at
    assert host.state == Host.State.ONLINE


def test_a_host_that_starts_while_reports_wait_was_heard_after_the_last_mark(cluster: Cluster, begin: datetime) -> None:
    Host.objects.filter(name=NAME).update(state=Host.State.LOST)
    lateness.RECENT_DELAY.note(begin)
    host = take(cluster, begin, second=60, at=begin.timestamp() + 1, boot="boot-2")
    assert (host.state, host.last_report_at) == (Host.State.LOST, begin)
    lateness.RECENT_DELAY.note(begin + timedelta(seconds=61))
    assert take(cluster, begin, second=62, at=begin.timestamp() + 62, boot="boot-2").state == Host.State.ONLINE


def test_a_desired_state_is_as_new_as_its_sending_however_late_the_report_was_taken(
    cluster: Cluster, begin: datetime
) -> None:
    heard = timezone.now() - timedelta(seconds=100)
    Host.objects.filter(name=NAME).update(last_report_at=heard, reported_at=5000.0)
    echo = build_sync(NAME).echo
    assert echo is not None
    assert 5100.0 <= echo < 5130.0
