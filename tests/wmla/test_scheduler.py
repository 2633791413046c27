"""The scheduler of the deep learning service: applications in both of its lists, logs, stop, resource plans."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.actions.job_commands import hide
from jobs.messages import message
from jobs.models import InstanceGroup, Job
from jobs.states import JobState
from tests.factories import (
    InstanceGroupFactory,
    JobEventFactory,
    JobFactory,
    ResourceGroupFactory,
    host_with_slots,
)
from tests.many_jobs import make_many_jobs
from tests.wmla.training import driver_id, end, running_job, sig_id, write_log
from wmla.applications import EngineApplicationOutput, ScheduledApplicationOutput
from wmla.identifiers import identities, submitted
from wmla.job_names import Dialect
from workers.models import Slot

pytestmark = pytest.mark.django_db

BASE = "/platform/rest/deeplearning/v1"
APPLICATIONS = f"{BASE}/scheduler/applications"
ENGINE = f"{BASE}/scheduler/engine/applications"


@pytest.fixture
def group(db: None) -> InstanceGroup:
    return InstanceGroupFactory(name="sig-elastic", resource_group=ResourceGroupFactory(name="ComputeHostsGPU"))


@pytest.fixture
def slots(db: None) -> list[Slot]:
    return list(host_with_slots("node1", 4).slots.all())


@pytest.fixture
def job(alice: User, group: InstanceGroup, slots: list[Slot], home: Path) -> Job:
    return running_job(alice, group, slots[:2], name="mnist")


def names(client: Client, query: str = "") -> list[str]:
    answer = client.get(f"{APPLICATIONS}{query}")
    assert answer.status_code == 200, answer.content
    return [found["applicationname"] for found in answer.json()]


@pytest.fixture
def three(alice: User, group: InstanceGroup) -> list[Job]:
    now = timezone.now()
    states = (JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED)
    return [
        JobFactory(
            owner=alice,
            instance_group=group,
            name=name,
            priority=priority,
            state=state,
            submitted_at=now + timedelta(minutes=number),
            finished_at=None if state == JobState.PENDING else now + timedelta(hours=1, minutes=-number),
        )
        for number, (name, priority, state) in enumerate(zip(("bee", "ant", "cat"), (3, 1, 2), states, strict=True))
    ]


# --- /scheduler/applications ------------------------------------------------------------------------------------------


def test_an_application_of_cloud_pak_has_one_id_everywhere(alice_client: Client, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(dialect=Dialect.CLOUD_PAK)
    [found] = alice_client.get(APPLICATIONS).json()
    assert set(ScheduledApplicationOutput().fields) == set(found)
    assert found["applicationid"] == found["driver"]["id"] == f"wmla-{job.pk}"
    assert (found["state"], len(found["executors"]), found["slots"]) == ("RUNNING", 2, 2)


def test_an_application_has_all_fields_of_wmlas_list(alice_client: Client, job: Job) -> None:
    [found] = alice_client.get(APPLICATIONS).json()
    assert set(found) >= {
        *("sparkinstancegroupid", "applicationid", "applicationname", "type", "state", "uiport", "driver", "executors"),
        *("slots", "demandslots", "hosts", "coresused", "memused", "username", "submittedtime", "endtime"),
        *("apprunduration", "model", "dataset", "dltype", "tunningname", "sigName"),
    }
    assert set(found["driver"]) == {
        *("id", "containerid", "state", "host", "coresused", "memused", "timestamp", "driverstdout", "driverstderr")
    }
    assert [(each["state"], each["host"]) for each in found["executors"]] == [("RUNNING", "node1")] * 2
    assert (found["type"], found["applicationname"], found["username"]) == ("BATCH", "mnist", "alice")


def test_wmlas_command_line_finds_whose_logs_it_may_ask_for(alice_client: Client, job: Job) -> None:
    [found] = alice_client.get(f"{APPLICATIONS}?applicationid=wmla-{job.pk}").json()
    assert found["task0"] == [found["driver"]]
    assert found["task12n"] == found["executors"]


def test_one_that_named_a_group_has_conductors_ids(alice_client: Client, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(dialect=Dialect.ON_PREM)
    [found] = alice_client.get(APPLICATIONS).json()
    assert found["applicationid"] == identities().full_app_id(submitted(job))
    assert found["driver"]["id"] == driver_id(job)


def test_it_is_found_by_every_id_that_it_has(alice_client: Client, job: Job, three: list[Job]) -> None:
    ids = identities()
    for identifier in ids.names_of(submitted(job)):
        assert names(alice_client, f"?applicationid={identifier}") == ["mnist"]
        assert names(alice_client, f"?driverid={identifier}") == ["mnist"]
    assert names(alice_client, "?applicationid=wmla-999999") == []
    assert names(alice_client, f"?applicationid=wmla-{job.pk}&driverid=wmla-{three[0].pk}") == []


def test_what_a_client_deleted_is_in_neither_list(alice_client: Client, three: list[Job]) -> None:
    hide([three[1].pk], "alice")
    assert names(alice_client) == ["cat", "bee"]
    assert [found["name"] for found in alice_client.get(ENGINE).json()] == ["cat", "bee"]
    assert alice_client.get(f"{ENGINE}/wmla-{three[1].pk}").status_code == 404


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", ["cat", "ant", "bee"]),
        ("?sort=submittedtime", ["bee", "ant", "cat"]),
        ("?sort=-submittedtime", ["cat", "ant", "bee"]),
        ("?sort=applicationname", ["ant", "bee", "cat"]),
        ("?sort=applicationname&order=desc", ["cat", "bee", "ant"]),
        ("?sort=-priority", ["bee", "cat", "ant"]),
        ("?sort=-priority&order=asc", ["ant", "cat", "bee"]),
        ("?sort=applicationid&start=1&length=1", ["ant"]),
        ("?start=2", ["bee"]),
        ("?length=0", []),
        ("?length=10000", ["cat", "ant", "bee"]),
        ("?search=A", ["cat", "ant"]),
        ("?applicationname=ant", ["ant"]),
        ("?applicationname=an", []),
        ("?state=FINISHED", ["ant"]),
        ("?state=ERROR,FINISHED", ["cat", "ant"]),
        ("?state=NEW,SUBMITTED,PENDING_JOB_SCHEDULER,PENDING_CRD_SCHEDULER,LAUNCHING,RUNNING,RECOVERING", ["bee"]),
        ("?sigId=sig-elastic", ["cat", "ant", "bee"]),
        ("?unknown=1", ["cat", "ant", "bee"]),
    ],
)  # fmt: skip
def test_the_list_is_sorted_cut_and_searched(
    alice_client: Client, three: list[Job], query: str, wanted: list[str]
) -> None:
    assert names(alice_client, query) == wanted


def test_the_group_may_be_named_by_its_id(alice_client: Client, three: list[Job], group: InstanceGroup) -> None:
    other = InstanceGroupFactory()
    assert len(names(alice_client, f"?sigId={sig_id(group)}")) == 3
    assert names(alice_client, f"?sigId={sig_id(other)}") == []


@pytest.mark.parametrize("address", [APPLICATIONS, ENGINE])
def test_behind_the_end_of_the_list_is_416(alice_client: Client, three: list[Job], address: str) -> None:
    answer = alice_client.get(f"{address}?start=3")
    assert answer.status_code == 416
    assert answer.content == b"Error 416: start is 3, beyond the end of the list: send a lower start.\n"
    assert alice_client.get(f"{address}?start=0&state=KILLED").json() == []


@pytest.mark.parametrize(
    "query", ["start=-1", "start=x", "length=-1", "length=1e9", "sort=nonsense", "order=up", "state=nonsense",
              "search=%00", "applicationname=%00", "sigId=%00", "start=99999999999999999999"],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_a_sentence(alice_client: Client, three: list[Job], query: str) -> None:
    answer = alice_client.get(f"{APPLICATIONS}?{query}")
    assert (answer.status_code, answer.content[:9]) in ((400, b"Error 400"), (404, b"Error 404"))


@pytest.mark.parametrize("address", [APPLICATIONS, ENGINE])
def test_a_list_costs_the_same_number_of_queries_however_long_it_is(
    alice_client: Client, alice: User, group: InstanceGroup, address: str, django_assert_num_queries: Any
) -> None:
    slots = list(host_with_slots("big", 12).slots.all())
    running_job(alice, group, slots[:1])
    with django_assert_num_queries(7):  # session, user; keys, rows, generations, ranks, claims
        alice_client.get(address)
    for number in range(1, 10):
        running_job(alice, group, slots[number : number + 1])
    with django_assert_num_queries(7):
        assert len(alice_client.get(address).json()) == 10


@pytest.mark.skipif(connection.vendor != "sqlite", reason="a small table is read whole by PostgreSQL, and rightly so")
@pytest.mark.parametrize(
    ("query", "reads"),
    [
        # The index has the order of the list, so only its first rows are read.
        ("", "SCAN jobs_job USING .*INDEX job_by_submission"),
        ("?state=RUNNING", "SEARCH jobs_job USING .*INDEX job_by_state|INDEX job_not_over"),
        ("?state=SUBMITTED,LAUNCHING,RUNNING", "SEARCH jobs_job USING .*INDEX job_by_state|INDEX job_not_over"),
    ],
)
def test_what_is_over_is_not_read_by_those_who_poll(client: Client, carol: User, query: str, reads: str) -> None:
    make_many_jobs(1200)
    client.force_login(carol)
    with CaptureQueriesContext(connection) as captured:
        assert client.get(f"{ENGINE}{query}").status_code == 200
    keys = next(asked["sql"] for asked in captured if 'SELECT "jobs_job"."id"' in asked["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {keys}")
        plan = [str(row[-1]) for row in cursor.fetchall()]
    assert re.search(reads, plan[0]), plan


def test_others_see_nothing_and_an_administrator_everything(client: Client, bob: User, carol: User, job: Job) -> None:
    client.force_login(bob)
    assert names(client) == names(client, f"?applicationid=wmla-{job.pk}") == []
    assert client.get(ENGINE).json() == []
    for path in ("stop", "driver/logs/stdout", "executor/1/logs/stdout"):
        method = client.put if path == "stop" else client.get
        assert method(f"{APPLICATIONS}/wmla-{job.pk}/{path}").status_code == 404
    assert client.get(f"{ENGINE}/wmla-{job.pk}").status_code == 404
    client.force_login(carol)
    assert names(client) == ["mnist"]


# --- logs and stop ----------------------------------------------------------------------------------------------------


def test_logs_of_driver_and_executors_with_their_last_lines(alice_client: Client, job: Job) -> None:
    first, second = job.ranks.order_by("rank")
    write_log(job, first, "".join(f"line {number}\n" for number in range(5)))
    write_log(job, second, "of rank 1\nnot ended", "stderr")
    address = f"{APPLICATIONS}/wmla-{job.pk}"

    def read(path: str) -> bytes:
        answer = alice_client.get(f"{address}/{path}")
        assert answer.status_code == 200, answer.content
        assert answer["Content-Type"] == "text/plain; charset=utf-8"
        return bytes(answer.getvalue())

    whole = b"line 0\nline 1\nline 2\nline 3\nline 4\n"
    assert read("driver/logs/stdout") == read("executor/1/logs/stdout") == whole
    assert read("driver/logs/stdout?lastlines=2") == b"line 3\nline 4\n"
    assert read("driver/logs/stdout?lastlines=5") == read("driver/logs/stdout?lastlines=1000") == whole
    assert read("executor/2/logs/stderr?lastlines=1") == b"not ended"
    [found] = alice_client.get(f"{APPLICATIONS}?applicationid=wmla-{job.pk}").json()
    assert read(f"executor/{found['executors'][1]['id']}/logs/stderr") == b"of rank 1\nnot ended"
    end(job)
    assert read("executor/1/logs/stdout") == whole


def test_the_launchers_log_is_what_happened(alice_client: Client, job: Job) -> None:
    at = timezone.now().replace(microsecond=0)
    JobEventFactory(job=job, seq=1, new=JobState.PENDING, at=at)
    torn = message("no_progress", text="2 of 4 GPUs:\nfree.")
    JobEventFactory(job=job, seq=2, new=JobState.STARTING, detail=torn, at=at)
    stamp = f"{at:%Y-%m-%d %H:%M:%S}"
    answer = alice_client.get(f"{APPLICATIONS}/wmla-{job.pk}/driver/logs/launcherlog")
    first = f"[{stamp}] PENDING Submitted; waiting for the scheduler.\n"
    assert answer.getvalue().decode() == f"{first}[{stamp}] STARTING 2 of 4 GPUs: free.\n"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("driver/logs/stdout", 404), ("driver/logs/nonsense", 404), ("executor/0/logs/stdout", 404),
        ("executor/3/logs/stdout", 404), ("executor/99999999999/logs/stdout", 404),
        ("executor/1/logs/launcherlog", 404), ("driver/logs/stdout?lastlines=0", 400),
        ("driver/logs/stdout?lastlines=x", 400),
    ],
)  # fmt: skip
def test_a_log_that_is_not_there_is_a_sentence(alice_client: Client, job: Job, path: str, status: int) -> None:
    if status == 400:
        write_log(job, job.ranks.get(rank=0), "x\n")
    answer = alice_client.get(f"{APPLICATIONS}/wmla-{job.pk}/{path}")
    assert (answer.status_code, answer.content[:11]) == (status, f"Error {status}: ".encode())


def test_stopping_it_is_cancelling_it(alice_client: Client, job: Job, three: list[Job]) -> None:
    answer = alice_client.put(f"{APPLICATIONS}/wmla-{job.pk}/stop")
    assert (answer.status_code, answer.content) == (204, b"")
    job.refresh_from_db()
    assert job.state == JobState.CANCELLING
    assert alice_client.put(f"{APPLICATIONS}/wmla-{job.pk}/stop").status_code == 204
    over = alice_client.put(f"{APPLICATIONS}/wmla-{three[1].pk}/stop")
    assert (over.status_code, over.content) == (
        400,
        f"Error 400: Application wmla-{three[1].pk} is already stopped.\n".encode(),
    )


# --- /scheduler/engine/applications -----------------------------------------------------------------------------------


def test_the_engines_fields(alice_client: Client, job: Job) -> None:
    [found] = alice_client.get(f"{ENGINE}?start=0&length=10000&sort=-submit_time&state=SUBMITTED,RUNNING").json()
    assert set(EngineApplicationOutput().fields) == set(found)
    assert (found["id"], found["consumer"], found["submit_user"]) == (f"wmla-{job.pk}", "/sig-elastic", "alice")
    assert (found["tag"], found["type"], found["state"]) == ("/sig-elastic/alice", "BATCH", "RUNNING")
    assert (found["task12n_num"], found["task12n_resreq"], found["used_gpu"]) == (2, "ngpus=1", 2)
    assert (found["used_mem"], found["used_cpu"], found["end_time"]) == (None, None, None)
    assert found["submit_time"] == int(job.submitted_at.timestamp())
    assert found["start_time"] == int(job.started_at.timestamp())
    assert isinstance(found["submit_time"], int), "its clients subtract nothing else from a moment"
    assert (found["is_packing"], found["pack_id"], found["kernels"]) == (False, "", [])
    assert [task["id"] for task in found["task0"]] == [f"wmla-{job.pk}"]
    assert [task["host"] for task in found["task12n"]] == ["node1", "node1"]
    assert alice_client.get(f"{ENGINE}/wmla-{job.pk}").json() == [found]


def test_the_engines_list_has_all_fields_of_wmlas(alice_client: Client, job: Job) -> None:
    [found] = alice_client.get(ENGINE).json()
    assert set(found) == {
        *("id", "consumer", "submit_user", "name", "priority", "type", "state", "task12n_num", "task0_resreq"),
        *("task12n_resreq", "used_gpu", "used_mem", "used_cpu", "submit_time", "start_time", "end_time", "tag"),
        *("is_packing", "pack_id", "kernels", "task0", "task12n"),
    }


def test_the_engine_tells_of_a_crash_as_error(alice_client: Client, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(dialect=Dialect.ON_PREM)
    end(job, JobState.FAILED, code=1)
    [found] = alice_client.get(f"{ENGINE}?state=FINISHED,KILLED,ERROR").json()
    assert (found["state"], found["used_gpu"], found["task12n"][0]["state"]) == ("ERROR", 0, "ERROR")
    assert found["end_time"] >= found["start_time"]


# --- instance groups, resource plans, Kubernetes ----------------------------------------------------------------------


def test_the_groups_that_one_may_choose(
    alice_client: Client, bob: User, group: InstanceGroup, slots: list[Slot]
) -> None:
    InstanceGroupFactory(name="theirs").members.add(bob)
    [found] = alice_client.get(f"{BASE}/scheduler/instances").json()
    assert (found["id"], found["name"], found["state"]) == (sig_id(group), "sig-elastic", "STARTED")


def test_there_is_no_kubernetes(alice_client: Client) -> None:
    for query in ("", "?type=pod", "?type=paralleljob&name=x"):
        assert alice_client.get(f"{BASE}/scheduler/kubernetesobjects{query}").json() == []


def test_the_tree_of_resource_plans_is_that_of_the_groups(
    alice_client: Client, alice: User, bob: User, group: InstanceGroup, job: Job, django_assert_num_queries: Any
) -> None:
    InstanceGroup.objects.filter(pk=group.pk).update(quota=3, weight=2, lends=False)
    JobFactory(owner=bob, instance_group=group, max_slots=5)
    InstanceGroupFactory(name="theirs").members.add(bob)
    with django_assert_num_queries(8):  # session, user; groups, their hosts, demands, all hosts, trainings, claims
        tree = alice_client.get(f"{BASE}/resplans/resplantree").json()
    assert (tree["id"], tree["pid"]) == ("/", None)
    [plan] = tree["childTreeDto"]
    assert (plan["id"], plan["pid"], plan["consumer"]) == ("sig-elastic", "/", "/sig-elastic")
    assert (plan["owned"], plan["ratio"], plan["borrow"], plan["lend"]) == (3, 2, True, False)
    assert (plan["demand"], plan["assigned"], plan["resourcegroup"]) == (8 + 5, 2, "ComputeHostsGPU")
    for name in ("sig-elastic", sig_id(group)):
        assert alice_client.get(f"{BASE}/resplans/resplan/{name}").json() == plan
    assert alice_client.get(f"{BASE}/resplans/resplan/theirs").status_code == 404


def test_the_whole_tree_is_deleted_by_nobody(client: Client, carol: User, group: InstanceGroup) -> None:
    client.force_login(carol)
    refused = client.delete(f"{BASE}/resplans/resplantree")
    assert (refused.status_code, refused.content[:11]) == (405, b"Error 405: ")
    assert InstanceGroup.objects.count() == 1


def test_deleting_a_plan_deletes_its_group_by_the_same_rules(
    client: Client, alice: User, carol: User, group: InstanceGroup, job: Job
) -> None:
    unused = InstanceGroupFactory(name="unused")
    client.force_login(alice)
    assert client.delete(f"{BASE}/resplans/resplan/unused").status_code == 403
    client.force_login(carol)
    refused = client.delete(f"{BASE}/resplans/resplan/sig-elastic")
    assert refused.status_code == 409
    assert b"has 1 training" in refused.content
    assert client.delete(f"{BASE}/resplans/resplan/unused").status_code == 204
    assert list(InstanceGroup.objects.all()) == [group]
    assert not InstanceGroup.objects.filter(pk=unused.pk).exists()
