"""Stored sums: idempotent rollups of hours and days, and rebuilding them from the claims."""

import random
import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from jobs.control.dispatch import PeriodicTask, periodic_tasks
from jobs.gpu_time import DAY, HOUR, to_ms
from jobs.management.commands import run_scheduler
from jobs.models import GpuActivity, Job, SlotClaim
from tests.factories import HostFactory, JobFactory, SlotClaimFactory, SlotFactory
from usage.models import UsageBucket, UsageMark, UsageName
from usage.rollup import HOURS_KEPT, rebuild, roll_up
from usage.tasks import roll_up_usage
from workers.models import CapacityPoint, Slot

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 10, 15, 30, tzinfo=UTC)
Dimension = UsageBucket.Dimension
Row = tuple[int, int, int, int, int, int, int, int]


@pytest.fixture
def slots(db: None) -> list[Slot]:
    hosts = [HostFactory(name=f"gpu-host-{number}") for number in range(3)]
    return [SlotFactory(host=host, index=index, device_model="H200") for host in hosts for index in range(2)]


def claims(slots: list[Slot], seed: int, *, days: float = 5) -> list[SlotClaim]:
    """Create claims of each slot by one job after another until now; the last ones are open."""
    dice = random.Random(seed)
    jobs = [JobFactory(name=f"job-{number}") for number in range(8)]
    made = []
    for slot in slots:
        at = NOW - timedelta(days=days * dice.random())
        while at < NOW:
            until = at + timedelta(hours=dice.expovariate(0.1))
            made.append(
                SlotClaimFactory(
                    slot=slot,
                    job=dice.choice(jobs),
                    gpu_model=dice.choice(["H200", "A100"]),
                    claimed_at=at,
                    released_at=until if until < NOW else None,
                )
            )
            at = until + timedelta(minutes=dice.expovariate(0.02))
    return made


def stored() -> list[Row]:
    names = ("hours", "dimension", "start_hour", "subject", "gpu_model", "held_ms", "busy_ms", "idle_ms")
    return list(UsageBucket.objects.order_by(*names).values_list(*names))


def held_by_job(hours: int) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = defaultdict(int)
    for hour, job, held in UsageBucket.objects.filter(hours=hours, dimension=Dimension.JOB).values_list(
        "start_hour", "subject", "held_ms"
    ):
        found[(hour, job)] += held
    return dict(found)


