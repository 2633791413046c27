"""Tests of an instance group in the database, and in the scheduler's snapshot."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs.control.snapshots import snapshot
from jobs.models import InstanceGroup
from scheduling.snapshot import GroupView
from tests.factories import InstanceGroupFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "terms",
    [
        {"weight": 0},
        {"lowest_priority": 0},
        {"default_priority": 4, "lowest_priority": 5},
        {"default_priority": 6, "highest_priority": 5},
        {"highest_priority": 10001},
        {"state": "ASLEEP"},
    ],
)
def test_the_database_refuses_terms_that_cannot_be(group: InstanceGroup, terms: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        InstanceGroup.objects.filter(pk=group.pk).update(**terms)


def test_the_scheduler_is_told_every_term_of_a_group() -> None:
    InstanceGroupFactory(
        name="vision",
        resource_group__name="gpus",
        policy="priority",
        preemption=True,
        quota=3,
        weight=2,
        borrows=False,
        lends=False,
        reclaim_grace_seconds=20,
        minimum_run_seconds=60,
        gpu_weights="A100=4, T4=0.5",
        state="STOPPED",
    )

    (view,) = snapshot(timezone.now()).groups

    assert view == GroupView(
        "vision", "gpus", "priority", preemption=True, quota=3, weight=2, borrows=False, lends=False,
        reclaim_grace_seconds=20, minimum_run_seconds=60, started=False, gpu_weights=(("A100", 4.0), ("T4", 0.5)),
    )  # fmt: skip


@pytest.mark.parametrize(("state", "started"), [("REGISTERED", False), ("STARTED", True), ("STOPPED", False)])
def test_only_a_started_group_starts_jobs(state: str, started: bool) -> None:
    InstanceGroupFactory(state=state)

    assert snapshot(timezone.now()).groups[0].started is started
