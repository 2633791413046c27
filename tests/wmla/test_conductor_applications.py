"""Applications of an instance, as the notebooks of WMLA read them: who runs on what, its logs, its priority."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from jobs.models import Generation, InstanceGroup, Job, JobEvent, Rank
from jobs.states import JobState, RankState
from tests.factories import InstanceGroupFactory, JobFactory, ResourceGroupFactory, host_with_slots, set_job
from tests.wmla.training import driver_id, end, rank_on, reads, running_job, sig_id, write_log
from wmla.applications import ApplicationOutput
from wmla.base_view import csrf_token_of
from wmla.identifiers import identities, submitted
from workers.models import Slot

pytestmark = pytest.mark.django_db

BASE = "/platform/rest/conductor/v1/instances"
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def group(db: None) -> InstanceGroup:
    return InstanceGroupFactory(name="sig-elastic", resource_group=ResourceGroupFactory(name="ComputeHostsGPU"))


@pytest.fixture
def slots(db: None) -> list[Slot]:
    return [*host_with_slots("node1", 2).slots.all(), *host_with_slots("node2", 2).slots.all()]


@pytest.fixture
def job(alice: User, group: InstanceGroup, slots: list[Slot], home: Path) -> Job:
    return running_job(alice, group, slots[1:3], name="mnist", priority=5000, max_slots=4)


def listed(client: Client, group: InstanceGroup, query: str = "") -> list[dict[str, Any]]:
    answer = client.get(f"{BASE}/{sig_id(group)}/applications{query}")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()
    return found


def test_a_running_one_has_what_the_notebooks_read(
    alice_client: Client, group: InstanceGroup, job: Job, slots: list[Slot]
) -> None:
    reads(slots[1], 81.5, 7809)
    reads(slots[2], 84.5, 7809)

    [found] = listed(alice_client, group, "?state=RUNNING")
    assert found["driver"]["id"] == driver_id(job)
    assert re.fullmatch(rf"driver-\d{{14}}-\d{{4,}}-{UUID}", found["driver"]["id"])
    assert (found["driver"]["state"], found["driver"]["host"]) == ("RUNNING", "node1")
    assert isinstance(found["apprunduration"], float)
    assert 3.0 <= found["apprunduration"] < 60
    assert (found["gpuslots"], found["slots"], found["demandslots"], found["hosts"]) == (2, 2, 4, 2)
    assert (found["gpumemused"]["total"], found["gpudevutil"]["total"]) == (15618, 166.0)
    assert [(each["host"], each["state"]) for each in found["executors"]] == [
        ("node1", "RUNNING"),
        ("node2", "RUNNING"),
    ]
    assert [re.fullmatch(rf"(\d+)-{UUID}", each["id"])[1] for each in found["executors"]] == ["0", "1"]  # type: ignore[index]
    assert re.fullmatch(rf"app-\d{{14}}-\d{{4,}}-{UUID}", found["applicationid"])
    assert (found["priority"], found["username"], found["state"]) == (5000, "alice", "RUNNING")
    assert (found["sparkinstancegroupid"], found["sigName"]) == (sig_id(group), "sig-elastic")
    assert (found["type"], found["applicationname"], found["dltype"]) == ("BATCH", "mnist", "PyTorch")
    assert (found["model"], found["dataset"]) == (job.model.model.name, job.dataset.dataset.name)
    assert found["endtime"] is None


def test_what_is_described_is_what_is_sent(alice_client: Client, group: InstanceGroup, job: Job) -> None:
    [found] = listed(alice_client, group)
    shape = ApplicationOutput()
    assert set(shape.fields) == set(found)
    assert set(shape.fields["driver"].fields) == set(found["driver"])
    assert set(shape.fields["executors"].child.fields) == set(found["executors"][0])


def test_no_figure_is_made_up(alice_client: Client, group: InstanceGroup, job: Job, slots: list[Slot]) -> None:
    [silent] = listed(alice_client, group)
    assert (silent["gpumemused"]["total"], silent["gpudevutil"]["total"]) == (None, None)
    assert (silent["memused"], silent["coresused"]) == (None, None)

    reads(slots[1], None, 100)
    [half] = listed(alice_client, group)
    assert (half["gpumemused"]["total"], half["gpudevutil"]["total"]) == (100, None)


def test_after_the_end_its_executors_are_still_there(alice_client: Client, group: InstanceGroup, job: Job) -> None:
    running = [each["id"] for each in listed(alice_client, group)[0]["executors"]]
    end(job)
    assert listed(alice_client, group, "?state=RUNNING") == []

    [found] = listed(alice_client, group, "?state=FINISHED")
    assert [each["id"] for each in found["executors"]] == running
    assert {each["state"] for each in found["executors"]} == {"FINISHED"}
    assert (found["gpuslots"], found["gpumemused"]["total"], found["gpudevutil"]["total"]) == (0, 0, 0)
    assert (found["demandslots"], found["driver"]["state"]) == (0, "FINISHED")
    assert found["endtime"] is not None


def test_who_trained_at_the_end_comes_before_who_left_earlier(
    alice_client: Client, group: InstanceGroup, job: Job, slots: list[Slot]
) -> None:
    left = rank_on(job, slots[0], 7)
    Rank.objects.filter(pk=left.pk).update(rank=None, exit={"code": None, "signal": 9, "error": None})
    end(job)
    Rank.objects.filter(pk=left.pk).update(exit={"code": None, "signal": 9, "error": None})
    [found] = listed(alice_client, group)
    assert [(each["id"].partition("-")[0], each["state"]) for each in found["executors"]] == [
        ("0", "FINISHED"),
        ("1", "FINISHED"),
        ("0", "KILLED"),  # a former rank has no number: its slot's is shown
    ]


def test_executors_are_those_of_its_newest_life(
    alice_client: Client, group: InstanceGroup, job: Job, slots: list[Slot]
) -> None:
    set_job(job, attempt=2)
    rank_on(job, slots[3], 0, attempt=2)
    [found] = listed(alice_client, group)
    assert [each["host"] for each in found["executors"]] == ["node2"]


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (JobState.PENDING, "SUBMITTED"), (JobState.SUSPENDED, "SUBMITTED"), (JobState.STARTING, "SUBMITTED"),
        (JobState.RUNNING, "RUNNING"), (JobState.PREEMPTING, "RUNNING"), (JobState.CANCELLING, "RUNNING"),
        (JobState.SUCCEEDED, "FINISHED"), (JobState.FAILED, "FAILED"), (JobState.CANCELLED, "KILLED"),
    ],
)  # fmt: skip
def test_states_are_conductors_words_and_can_be_asked_for(
    alice_client: Client, alice: User, group: InstanceGroup, state: JobState, word: str
) -> None:
    over = timezone.now() if word in ("FINISHED", "FAILED", "KILLED") else None
    JobFactory(owner=alice, instance_group=group, state=state, finished_at=over)
    assert [found["state"] for found in listed(alice_client, group, f"?state={word.lower()}")] == [word]
    other = "RUNNING" if word != "RUNNING" else "FINISHED"
    assert listed(alice_client, group, f"?state={other}") == []
    assert len(listed(alice_client, group, f"?state={other},{word}")) == 1


def test_words_that_nothing_is_ever_called_find_nothing_and_others_are_refused(
    alice_client: Client, group: InstanceGroup, job: Job
) -> None:
    assert listed(alice_client, group, "?state=WAITING,LAUNCHING,UNKNOWN") == []
    answer = alice_client.get(f"{BASE}/{sig_id(group)}/applications?state=RUNING")
    assert answer.status_code == 400
    assert answer.content.decode().startswith("Error 400: State 'RUNING' is not known: use NEW, ")


def test_others_trainings_are_not_there(
    client: Client, bob: User, carol: User, group: InstanceGroup, job: Job, slots: list[Slot]
) -> None:
    client.force_login(bob)
    assert listed(client, group) == []
    for path in (f"{driver_id(job)}/logs/stdout/download", f"{driver_id(job)}/0-x/logs/stdout/download"):
        answer = client.get(f"{BASE}/{sig_id(group)}/applications/{path}")
        assert (answer.status_code, answer.content[:11]) == (404, b"Error 404: ")
    client.force_login(carol)
    assert len(listed(client, group)) == 1


def test_only_those_of_this_group_and_the_newest_first(
    alice_client: Client, alice: User, group: InstanceGroup, job: Job, slots: list[Slot]
) -> None:
    elsewhere = running_job(alice, InstanceGroupFactory(), slots[3:])
    later = JobFactory(owner=alice, instance_group=group, submitted_at=timezone.now() + timedelta(seconds=1))
    assert [found["driver"]["id"] for found in listed(alice_client, group)] == [driver_id(later), driver_id(job)]
    answer = alice_client.get(f"{BASE}/{sig_id(group)}/applications/{driver_id(elsewhere)}/logs/stdout/download")
    assert answer.status_code == 404


def test_an_unknown_group_is_said_by_name(alice_client: Client, group: InstanceGroup) -> None:
    answer = alice_client.get(f"{BASE}/sig-elastc/applications")
    assert answer.status_code == 404
    assert "Did you mean sig-elastic?" in answer.content.decode()


def test_the_list_costs_the_same_number_of_queries_however_long_it_is(
    alice_client: Client, alice: User, group: InstanceGroup, django_assert_num_queries: Any
) -> None:
    slots = list(host_with_slots("big", 12).slots.all())
    running_job(alice, group, slots[:1])
    with django_assert_num_queries(8):  # session, user, groups; keys, rows, generations, ranks, claims
        listed(alice_client, group)
    for number in range(1, 10):
        running_job(alice, group, slots[number : number + 1])
    with django_assert_num_queries(8):
        assert len(listed(alice_client, group)) == 10


# --- logs -------------------------------------------------------------------------------------------------------------


def test_the_drivers_log_is_that_of_rank_0(alice_client: Client, group: InstanceGroup, job: Job) -> None:
    first, second = job.ranks.order_by("rank")
    write_log(job, first, "Iteration 1: tag train_loss, simple_value 2.3\n")
    write_log(job, second, "of rank 1\n")
    write_log(job, first, "a warning\n", "stderr")
    address = f"{BASE}/{sig_id(group)}/applications/{driver_id(job)}/logs"
    answer = alice_client.get(f"{address}/stdout/download", headers={"Accept": "application/octet-stream"})
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    assert answer.getvalue() == b"Iteration 1: tag train_loss, simple_value 2.3\n"
    assert alice_client.get(f"{address}/stderr/download").getvalue() == b"a warning\n"

    [found] = listed(alice_client, group)
    assert alice_client.get(found["driver"]["driverstderr"]).getvalue() == b"a warning\n"


def test_the_drivers_log_is_whole_though_resizes_made_others_the_driver(
    alice_client: Client, group: InstanceGroup, job: Job, slots: list[Slot]
) -> None:
    """4 -> 2 -> 4 GPUs: rank 0 left at the first resize; and the attempt before was lost."""
    first, second = job.ranks.order_by("rank")
    third = rank_on(job, slots[0], 2, attempt=2)
    write_log(job, first, "epoch 1\nepoch 2\nep")  # killed within a line
    write_log(job, second, "epoch 3\nepoch 4\n")
    write_log(job, third, "epoch 5\nepoch 6\n")
    for attempt, number, state, rank in ((1, 2, "ENDED", second), (2, 1, "ABANDONED", first), (2, 2, "ACTIVE", third)):
        Generation.objects.filter(job=job).exclude(state="ABANDONED").update(state="SUPERSEDED")
        members = [{"member_id": rank.member_id, "rank": 0, "host": rank.host, "slot": rank.slot}]
        Generation.objects.create(job=job, attempt=attempt, number=number, state=state, world_size=1, members=members)
    set_job(job, attempt=2)

    address = f"{BASE}/{sig_id(group)}/applications/{driver_id(job)}/logs/stdout/download"
    lines = ["epoch 1", "epoch 2", "ep", "epoch 3", "epoch 4", "epoch 5", "epoch 6"]
    assert alice_client.get(address).getvalue().decode().splitlines() == lines
    for count in range(1, 8):
        answer = alice_client.get(f"{address}?lastlines={count}").getvalue().decode()
        assert answer.splitlines() == lines[-count:]


def test_monitors_count_the_executors_that_there_are(alice_client: Client, group: InstanceGroup, job: Job) -> None:
    second = job.ranks.get(rank=1)
    Rank.objects.filter(pk=second.pk).update(
        rank=None, state=RankState.EXITED, exit={"code": None, "signal": 9, "error": None}
    )
    [found] = listed(alice_client, group, "?state=RUNNING")
    assert [each["id"].partition("-")[0] for each in found["executors"]] == ["0"]
    left = identities().executor_id(job.pk, 1, second.member_id, 1)
    write_log(job, second, "what it printed\n")
    address = f"{BASE}/{sig_id(group)}/applications/{driver_id(job)}/{left}/logs/stdout/download"
    assert alice_client.get(address).getvalue() == b"what it printed\n", "for whoever noted its id"
    end(job)
    assert len(listed(alice_client, group)[0]["executors"]) == 2


def test_executors_logs_are_found_by_the_ids_of_the_list(alice_client: Client, group: InstanceGroup, job: Job) -> None:
    ids = [each["id"] for each in listed(alice_client, group)[0]["executors"]]
    for rank in job.ranks.all():
        write_log(job, rank, f"of rank {rank.rank}\n")
    end(job)  # ids that a notebook has noted stay good
    address = f"{BASE}/{sig_id(group)}/applications/{driver_id(job)}"
    texts = [alice_client.get(f"{address}/{each}/logs/stdout/download").getvalue() for each in ids]
    assert texts == [b"of rank 0\n", b"of rank 1\n"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("logs/stdout/download", "node1.1.0 has not written to stdout yet"),
        ("logs/nonsense/download", "Log 'nonsense' is not known"),
        ("9-00000000-0000-0000-0000-000000000000/logs/stdout/download", "Executor 9-00000000"),
    ],
)
def test_a_log_that_is_not_there_is_a_sentence(
    alice_client: Client, group: InstanceGroup, job: Job, path: str, sentence: str
) -> None:
    answer = alice_client.get(f"{BASE}/{sig_id(group)}/applications/{driver_id(job)}/{path}")
    assert answer.status_code == 404
    assert answer.content.decode().startswith(f"Error 404: {sentence}")


def test_a_log_of_a_training_that_waits_is_a_sentence(alice_client: Client, alice: User, group: InstanceGroup) -> None:
    waiting = JobFactory(owner=alice, instance_group=group)
    answer = alice_client.get(f"{BASE}/{sig_id(group)}/applications/{driver_id(waiting)}/logs/stdout/download")
    assert (answer.status_code, answer.content) == (
        404,
        b"Error 404: The training has no rank yet: wait until it has started.\n",
    )


# --- priority ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["driver", "application"])
def test_its_priority_is_changed_as_on_its_page(
    alice_client: Client, alice: User, group: InstanceGroup, job: Job, kind: str
) -> None:
    named = driver_id(job) if kind == "driver" else identities().full_app_id(submitted(job))
    answer = change_priority(alice_client, group, named, {"priority": 10000})
    assert (answer.status_code, answer.json()) == (200, {"applicationid": named, "priority": 10000})
    assert listed(alice_client, group)[0]["priority"] == 10000
    event = JobEvent.objects.get(job=job)
    assert (event.actor, event.reason, event.detail["new"]) == ("alice", "PRIORITY_CHANGED", 10000)


@pytest.mark.parametrize("priority", [0, 10001, -1, "high", 1.5, True, None])
def test_a_priority_that_cannot_be_is_refused(
    alice_client: Client, group: InstanceGroup, job: Job, priority: Any
) -> None:
    answer = change_priority(alice_client, group, driver_id(job), {"priority": priority})
    assert (answer.status_code, answer.content[:11]) == (400, b"Error 400: ")
    job.refresh_from_db()
    assert job.priority == 5000


def test_the_priority_of_one_that_is_over_stays(alice_client: Client, group: InstanceGroup, job: Job) -> None:
    end(job)
    assert change_priority(alice_client, group, driver_id(job), {"priority": 9}).status_code == 409


def test_the_priority_of_others_is_not_theirs_to_change(
    client: Client, bob: User, group: InstanceGroup, job: Job
) -> None:
    client.force_login(bob)
    assert change_priority(client, group, driver_id(job), {"priority": 9}).status_code == 404


def change_priority(client: Client, group: InstanceGroup, named: str, body: dict[str, Any]) -> Any:
    return client.put(
        f"{BASE}/{sig_id(group)}/applications/{named}/priority",
        data=body,
        content_type="application/json",
        headers={"X-CSRFToken": csrf_token_of(client.session.session_key)},
    )
