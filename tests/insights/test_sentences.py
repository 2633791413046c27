"""The sentences that a job's owner reads name other people's trainings to nobody."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from jobs.control.snapshots import snapshot
from jobs.messages import text_of
from scheduling.schedule import schedule
from tests.factories import InstanceGroupFactory, JobFactory, host_with_slots

pytestmark = pytest.mark.django_db


def texts() -> dict[int, str]:
    return {line.job: text_of(line.reason.params) for line in schedule(snapshot(timezone.now())).jobs}


def test_a_strangers_training_has_no_name(alice: User, bob: User) -> None:
    host_with_slots("gpu-host-1", 4)
    group = InstanceGroupFactory()
    mine = JobFactory(owner=alice, name="mine", instance_group=group, max_slots=4)
    secret = JobFactory(owner=bob, name="secret", instance_group=group, max_slots=4)

    said = texts()
    assert "secret" not in said[mine.pk]
    assert "mine" not in said[secret.pk]
    assert "another user's training" in said[mine.pk]


def test_ones_own_trainings_are_named(alice: User) -> None:
    host_with_slots("gpu-host-1", 4)
    group = InstanceGroupFactory()
    first = JobFactory(owner=alice, name="first", instance_group=group, max_slots=4)
    JobFactory(owner=alice, name="second", instance_group=group, max_slots=4)

    assert "second" in texts()[first.pk]
