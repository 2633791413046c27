"""Usage of a cluster over several days, by several users, groups and GPU models."""

import random
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User

from jobs.models import Job, SlotClaim
from tests.factories import HostFactory, InstanceGroupFactory, JobFactory, SlotFactory, UserFactory
from workers.models import CapacityPoint, Slot

__all__ = ["NOW", "make_claims", "make_jobs", "make_slots"]

NOW = datetime(2026, 3, 10, 15, 30, 12, 345000, tzinfo=UTC)
MODELS = ("H200", "A100")


def make_slots(days: float = 60) -> list[Slot]:
    slots = []
    for number in range(3):
        host = HostFactory(name=f"gpu-host-{number}", ngpus=2)
        CapacityPoint.objects.create(host=host, at=NOW - timedelta(days=days), slots=2)
        slots += [SlotFactory(host=host, index=index, device_model=MODELS[number % 2]) for index in range(2)]
    return slots


def make_jobs(users: int = 3, groups: int = 2, each: int = 3) -> list[Job]:
    owners: list[User] = [UserFactory(username=f"user-{number}") for number in range(users)]
    tenants = [InstanceGroupFactory(name=f"group-{number}") for number in range(groups)]
    return [
        JobFactory(name=f"job-{number}", owner=owners[number % users], instance_group=tenants[number % groups])
        for number in range(users * each)
    ]


def make_claims(
    slots: list[Slot], jobs: list[Job], seed: int, *, days: float, mean_hours: float = 8
) -> list[SlotClaim]:
    """Create claims of each slot by one job after another until now; the last ones are still open."""
    dice = random.Random(seed)
    made = []
    for slot in slots:
        at = NOW - timedelta(days=days * dice.random())
        while at < NOW:
            until = at + timedelta(hours=dice.expovariate(1 / mean_hours))
            made.append(
                SlotClaim(
                    slot=slot,
                    attempt=1,
                    job=dice.choice(jobs),
                    gpu_model=slot.device_model,
                    claimed_at=at,
                    released_at=until if until < NOW else None,
                )
            )
            at = until + timedelta(minutes=dice.expovariate(0.02))
    return SlotClaim.objects.bulk_create(made)
