"""The line is played once for each input of the scheduler, whoever asks, and never told as it was before a change."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from insights import line
from jobs import actions
from jobs.actions.groups import change_instance_group
from jobs.actions.many import cancel_many
from jobs.control.queue_position import expected_start, with_places
from jobs.models import Job
from jobs.states import JobState
from scheduling.forecast import places
from tests.factories import set_job
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.actions import drain_host
from workers.models import ResourceGroup

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_newest", None)


@pytest.fixture
def waiting(cluster: Cluster, submit: Submit) -> list[Job]:
    """One trains on all eight GPUs and is half done; these wait for it, in this order."""
    first = submit(max_slots=8, min_slots=8, priority=9000)
    cluster.turn()
    cluster.train(first, 50)
    return [submit(name=f"W{number}", max_slots=8, min_slots=8, priority=5000 - 10 * number) for number in range(4)]


def told(jobs: list[Job]) -> list[int | None]:
    """Their positions, as one reads them now."""
    found = with_places(list(Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("pk")))
    return [job.place.position if job.place else None for job in found]  # type: ignore[attr-defined]


def test_it_is_played_once_for_lists_pages_and_rest(
    waiting: list[Job], alice_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[Any] = []
    monkeypatch.setattr(line, "_RENEWED_AFTER", timedelta(hours=1))
    monkeypatch.setattr(line, "places", lambda *given: played.append(given) or places(*given))

    def cost(address: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert alice_client.get(address).status_code == 200
        return len(queries)

    addresses = ["/jobs/", "/api/v1/jobs/", f"/jobs/{waiting[1].pk}/", f"/api/v1/jobs/{waiting[1].pk}/"]
    for address in addresses:  # what a process asks once
        cost(address)
    costs = []
    for address in addresses:
        monkeypatch.setattr(line, "_newest", None)
        costs.append((cost(address), cost(address)))

    assert len(played) == 1 + len(addresses)
    assert [first - again for first, again in costs] == [3, 3, 3, 3]  # of how long trainings take, asked only to play


def _more_important(jobs: list[Job], carol: User) -> None:
    actions.change_job(jobs[3].pk, actions.JobChange(priority=8000), "alice")


def _fewer(jobs: list[Job], carol: User) -> None:
    cancel_many([jobs[1].pk], carol)


def _held_back(jobs: list[Job], carol: User) -> None:
    actions.suspend(jobs[0].pk, "alice")


def _smaller(jobs: list[Job], carol: User) -> None:
    drain_host("gpu-host-2", carol)


def _other_policy(jobs: list[Job], carol: User) -> None:
    change_instance_group(jobs[0].instance_group_id, {"policy": "fifo"}, carol)


def _other_offer(jobs: list[Job], carol: User) -> None:
    ResourceGroup.objects.filter(pk=jobs[0].instance_group.resource_group_id).update(slot_rule="min(ngpus, 2)")


@pytest.mark.parametrize(
    ("change", "then"),
    [
        (_more_important, [2, 3, 4, 1]),
        (_fewer, [1, None, 2, 3]),
        (_held_back, [None, 1, 2, 3]),
        (_smaller, None),
        (_other_policy, None),
        (_other_offer, None),
    ],
)
def test_a_change_is_seen_at_once(
    waiting: list[Job], carol: User, change: Callable[[list[Job], User], None], then: list[int | None] | None
) -> None:
    assert told(waiting) == [1, 2, 3, 4]
    before = line._newest

    change(waiting, carol)

    now = told(waiting)
    assert then is None or now == then
    assert line._newest is not before


def test_a_new_training_takes_its_place_at_once(waiting: list[Job], submit: Submit) -> None:
    assert told(waiting) == [1, 2, 3, 4]

    newest = submit(name="newest", max_slots=8, min_slots=8, priority=4995)

    assert told([*waiting, newest]) == [1, 3, 4, 5, 2]


def test_how_far_others_are_is_looked_at_again_after_some_seconds(
    waiting: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, moment = Job.objects.get(state=JobState.RUNNING), timezone.now() + timedelta(hours=1)
    monkeypatch.setattr("django.utils.timezone.now", lambda: moment)
    early = expected_start(with_places([waiting[0]])[0])
    set_job(running, progress=0.9)
    assert expected_start(with_places([waiting[0]])[0]) == early

    moment += timedelta(seconds=6)

    later = expected_start(with_places([waiting[0]])[0])
    assert early
    assert later
    assert str(later["earliest"]) < str(early["earliest"])
