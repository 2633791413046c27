"""The hourly usage of a host's last day equals the sum of the claims on its GPUs."""

from datetime import timedelta

import pytest

from insights.host_panels import last_day
from tests.factories import HostFactory, JobFactory, SlotClaimFactory
from tests.usage.scene import NOW, make_claims, make_jobs, make_slots
from usage.rollup import roll_up
from workers.models import Host

pytestmark = pytest.mark.django_db


def test_hours_are_means_of_the_gpus_held() -> None:
    slots = make_slots()
    job, two_hours_ago = JobFactory(), NOW.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    SlotClaimFactory(
        slot=slots[0], job=job, claimed_at=two_hours_ago, released_at=two_hours_ago + timedelta(minutes=30)
    )
    SlotClaimFactory(slot=slots[1], job=job, claimed_at=NOW - timedelta(days=3))
    HostFactory(name="new", ngpus=8)
    days = last_day(Host.objects.all(), NOW)
    bars = [(bar.hours_ago, bar.gpus, bar.percent) for bar in days["gpu-host-0"].bars]
    assert bars[0] == (23, 1.0, 50.0)
    assert bars[-3:] == [(2, 1.5, 75.0), (1, 1.0, 50.0), (0, 1.0, 50.0)]
    hours = (NOW - two_hours_ago).total_seconds() / 3600 + 21
    assert days["gpu-host-0"].gpus == pytest.approx(1 + 0.5 / hours)
    assert {bar.gpus for host in ("gpu-host-1", "new") for bar in days[host].bars} == {0.0}


def test_stored_sums_equal_the_claims() -> None:
    make_claims(make_slots(), make_jobs(), 7, days=3, mean_hours=1)
    before = last_day(Host.objects.all(), NOW)
    roll_up(NOW)
    after = last_day(Host.objects.all(), NOW)
    assert any(bar.gpus for bar in before["gpu-host-0"].bars)
    for name, day in before.items():
        assert [bar.gpus for bar in after[name].bars] == pytest.approx([bar.gpus for bar in day.bars], abs=1e-3)
