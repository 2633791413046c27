"""Stored sums plus the claims at a window's edges equal the sum of all claims (pure functions)."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.gpu_time import DAY, HOUR, NOTHING, Amount, Interval, Measure, amount_in, cuts, summed_up
from usage.rollup import rollup_sums
from usage.usage_window import Part, Size, StoredSpan, cover

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Ten days, to the millisecond; edges of hours and days come up often.
MOMENTS = st.one_of(
    st.integers(0, 10 * DAY),
    st.integers(0, 240).map(lambda hour: hour * HOUR),
    st.integers(0, 10).map(lambda day: day * DAY),
)
SPANS = st.tuples(MOMENTS, MOMENTS).map(sorted).map(tuple)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    start, end = draw(SPANS)
    return Interval(draw(st.sampled_from("abc")), draw(st.sampled_from(["H200", "A100"])), start, max(end, start + 1))


def by_subject(found: list[Interval], start: int, end: int) -> dict[tuple[int | str, str], int]:
    """Sum the claims directly, cut at the edges."""
    sums: dict[tuple[int | str, str], int] = {}
    for one in found:
        held = max(0, min(one.end, end) - max(one.start, start))
        if held:
            sums[(one.subject, one.gpu_model)] = sums.get((one.subject, one.gpu_model), 0) + held
    return sums


@thorough
@given(st.lists(intervals(), max_size=12), SPANS, MOMENTS, st.integers(0, 9), st.sampled_from([0, HOUR, DAY]))
def test_sums_and_exact_edges_equal_the_claims_to_the_millisecond(
    found: list[Interval], window: tuple[int, int], until: int, hours_from_day: int, largest: int
) -> None:
    stored = StoredSpan(days_from=0, hours_from=hours_from_day * DAY, until=until // HOUR * HOUR)
    hours, days = (rollup_sums(found, 0, stored.until, size) for size in (HOUR, DAY))
    total: dict[tuple[int | str, str], int] = {}
    for part in cover(*window, stored, largest):
        if part.size == Size.EXACT:
            parts = by_subject(found, part.start, part.end)
        else:
            sums = hours if part.size == Size.HOUR else days
            parts = {}
            for (begins, subject, model), amount in sums.items():
                if part.start <= begins < part.end:
                    parts[(subject, model)] = parts.get((subject, model), 0) + amount.held
        for key, held in parts.items():
            total[key] = total.get(key, 0) + held

    assert total == by_subject(found, *window)


@thorough
@given(SPANS, MOMENTS, st.integers(0, 9), st.sampled_from([0, HOUR, DAY]))
def test_stored_sums_cover_a_window_without_gap_or_overlap(
    window: tuple[int, int], until: int, hours_from_day: int, largest: int
) -> None:
    stored = StoredSpan(days_from=DAY, hours_from=hours_from_day * DAY, until=until)
    parts = cover(*window, stored, largest)

    edges = [window[0], *(part.end for part in parts)]
    assert [part.start for part in parts] == edges[:-1]
    assert edges[-1] == window[1]
    for part in parts:
        if part.size == Size.EXACT:
            continue
        assert part.size * HOUR <= largest
        assert part.start % (part.size * HOUR) == part.end % (part.size * HOUR) == 0
        assert part.end <= until
        assert part.start >= (stored.days_from if part.size == Size.DAY else stored.hours_from)


def test_a_year_is_read_by_days_except_at_its_edges() -> None:
    stored = StoredSpan(days_from=0, hours_from=300 * DAY, until=365 * DAY + 5 * HOUR)

    assert cover(3 * HOUR, 365 * DAY + 5 * HOUR + 1, stored, DAY) == [
        Part(Size.EXACT, 3 * HOUR, DAY),
        Part(Size.DAY, DAY, 365 * DAY),
        Part(Size.HOUR, 365 * DAY, 365 * DAY + 5 * HOUR),
        Part(Size.EXACT, 365 * DAY + 5 * HOUR, 365 * DAY + 5 * HOUR + 1),
    ]


def test_a_measure_beyond_the_window_counts_in_proportion() -> None:
    claim = Interval("a", "H200", 0, HOUR, [Measure(0, 900_000, busy=600_000, idle=300_000)])

    assert amount_in(claim, 0, HOUR) == Amount(HOUR, 600_000, 300_000)
    assert amount_in(claim, 450_000, HOUR) == Amount(HOUR - 450_000, 300_000, 150_000)
    assert amount_in(claim, 0, HOUR).unmeasured == HOUR - 900_000


@thorough
@given(st.lists(intervals(), max_size=8), SPANS, st.lists(MOMENTS, max_size=3))
def test_periods_of_prices_divide_the_time_and_lose_none(
    found: list[Interval], window: tuple[int, int], borders: list[int]
) -> None:
    sums = summed_up(found, *window, sorted(borders))

    whole: dict[tuple[int | str, str], int] = {}
    for (subject, model, period), amount in sums.items():
        assert 0 <= period <= len(borders)
        whole[(subject, model)] = whole.get((subject, model), 0) + amount.held
    assert whole == by_subject(found, *window)


def test_a_period_begins_at_its_border() -> None:
    sums = summed_up([Interval("a", "H200", 0, 2 * DAY)], 0, 3 * DAY, [DAY])

    assert {key: amount.held for key, amount in sums.items()} == {("a", "H200", 0): DAY, ("a", "H200", 1): DAY}
    assert summed_up([Interval("a", "H200", 0, DAY)], DAY, 2 * DAY) == {}


def test_parts_of_a_span_end_at_multiples() -> None:
    assert list(cuts(HOUR // 2, 2 * HOUR + 1, HOUR)) == [(HOUR // 2, HOUR), (HOUR, 2 * HOUR), (2 * HOUR, 2 * HOUR + 1)]
    assert NOTHING + Amount(1, 2, 3) - Amount(1, 1, 1) == Amount(0, 1, 2)
