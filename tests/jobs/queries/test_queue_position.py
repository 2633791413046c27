"""Lists, rows and jobs read positions with one small query, whatever waits; moments count down."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import GroupQueue, Job
from jobs.queries.queue_position import expected_start, place_text, short_start, with_places
from jobs.states import JobState
from tests.factories import InstanceGroupFactory, JobFactory, UserFactory, set_job

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNIX = int(NOW.timestamp())


@pytest.fixture
def waiting(alice) -> list[Job]:
    """Three in a queue: one starts in four to six minutes, one nobody knows when, one in an hour at the earliest."""
    first = JobFactory(owner=alice, name="W0")
    same = {name: getattr(first, name) for name in ("owner", "instance_group", "model", "dataset")}
    jobs = [first, *(JobFactory(**same, name=f"W{number}") for number in (1, 2))]
    starts = [(UNIX + 240, UNIX + 360), (None, None), (UNIX + 3600, None)]
    queue = [[job.pk, *start] for job, start in zip(jobs, starts, strict=True)]
    GroupQueue.objects.create(group=first.instance_group, jobs=queue)
    return jobs


@pytest.fixture
def at(monkeypatch):
    def at(seconds: float) -> None:
        moment = NOW + timedelta(seconds=seconds)
        monkeypatch.setattr("django.utils.timezone.now", lambda: moment)

    at(0)
    return at


def sentences(jobs: list[Job]) -> list[str]:
    return [place_text(job) for job in with_places(jobs)]


def test_positions_and_starts_in_words(waiting, at):
    assert sentences(waiting) == [
        "It is number 1 of 3 in the queue. It starts in 4 to 6 min, unless other trainings are submitted.",
        "It is number 2 of 3 in the queue. Its start cannot be predicted yet: the remaining time of the trainings "
        "ahead is not known.",
        "It is number 3 of 3 in the queue. It starts in 60 min at the earliest, unless other trainings are submitted.",
    ]
    assert [short_start(job.place) for job in waiting] == ["in 4 to 6 min", "", "in 60 min at the earliest"]


def test_no_training_ahead_is_blamed_where_hosts_are_out_of_service(waiting, at):
    waiting[1].reason_params = {"message": "too_large", "absent": [{"host": "h2", "slots": 4, "state": "lost"}]}
    assert sentences(waiting)[1] == (
        "It is number 2 of 3 in the queue. It starts once enough hosts are in service again."
    )


def test_moments_count_down(waiting, at):
    at(180)
    assert "in 60 s to 3 min" in sentences(waiting)[0]
    at(300)
    assert "within 60 s" in sentences(waiting)[0]
    at(360)
    assert "It starts within moments." in sentences(waiting)[0]


def test_programs_get_moments(waiting, at):
    with_places(waiting)
    assert [expected_start(job) for job in waiting] == [
        {"earliest": "2026-03-01T12:04:00.000000Z", "latest": "2026-03-01T12:06:00.000000Z"},
        None,
        {"earliest": "2026-03-01T13:00:00.000000Z", "latest": None},
    ]
    at(300)
    with_places(waiting)
    assert expected_start(waiting[0]) == {
        "earliest": "2026-03-01T12:05:00.000000Z",
        "latest": "2026-03-01T12:06:00.000000Z",
    }


def test_a_start_that_a_standing_scheduler_left_says_nothing(waiting, at):
    at(421)
    assert "Its start cannot be predicted yet" in sentences(waiting)[0]


def test_who_does_not_wait_has_no_place(waiting, at):
    set_job(waiting[0], state=JobState.STARTING)
    newest = JobFactory(owner=waiting[0].owner, instance_group=waiting[0].instance_group)
    found = with_places([*Job.objects.filter(pk=waiting[0].pk), newest])
    assert [job.place for job in found] == [None, None]
    assert [expected_start(job) for job in found] == [None, None]
    assert sentences(list(found)) == ["", ""]


def test_no_page_reads_more_than_the_queue(waiting, alice_client: Client):
    """A snapshot of the scheduler's input would read every slot."""
    others = InstanceGroupFactory(name="other")
    JobFactory(owner=waiting[0].owner, instance_group=others)
    GroupQueue.objects.create(group=others, jobs=[[Job.objects.latest("pk").pk, None, None]])
    pk = waiting[0].pk
    for address in ("/jobs/", f"/jobs/rows/?ids={pk}", "/api/v1/jobs/", f"/jobs/{pk}/", f"/api/v1/jobs/{pk}/"):
        with CaptureQueriesContext(connection) as queries:
            assert alice_client.get(address).status_code == 200
        statements = [query["sql"] for query in queries]
        assert sum("jobs_groupqueue" in sql for sql in statements) == 1, address
        assert not [sql for sql in statements if 'FROM "workers_slot"' in sql and "WHERE" not in sql], address


def test_a_list_in_which_nobody_waits_reads_no_queue(alice_client: Client):
    JobFactory(owner=UserFactory(), state=JobState.SUCCEEDED, finished_at=timezone.now())
    with CaptureQueriesContext(connection) as queries:
        assert alice_client.get("/jobs/").status_code == 200
    assert not any("jobs_groupqueue" in query["sql"] for query in queries)
