"""Usage reports equal the sum of the claims of a window, for each viewer."""

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.gpu_time import DAY, HOUR, MINUTE, to_ms
from jobs.models import GpuActivity, InstanceGroup, Job, SlotClaim
from tests.factories import JobFactory, SlotClaimFactory, UserFactory
from tests.usage.scene import NOW, make_claims, make_jobs, make_slots
from usage.models import GpuPrice, UsageBucket
from usage.rollup import roll_up
from usage.usage_query import BY, ReportQuery
from usage.usage_report import MAX_BANDS, Report, report
from workers.models import Slot

pytestmark = pytest.mark.django_db

END = to_ms(NOW)
KEYS: dict[str, Callable[[SlotClaim], int | str]] = {
    "user": lambda claim: claim.job.owner_id,
    "group": lambda claim: claim.job.instance_group_id,
    "job": lambda claim: claim.job_id,
    "host": lambda claim: claim.slot.host.name,
    "gpu_model": lambda claim: claim.gpu_model,
}


@pytest.fixture
def staff(db: None) -> User:
    return UserFactory(username="staff", is_staff=True)


@pytest.fixture
def slots(db: None) -> list[Slot]:
    return make_slots()


Span = tuple[SlotClaim, int, int]


def spans() -> list[Span]:
    """Return each claim with its start and end in milliseconds; an open one ends now."""
    claims = SlotClaim.objects.select_related("job", "slot__host")
    return [(claim, to_ms(claim.claimed_at), to_ms(claim.released_at or NOW)) for claim in claims]


def direct(by: str, start: int, end: int, held: list[Span] | None = None) -> dict[int | str, int]:
    """Sum the claims directly, cut at the edges."""
    found: dict[int | str, int] = defaultdict(int)
    for claim, begun, released in spans() if held is None else held:
        if min(end, released) > max(start, begun):
            found[KEYS[by](claim)] += min(end, released) - max(start, begun)
    return dict(found)


def asked(start: int, end: int = END, by: str = "user", step: int | None = None) -> ReportQuery:
    return ReportQuery(start, end, by, step, "")


def by_key(found: Report) -> dict[int | str | None, int]:
    return {row.key: row.amount.held for row in found.rows}


