"""Utilization and memory of held GPUs over time: from readings to spans, and to longer ones with age."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidepool.protocol import DeviceReading, ProcessUse

from jobs.control.gpu_spans import KEPT, SPAN, HostUse, Span, Use, add, from_json, merge_old, merged, store, to_json
from jobs.control.readings import HostReadings, claims_of, slots_of, store_readings
from jobs.gpu_time import DAY, HOUR, MINUTE, to_ms
from jobs.models import GpuActivity, GpuSpans, SlotClaim
from tests.factories import HostFactory, JobFactory, SlotClaimFactory, SlotFactory
from workers.models import GpuReading, Host, Slot

uses = st.none() | st.builds(Use, st.integers(1, 2), st.none() | st.floats(0, 100), st.none() | st.integers(0, 2**40))


@given(st.lists(st.tuples(st.integers(1, 9_000), uses), max_size=40), st.integers(0, HOUR))
def test_spans_keep_the_mean_and_the_most(readings: list[tuple[int, Use | None]], at: int) -> None:
    span: Span | None = None
    found: list[Span] = []
    weighted = {1: 0.0, 2: 0.0}
    most = {1: 0, 2: 0}
    for length, use in readings:
        span, ended = add(span, at, at + length, use)
        found += ended
        if use is not None:
            weighted[use.claim] += (use.busy_percent or 0.0) * length
            most[use.claim] = max(most[use.claim], use.memory_bytes or 0)
        at += length
    found += [span] if span else []

    for spans in (found, merged(found, MINUTE)):
        for claim in (1, 2):
            own = [one for one in spans if one.claim == claim]
            total = sum((one.busy_percent or 0.0) * (one.end - one.start) for one in own)
            # A time without a reading counts like the rest of its longer span.
            has_gap = any(use is None for _, use in readings)
            assert total == pytest.approx(weighted[claim]) or (spans is not found and has_gap)
            assert max((one.memory_bytes or 0 for one in own), default=0) == most[claim]
    assert all(one.start // SPAN == (one.end - 1) // SPAN for one in found)
    assert sorted(found, key=lambda one: one.start) == found


def test_a_span_never_covers_two_trainings() -> None:
    first, _ = add(None, 0, 1_000, Use(1, 80.0, 10))
    second, ended = add(first, 1_000, 2_000, Use(2, 0.0, 5))

    assert ended == [Span(1, 0, 1_000, 80.0, 10)]
    assert second == Span(2, 1_000, 2_000, 0.0, 5)
    assert merged([*ended, second], MINUTE) == [*ended, second]
    assert add(second, 2_000, 3_000, None) == (None, [second])


def test_spans_keep_the_mean_use_of_the_host_over_the_time_in_which_it_is_known() -> None:
    span, _ = add(None, 0, 1_000, Use(1, 80.0, 10))
    span, _ = add(span, 1_000, 2_000, Use(1, 80.0, 10, HostUse(1.0, 100.0)))
    span, _ = add(span, 2_000, 4_000, Use(1, 80.0, 10, HostUse(4.0, 400.0, 5.0)))
    assert span is not None
    assert span.processes == HostUse(2.5, 250.0, pytest.approx(5.0))
    assert to_json(span) == [1, 0, 4_000, 80.0, 10, [2.5, 250, 5, None, None]]
    assert from_json(to_json(span)) == span
    assert from_json([1, 0, 4_000, 80.0, 10]).processes == HostUse(), "a span of an earlier release"


START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def slot(db: None) -> Slot:
    return SlotFactory(host=HostFactory(virtual=False), index=0, virtual=False)


@pytest.fixture
def claim(slot: Slot) -> SlotClaim:
    return SlotClaimFactory(slot=slot, job=JobFactory(), claimed_at=START - timedelta(hours=1))


def report(slot: Slot, second: int) -> None:
    now = START + timedelta(seconds=second)
    device = DeviceReading(0, "H200", False, 100.0 if second > 5 else 0.0, second * 100, 2**30)
    slots, claims = slots_of([slot.host]), claims_of([slot.host])
    readings = HostReadings(slots[slot.host_id], [device], claims[slot.host_id], now, repeats=False)
    store_readings({slot.host_id: readings})


def test_sums_of_a_training_that_is_gone_are_left_out(slot: Slot, claim: SlotClaim) -> None:
    for second in range(2):
        report(slot, second)
    claim.delete()
    report(slot, 2)

    assert not GpuActivity.objects.exists()


def test_reports_become_a_row_for_each_host_and_span(slot: Slot, claim: SlotClaim) -> None:
    for second in range(22):
        report(slot, second)

    start = to_ms(START)
    rows = list(GpuSpans.objects.order_by("at"))
    assert [(row.host, row.seconds) for row in rows] == [(slot.host, 10)] * 2
    assert rows[0].spans == [[claim.pk, start, start + SPAN, 50.0, 1_000]]
    assert rows[1].spans == [[claim.pk, start + SPAN, start + 2 * SPAN, 100.0, 2_000]]
    assert GpuReading.objects.get().open_span == [claim.pk, start + 2 * SPAN, start + 21_000, 100.0, 2_100]


def test_the_use_of_a_host_is_kept_of_a_gpu_that_tells_nothing_itself(slot: Slot, claim: SlotClaim) -> None:
    for second in range(2):
        processes = ProcessUse(1.5, 100.0 * second, None)
        device = DeviceReading(0, "MIG 1g", False, None, None, None, processes=processes)
        slots, claims = slots_of([slot.host]), claims_of([slot.host])
        now = START + timedelta(seconds=second)
        store_readings(
            {slot.host_id: HostReadings(slots[slot.host_id], [device], claims[slot.host_id], now, repeats=False)}
        )
    start = to_ms(START)
    told = [1.5, 100, None, None, None]
    assert GpuReading.objects.get().open_span == [claim.pk, start, start + 1_000, None, None, told]


def filled(host: Host, at: int, length: int, count: int) -> None:
    for number in range(count):
        start = at + number * length
        store(host.pk, [Span(1, start, start + length, float(number % 6) * 10, number)])
    GpuSpans.objects.update(seconds=length // 1000)


@pytest.mark.parametrize(("length", "age", "into"), KEPT)
def test_old_spans_become_longer_ones_and_end(slot: Slot, length: int, age: int, into: int | None) -> None:
    now = to_ms(START)
    whole = into or length
    border = now - age - (now - age) % whole
    filled(slot.host, border - whole, length, 2 * whole // length)
    merge_old(START)
    merge_old(START)  # a second call finds nothing to do

    rows = GpuSpans.objects.order_by("at")
    young = rows.filter(at__gte=START - timedelta(milliseconds=age))
    assert {row.seconds for row in young} <= {length // 1000}
    if into is None:
        assert rows.count() == 1
        return
    [old] = rows.filter(seconds=into // 1000)
    [[_, start, end, busy, memory]] = old.spans
    assert (start, end, memory) == (border - into, border, into // length - 1)
    assert busy == pytest.approx(sum(number % 6 * 10 for number in range(into // length)) / (into // length), abs=0.1)


def test_much_that_is_old_is_merged_step_by_step(slot: Slot) -> None:
    filled(slot.host, to_ms(START) - 40 * DAY, MINUTE, 600)
    merge_old(START)

    assert set(GpuSpans.objects.values_list("seconds", flat=True)) == {900}
    assert GpuSpans.objects.count() == 40