def direct(size: int, until: int) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = defaultdict(int)
    for claim in SlotClaim.objects.all():
        start, end = to_ms(claim.claimed_at), min(until, to_ms(claim.released_at or NOW))
        for begins in range(start - start % size, end, size):
            held = min(end, begins + size) - max(start, begins)
            if held:
                found[(begins // HOUR, claim.job_id)] += held
    return dict(found)


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_hours_and_days_are_those_of_the_claims(slots: list[Slot], seed: int) -> None:
    claims(slots, seed)
    assert roll_up(NOW, budget_seconds=60)

    assert held_by_job(1) == direct(HOUR, to_ms(NOW.replace(minute=0)))
    assert held_by_job(24) == direct(DAY, to_ms(NOW.replace(hour=0, minute=0)))
    for hours in (1, 24):
        totals = {
            dimension: sum(
                UsageBucket.objects.filter(hours=hours, dimension=dimension).values_list("held_ms", flat=True)
            )
            for dimension in Dimension
            if dimension != Dimension.CAPACITY
        }
        assert len(set(totals.values())) == 1, totals


def test_rollup_by_hour_at_once_repeated_and_rebuilt_store_the_same(slots: list[Slot]) -> None:
    claims(slots, 4, days=3)
    for hours in range(60, -1, -1):
        roll_up(NOW - timedelta(hours=hours), budget_seconds=60)
    first = stored()
    assert first
    roll_up(NOW)
    assert stored() == first

    UsageMark.objects.all().delete()
    UsageBucket.objects.all().delete()
    while not roll_up(NOW, budget_seconds=0):
        pass
    assert stored() == first

    UsageBucket.objects.filter(dimension=Dimension.USER).update(held_ms=1)
    UsageBucket.objects.filter(dimension=Dimension.GROUP).delete()
    rebuild(NOW)
    assert stored() == first


def test_an_hour_is_stored_ten_minutes_after_its_end(slots: list[Slot]) -> None:
    SlotClaimFactory(slot=slots[0], claimed_at=NOW.replace(minute=0))
    assert roll_up(NOW.replace(hour=16, minute=9))
    assert not UsageBucket.objects.filter(held_ms__gt=0).exists()
    roll_up(NOW.replace(hour=16, minute=10))
    assert {row.held_ms for row in UsageBucket.objects.all()} == {HOUR}


def test_without_claims_there_is_nothing_to_do(db: None) -> None:
    assert roll_up(NOW)
    rebuild(NOW)
    assert not UsageMark.objects.exists()


def test_old_hours_are_kept_as_days(slots: list[Slot]) -> None:
    long_ago = NOW - timedelta(hours=HOURS_KEPT + 100)
    SlotClaimFactory(slot=slots[0], claimed_at=long_ago, released_at=long_ago + timedelta(hours=30))
    SlotClaimFactory(slot=slots[1], claimed_at=NOW - timedelta(hours=5))
    roll_up(NOW, budget_seconds=60)

    mark = UsageMark.objects.get()
    assert UsageBucket.objects.filter(hours=1).earliest("start_hour").start_hour >= mark.hours_from
    assert held_by_job(24)[(to_ms(long_ago) // DAY * 24, SlotClaim.objects.earliest("pk").job_id)] > 0


def test_busy_and_idle_sums_outlast_their_rows(slots: list[Slot]) -> None:
    claim = SlotClaimFactory(slot=slots[0], gpu_model="H200", claimed_at=NOW - timedelta(days=4))
    at = NOW.replace(hour=12, minute=15) - timedelta(days=3)
    GpuActivity.objects.create(claim=claim, at=at, busy_ms=600_000, idle_ms=200_000)
    for days in (3, 2, 1, 0):
        roll_up(NOW - timedelta(days=days), budget_seconds=60)

    def measured() -> set[tuple[int, int, int]]:
        rows = UsageBucket.objects.filter(busy_ms__gt=0).exclude(dimension=Dimension.CAPACITY)
        return {(row.hours, row.busy_ms, row.idle_ms) for row in rows}

    assert measured() == {(1, 600_000, 200_000), (24, 600_000, 200_000)}
    assert not GpuActivity.objects.exists()
    rebuild(NOW)
    assert measured() == {(1, 600_000, 200_000), (24, 600_000, 200_000)}


def test_the_capacity_of_the_pool_is_added_up_too(slots: list[Slot]) -> None:
    SlotClaimFactory(slot=slots[0], claimed_at=NOW.replace(hour=10))
    CapacityPoint.objects.create(host=slots[0].host, at=NOW - timedelta(days=3), slots=2)
    CapacityPoint.objects.create(host=slots[2].host, at=NOW.replace(hour=12, minute=30), slots=4)
    roll_up(NOW)

    rows = UsageBucket.objects.filter(dimension=Dimension.CAPACITY, hours=1).order_by("start_hour")
    assert [row.held_ms / HOUR for row in rows] == [2] * 12 + [4, 6, 6]


def test_a_new_gpu_in_a_slot_changes_no_past_usage(slots: list[Slot]) -> None:
    SlotClaimFactory(slot=slots[0], gpu_model="H200", claimed_at=NOW - timedelta(hours=3))
    roll_up(NOW)
    Slot.objects.update(device_model="B200")
    rebuild(NOW)

    assert set(UsageBucket.objects.values_list("gpu_model__name", flat=True)) == {"H200"}


def test_a_job_that_held_a_gpu_is_not_deleted(slots: list[Slot]) -> None:
    job = SlotClaimFactory(slot=slots[0]).job
    with pytest.raises(Exception, match="protected"):
        Job.objects.filter(pk=job.pk).delete()


def test_the_command_rebuilds_the_sums_and_prints_their_range(slots: list[Slot]) -> None:
    output = StringIO()
    call_command("rebuild_usage", stdout=output)
    assert "No GPU was ever held" in output.getvalue()
    SlotClaimFactory(slot=slots[0], claimed_at=timezone.now() - timedelta(hours=30))
    roll_up_usage()
    before = stored()
    call_command("rebuild_usage", stdout=output)
    assert stored() == before
    assert "Rebuilt the usage from" in output.getvalue()


def test_the_scheduler_starts_the_rollup_once_a_minute(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    sent: list[str] = []
    monkeypatch.setattr(PeriodicTask, "send", lambda task: sent.append(task.name))
    scheduler = run_scheduler.Scheduler(threading.Event())
    scheduler.cycle()
    scheduler.cycle()
    assert sent.count("usage.tasks.roll_up_usage") == 1
    [task] = [task for task in periodic_tasks() if task.name == "usage.tasks.roll_up_usage"]
    assert task.every_seconds == 60


def test_a_run_costs_the_same_queries_for_any_number_of_claims(
    slots: list[Slot], django_assert_max_num_queries: Any
) -> None:
    claims(slots, 5, days=1)
    roll_up(NOW - timedelta(hours=1), budget_seconds=60)
    with django_assert_max_num_queries(50):
        roll_up(NOW)
    assert UsageName.objects.count() == 5
