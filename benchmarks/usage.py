"""The usage page with a year of data behind it: stored sums against adding up the claims each time.

    python -m benchmarks.usage [--json FILE] [--claims 1000000] [--jobs 100000]

A thousand GPUs on 125 hosts, 200 users, ten groups, three GPU models whose prices changed twice. Wall time of the
whole answer of the page for an administrator; of the report alone, against the same report made of nothing but the
claims, and against the one question that adds up the claims in the database, which gives sums and no timeline. All in
one run, with the sums compared. Uses a database of its own (`TIDEPOOL_DATABASE_URL`), which it makes and drops.
"""

import random
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any
from unittest.mock import patch

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import content_of, looked_after, signed_in, with_database

REPEATS = 5
USERS, GROUPS, HOSTS, SLOTS_PER_HOST = 200, 10, 125, 8
MODELS = ("NVIDIA H200", "NVIDIA A100", "NVIDIA L40S")
YEAR = timedelta(days=365)
#: Parts of the time that a GPU is held.
HELD = 0.7


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--claims", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    show(with_database(lambda: measure(options.claims, options.jobs)), options.json)


def measure(claims: int, jobs: int) -> list[Result]:
    from django.utils import timezone

    from tests.factories import UserFactory
    from usage.models import UsageBucket
    from usage.rollup import roll_up

    now = timezone.now()
    make_year(claims, jobs, now)
    took = timed(lambda: roll_up(now, budget_seconds=1e9))
    hours = [now + timedelta(hours=number) for number in (1, 2, 3)]
    results = [
        result("claims", "", [claims]),
        result("add up the year once", "s", [took / 1000]),
        result("sums stored", "rows", [UsageBucket.objects.count()]),
        result("add up one more hour", "ms", [timed(lambda at=at: roll_up(at)) for at in hours]),
    ]
    looked_after()
    viewer = UserFactory(is_staff=True, username="an administrator")
    client = signed_in(viewer)
    for by in ("user", "group", "job", "host"):
        results += year_by(by, viewer, client)
    for word in ("24h", "30d"):
        address = f"/usage/?range={word}&by=user"
        results.append(result(f"page, {word}", "ms", times_of(lambda address=address: content_of(client, address))))
    return results


def year_by(by: str, viewer: Any, client: Any) -> list[Result]:
    from django.utils import timezone

    from jobs.gpu_time import to_ms
    from usage.usage_query import parse_query
    from usage.usage_report import report
    from usage.usage_window import StoredSpan

    now = to_ms(timezone.now())
    asked = parse_query({"range": "1y", "by": by}, now)
    ours = times_of(lambda: report(viewer, asked, now, 50))
    with patch("usage.usage_window.stored_span", lambda: StoredSpan(0, 0, 0)):
        direct: list[Any] = []
        theirs = [timed(lambda: direct.append(report(viewer, asked, now, 50)))]
    found = report(viewer, asked, now, 50)
    assert found.total == direct[0].total
    assert found.rows == direct[0].rows
    page = times_of(lambda: content_of(client, f"/usage/?range=1y&by={by}"))
    competitor = f"claims added up, by {by}"
    results = [result(competitor, "ms", theirs), result(f"report of a year, by {by}", "ms", ours, competitor, theirs)]
    if by == "user":
        question = f"one question for sums, by {by}"
        asked_once = times_of(lambda: in_database(asked.start, asked.end, found.total.amount.held))
        results += [result(question, "ms", asked_once), result(f"report, by {by}", "ms", ours, question, asked_once)]
    return [*results, result(f"page of a year, by {by}", "ms", page)]


