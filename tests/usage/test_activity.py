"""Busy and idle time of held GPUs, counted from report to report."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidepool.protocol import DeviceReading

from jobs.control.gpu_activity import MAX_GAP_MS, Counted, Reading, count
from jobs.control.readings import HostReadings, claims_of, slots_of, store_readings
from jobs.gpu_time import PIECE, Measure, to_ms
from jobs.models import GpuActivity, SlotClaim
from tests.factories import HostFactory, JobFactory, SlotClaimFactory, SlotFactory
from usage.claim_intervals import measures_between
from workers.models import GpuReading, Slot


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3 * MAX_GAP_MS),
            st.sampled_from([True, False, None]),
            st.sampled_from([None, 1, 1, 1, 2]),
        ),
        max_size=15,
    ),
    st.integers(0, PIECE),
)
def test_counts_equal_the_sum_of_the_readings(steps: list[tuple[int, bool | None, int | None]], at: int) -> None:
    counted: Counted | None = None
    written: list[Counted] = []
    expected = {True: 0, False: 0}
    before: int | None = None
    for gap, is_busy, claim in steps:
        at += gap
        counted, finished = count(counted, Reading(at, before, is_busy, claim))
        written += finished
        if claim and is_busy is not None and before is not None and 0 < gap <= MAX_GAP_MS:
            expected[is_busy] += gap
        before = at

    every = [*written, *([counted] if counted else [])]
    assert (sum(one.busy for one in every), sum(one.idle for one in every)) == (expected[True], expected[False])
    assert all(one.start % PIECE == 0 and one.busy + one.idle <= PIECE for one in every)
    assert not any(one is counted for one in written)


def test_a_claim_counts_from_its_start() -> None:
    counted, finished = count(Counted(1, 0, busy=700), Reading(5_000, 4_000, True, 2, claimed_at=4_600))

    assert (counted, finished) == (Counted(2, 0, busy=400), [Counted(1, 0, busy=700)])


def test_a_gap_between_reports_is_not_counted() -> None:
    assert count(None, Reading(MAX_GAP_MS + 1, 0, True, 1)) == (None, [])
    assert count(None, Reading(MAX_GAP_MS, 0, True, 1)) == (Counted(1, 0, busy=MAX_GAP_MS), [])


START = datetime(2026, 3, 1, 12, 14, 50, tzinfo=UTC)


def report(slots: dict[int, Slot], seconds: float, percent: float | None) -> None:
    """Store readings as `jobs.control.hosts` does."""
    host = slots[0].host
    devices = [DeviceReading(index, "H200", False, percent, None, None) for index in slots]
    now, claims = START + timedelta(seconds=seconds), claims_of([host])[host.pk]
    store_readings({host.pk: HostReadings(slots_of([host])[host.pk], devices, claims, now, repeats=False)})


@pytest.fixture
def slots(db: None) -> dict[int, Slot]:
    host = HostFactory(virtual=False)
    return {index: SlotFactory(host=host, index=index, virtual=False) for index in range(2)}


@pytest.fixture
def claim(slots: dict[int, Slot]) -> SlotClaim:
    return SlotClaimFactory(slot=slots[0], job=JobFactory(), claimed_at=START - timedelta(hours=1))


def test_each_quarter_of_an_hour_is_stored_at_its_end(slots: dict[int, Slot], claim: SlotClaim) -> None:
    for second in range(0, 30, 2):
        report(slots, second, 90.0 if second <= 14 else 2.0)

    [written] = GpuActivity.objects.all()
    assert (written.claim, written.at) == (claim, START.replace(second=0) - timedelta(minutes=14))
    assert (written.busy_ms, written.idle_ms) == (10_000, 0)
    now = to_ms(START + timedelta(seconds=28))
    quarter = to_ms(START + timedelta(seconds=10))
    assert measures_between(quarter, now, now) == {claim.pk: [Measure(quarter, now, 4_000, 14_000)]}
    assert len(measures_between(quarter - 1, now, now)[claim.pk]) == 2


def test_the_sum_of_a_claim_is_stored_at_its_end(slots: dict[int, Slot], claim: SlotClaim) -> None:
    report(slots, 0, 50.0)
    report(slots, 1, 50.0)
    SlotClaim.objects.update(released_at=START + timedelta(seconds=1))
    report(slots, 2, 50.0)

    assert GpuActivity.objects.get().busy_ms == 1_000
    assert not GpuReading.objects.filter(counted_claim__isnull=False).exists()


def test_readings_without_utilization_are_not_counted(slots: dict[int, Slot], claim: SlotClaim) -> None:
    for second in range(20):
        report(slots, second, None)

    assert measures_between(0, to_ms(START) + PIECE, to_ms(START) + PIECE) == {}


def test_a_report_takes_three_queries_however_many_gpus(
    slots: dict[int, Slot], claim: SlotClaim, django_assert_num_queries: Any
) -> None:
    report(slots, 0, 50.0)
    with django_assert_num_queries(3):
        report(slots, 1, 60.0)


def test_readings_that_repeat_are_written_every_ten_seconds(slots: dict[int, Slot], claim: SlotClaim) -> None:
    report(slots, 0, 50.0)
    host = slots[0].host
    device = DeviceReading(0, "H200", False, 60.0, None, None)
    for second in range(1, 21):
        of_host, claims = slots_of([host])[host.pk], claims_of([host])[host.pk]
        now = START + timedelta(seconds=second)
        store_readings({host.pk: HostReadings(of_host, [device], claims, now, repeats=True)})
    reading = GpuReading.objects.get(slot=slots[0])
    assert (reading.at, reading.utilisation_percent) == (START + timedelta(seconds=20), 60.0)
    assert GpuActivity.objects.get().busy_ms == 10_000, "of two rows in all, the first of which ends a quarter"
    assert reading.busy_ms == 10_000