@pytest.mark.parametrize("seed", range(1))
def test_any_window_adds_up_to_its_claims_to_the_millisecond(slots: list[Slot], staff: User, seed: int) -> None:
    dice = random.Random(seed)
    make_claims(slots, make_jobs(), seed, days=60, mean_hours=20)
    roll_up(NOW - timedelta(hours=dice.choice([0, 0, 5, 30])), budget_seconds=60)
    held = spans()
    for by in [*BY] * 8:
        start = END - dice.choice([HOUR, 6 * HOUR, DAY, 9 * DAY, 33 * DAY, 60 * DAY]) - dice.randint(0, DAY)
        end = dice.choice([END, END - dice.randint(0, (END - start) // 2), (start // HOUR + 1) * HOUR])
        found = report(staff, asked(start, end, by), END)
        expected = direct(by, start, end, held)
        assert by_key(found) == expected, by
        assert found.total.amount.held == sum(expected.values())
        times = found.timeline
        lengths = [until - at for at, until in zip(times.edges, times.edges[1:], strict=False)]
        drawn = sum(mean * length for mean, length in zip(times.held, lengths, strict=True))
        assert drawn == pytest.approx(found.total.amount.held, abs=0.0001 * sum(lengths))
        assert (times.edges[0], times.edges[-1]) == (start, end)
        assert len(lengths) <= 420


@pytest.mark.parametrize("step", [MINUTE, HOUR, 6 * HOUR, DAY])
def test_steps_show_the_mean_of_their_time(slots: list[Slot], staff: User, step: int) -> None:
    make_claims(slots, make_jobs(), 7, days=4)
    roll_up(NOW, budget_seconds=60)
    start = END - (DAY if step < HOUR else 4 * DAY)
    times = report(staff, asked(start, by="job", step=step), END).timeline

    edges = list(zip(times.edges, times.edges[1:], strict=False))
    claims = spans()
    for number in random.Random(1).sample(range(len(edges)), min(20, len(edges))):
        held = sum(direct("job", *edges[number], claims).values())
        assert times.held[number] == pytest.approx(held / (edges[number][1] - edges[number][0]), abs=0.0001)
        assert sum(band.gpus[number] for band in times.bands) == pytest.approx(times.held[number], abs=0.001)
    assert all(at % step == 0 for at in times.edges[1:-1])


def test_few_changes_are_drawn_each_at_its_moment(slots: list[Slot], staff: User) -> None:
    first, second = JobFactory(name="T1"), JobFactory(name="T2")
    moments = [NOW - timedelta(minutes=minutes) for minutes in (50, 30, 10)]
    for slot in slots[:4]:
        SlotClaimFactory(slot=slot, job=first, claimed_at=moments[0], released_at=moments[2])
    for slot in slots[4:]:
        SlotClaimFactory(slot=slot, job=second, claimed_at=moments[1])
    times = report(staff, asked(END - HOUR, by="job"), END).timeline

    assert times.step is None
    assert list(times.edges) == [END - HOUR, *map(to_ms, moments), END]
    assert {band.label: list(band.gpus) for band in times.bands} == {"T1": [0, 4, 4, 0], "T2": [0, 0, 2, 2]}
    assert list(times.capacity) == [6, 6, 6, 6]


def test_more_than_eight_become_others(slots: list[Slot], staff: User) -> None:
    make_claims(slots, make_jobs(users=5, each=4), 3, days=9)
    roll_up(NOW, budget_seconds=60)
    found = report(staff, asked(END - 9 * DAY, by="job"), END, most_rows=10)

    assert [band.label for band in found.timeline.bands][-1] == "others"
    assert len(found.timeline.bands) == MAX_BANDS + 1
    assert len(found.rows) == 11
    assert found.rows[-1].label == "others"
    assert sum(row.amount.held for row in found.rows) == found.total.amount.held
    assert found.left_out == 10


def test_users_see_their_own_name_and_the_total_of_the_cluster(slots: list[Slot]) -> None:
    jobs = make_jobs()
    make_claims(slots, jobs, 5, days=12)
    roll_up(NOW, budget_seconds=60)
    me = jobs[0].owner
    for start in (END - 12 * DAY, END - HOUR):
        users = report(me, asked(start, by="user"), END)
        assert [row.label for row in users.rows] == [me.username, "others"]
        assert by_key(users)[me.pk] == direct("user", start, END)[me.pk]
        assert users.total.amount.held == sum(direct("user", start, END).values())
        assert {band.label for band in users.timeline.bands} <= {me.username, "others"}

        mine = {job.name for job in jobs if job.owner == me}
        found = report(me, asked(start, by="job"), END)
        assert {row.label for row in found.rows} <= {*mine, "others"}
        assert {band.label for band in found.timeline.bands} <= {*mine, "others"}
        assert {row.label for row in report(me, asked(start, by="group"), END).rows} <= {"group-0", "group-1"}


def test_a_group_admin_reads_the_names_of_its_members_and_of_its_trainings(slots: list[Slot]) -> None:
    jobs = make_jobs(users=4, groups=2)
    make_claims(slots, jobs, 6, days=12)
    roll_up(NOW, budget_seconds=60)
    admin, group = UserFactory(username="admin-of-0"), InstanceGroup.objects.get(name="group-0")
    group.admins.add(admin)
    group.members.add(User.objects.get(username="user-0"))
    inside = [job for job in jobs if job.instance_group == group]

    assert {row.label for row in report(admin, asked(END - 12 * DAY, by="job"), END).rows} == {
        *(job.name for job in inside if job.pk in direct("job", END - 12 * DAY, END)),
        "others",
    }
    assert {row.label for row in report(admin, asked(END - 12 * DAY, by="user"), END).rows} == {
        *(job.owner.username for job in inside),
        "others",
    }


def test_a_price_counts_from_its_day_on(slots: list[Slot], staff: User) -> None:
    job = JobFactory(name="T1")
    start = NOW.replace(hour=20, minute=0, second=0, microsecond=0) - timedelta(days=3)
    SlotClaimFactory(
        slot=slots[0], job=job, gpu_model="H200", claimed_at=start, released_at=start + timedelta(hours=10)
    )
    SlotClaimFactory(slot=slots[2], job=job, gpu_model="A100", claimed_at=start, released_at=start + timedelta(hours=1))
    day = start.date()
    for valid_from, price in ((date(2020, 1, 1), "2.00"), (day + timedelta(days=1), "3.50")):
        GpuPrice.objects.create(gpu_model="H200", valid_from=valid_from, per_hour=Decimal(price))
    expected = 4 * Decimal("2.00") + 6 * Decimal("3.50")

    for rolled in (False, True):
        if rolled:
            roll_up(NOW, budget_seconds=60)
        for window in (asked(END - 5 * DAY, by="job"), asked(END - 60 * DAY, by="job")):
            [row] = report(staff, window, END).rows
            assert (row.cost.amount, row.cost.unpriced) == (expected, HOUR)
    GpuPrice.objects.create(gpu_model="H200", valid_from=NOW.date(), per_hour=Decimal(100))
    assert report(staff, asked(END - 5 * DAY, by="job"), END).total.cost.amount == expected
    assert report(staff, asked(to_ms(start) + HOUR, to_ms(start) + 2 * HOUR), END).total.cost.amount == Decimal(2)


def test_the_costs_of_all_rows_add_up_to_the_total(slots: list[Slot], staff: User) -> None:
    make_claims(slots, make_jobs(), 8, days=20)
    roll_up(NOW, budget_seconds=60)
    for number, model in enumerate(("H200", "A100")):
        for days in (30, 9, 4):
            GpuPrice.objects.create(
                gpu_model=model, valid_from=NOW.date() - timedelta(days=days), per_hour=Decimal(f"{number + 1}.{days}7")
            )
    for viewer in (staff, Job.objects.earliest("pk").owner):
        for by in BY:
            found = report(viewer, asked(END - 20 * DAY, by=by), END)
            assert sum(row.cost.times_ms for row in found.rows) == found.total.cost.times_ms
    assert found.total.cost.amount > 0


def test_busy_idle_and_unmeasured_time_add_up_to_held_time(slots: list[Slot], staff: User) -> None:
    claim = SlotClaimFactory(slot=slots[0], gpu_model="H200", claimed_at=NOW - timedelta(days=5))
    SlotClaimFactory(slot=slots[1], gpu_model="H200", claimed_at=NOW - timedelta(days=5))
    quarters = [NOW.replace(minute=15, second=0, microsecond=0) - timedelta(hours=hours) for hours in (80, 30, 2)]
    for at in quarters:
        roll_up(at + timedelta(minutes=5), budget_seconds=60)
        GpuActivity.objects.create(claim=claim, at=at, busy_ms=600_000, idle_ms=240_000)
    roll_up(NOW - timedelta(hours=20), budget_seconds=60)
    roll_up(NOW, budget_seconds=60)

    for start in (END - 5 * DAY, END - 33 * DAY, END - 60 * DAY):
        total = report(staff, asked(start), END).total.amount
        assert (total.busy, total.idle) == (600_000 * 3, 240_000 * 3)
        assert total.unmeasured == total.held - 840_000 * 3
    middle = to_ms(quarters[-1]) + 450_000
    assert report(staff, asked(END - 5 * DAY, middle), END).total.amount.busy == 600_000 * 2 + 300_000
    times = report(staff, asked(END - 3 * HOUR), END).timeline
    assert max(times.busy) > 0


def test_an_old_edge_counts_a_share_of_the_busy_time_of_its_day(slots: list[Slot], staff: User) -> None:
    long_ago = NOW.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=50)
    claim = SlotClaimFactory(
        slot=slots[0], gpu_model="H200", claimed_at=long_ago, released_at=long_ago + timedelta(days=1)
    )
    roll_up(long_ago + timedelta(hours=1), budget_seconds=60)
    GpuActivity.objects.create(claim=claim, at=long_ago + timedelta(hours=3), busy_ms=800_000, idle_ms=0)
    roll_up(long_ago + timedelta(days=1, hours=1), budget_seconds=60)
    roll_up(NOW, budget_seconds=60)
    assert not UsageBucket.objects.filter(hours=1, start_hour__lt=to_ms(long_ago) // HOUR + 24).exists()

    half = to_ms(long_ago) + DAY // 2
    amount = report(staff, asked(half, half + 90 * DAY), END).total.amount
    assert (amount.held, amount.busy) == (DAY // 2, 400_000)


def test_the_number_of_queries_does_not_depend_on_the_history(slots: list[Slot], staff: User) -> None:
    windows = [asked(END - length, by=by) for length in (HOUR, 9 * DAY, 60 * DAY) for by in ("user", "job", "host")]

    def counts() -> list[int]:
        numbers = []
        for window in windows:
            with CaptureQueriesContext(connection) as captured:
                report(staff, window, END, most_rows=50)
            numbers.append(len(captured))
        return numbers

    make_claims(slots, make_jobs(), 1, days=60, mean_hours=30)
    roll_up(NOW, budget_seconds=60)
    few = counts()
    SlotClaim.objects.filter(released_at=None).update(released_at=NOW)
    make_claims(slots, make_jobs_again(), 2, days=1, mean_hours=0.2)
    assert counts() == few
    assert max(few) <= 30


def make_jobs_again() -> list[Job]:
    return [JobFactory(name=f"more-{number}") for number in range(30)]


def test_before_the_first_rollup_reports_read_the_claims(slots: list[Slot], staff: User) -> None:
    assert report(staff, asked(END - 60 * DAY), END).rows == []
    make_claims(slots, make_jobs(), 1, days=3)
    assert by_key(report(staff, asked(END - 60 * DAY), END)) == direct("user", END - 60 * DAY, END)