def in_database(start: int, end: int, expected: int) -> None:
    """The claims of each user and GPU model, cut and added up by the database itself."""
    from django.db import connection

    from jobs.gpu_time import moment

    edges = {"start": moment(start), "end": moment(end)}
    least, most = ("LEAST", "GREATEST") if connection.vendor == "postgresql" else ("MIN", "MAX")
    ended = f"{least}(COALESCE(c.released_at, %(end)s), %(end)s)"
    began = f"{most}(c.claimed_at, %(start)s)"
    held = (
        f"EXTRACT(EPOCH FROM {ended} - {began})"
        if connection.vendor == "postgresql"
        else f"(julianday({ended}) - julianday({began})) * 86400"
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT j.owner_id, c.gpu_model, SUM({held}) FROM jobs_slotclaim c JOIN jobs_job j ON j.id = c.job_id "
            "WHERE c.claimed_at < %(end)s AND (c.released_at > %(start)s OR c.released_at IS NULL) GROUP BY 1, 2",
            edges,
        )
        total = sum(float(row[2]) for row in cursor.fetchall())
    assert abs(total * 1000 / expected - 1) < 1e-6, (total, expected)


def times_of(work: Callable[[], object]) -> list[float]:
    work()
    return [timed(work) for _ in range(REPEATS)]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def make_year(claims: int, jobs: int, now: datetime) -> None:
    """Each GPU goes from one job to the next, and each job is about for a short time, with several GPUs."""
    from jobs.models import SlotClaim
    from usage.models import GpuPrice

    slots, numbers = make_slots(now), make_jobs(jobs, now)
    dice = random.Random(0)
    each = claims // len(slots)
    rows = (claim for slot in slots for claim in claims_of(dice, slot, numbers, now, each))
    for batch in batches(rows, 5000):
        SlotClaim.objects.bulk_create(batch)
    for number, model in enumerate(MODELS, start=1):
        for days in (400, 200, 100):
            day = (now - timedelta(days=days)).date()
            GpuPrice.objects.create(gpu_model=model, valid_from=day, per_hour=Decimal(number) + days)


def claims_of(dice: random.Random, slot: Any, jobs: range, now: datetime, count: int) -> Iterator[Any]:
    from jobs.models import SlotClaim

    turn = YEAR / count
    for number in range(count):
        at = now - YEAR + turn * (number + dice.random() * (1 - HELD))
        until = at + turn * HELD
        place = len(jobs) * number / count + dice.uniform(-20, 20)
        job = jobs[min(max(int(place), 0), len(jobs) - 1)]
        released = until if number < count - 1 else None
        yield SlotClaim(
            slot=slot, job_id=job, gpu_model=slot.device_model, attempt=1, claimed_at=at, released_at=released
        )


def make_slots(now: datetime) -> list[Any]:
    from tests.factories import HostFactory
    from workers.models import CapacityPoint, Slot

    slots = []
    for number in range(HOSTS):
        host = HostFactory(name=f"gpu-{number:03}", ngpus=SLOTS_PER_HOST, virtual=False)
        CapacityPoint.objects.create(host=host, at=now - YEAR, slots=SLOTS_PER_HOST)
        slots += [Slot(host=host, index=place, device_model=MODELS[number % 3]) for place in range(SLOTS_PER_HOST)]
    return Slot.objects.bulk_create(slots)


def make_jobs(count: int, now: datetime) -> range:
    """Their numbers, in the order in which they were submitted."""
    from django.contrib.auth.models import User

    from jobs.models import Job, JobRun
    from tests.factories import DatasetVersionFactory, InstanceGroupFactory, RegisteredModelVersionFactory

    users = User.objects.bulk_create(User(username=f"user-{number:03}", password="!") for number in range(USERS))
    groups = [InstanceGroupFactory(name=f"group-{number}") for number in range(GROUPS)]
    common = {"model": RegisteredModelVersionFactory(), "dataset": DatasetVersionFactory(), "max_slots": 10}
    dice = random.Random(1)
    rows = (
        Job(
            name=f"training-{number}",
            owner=dice.choice(users),
            instance_group=dice.choice(groups),
            submitted_at=now - YEAR * (1 - number / count),
            **common,
        )
        for number in range(count)
    )
    for batch in batches(rows, 5000):
        Job.objects.bulk_create(batch)
        JobRun.objects.bulk_create(JobRun(job=job) for job in batch)
    first = Job.objects.earliest("pk").pk
    return range(first, first + count)


def batches(rows: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(rows, size)):
        yield batch


if __name__ == "__main__":
    main()
