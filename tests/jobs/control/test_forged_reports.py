"""Reports that no host of ours has written: what can be told without keys is told, and believed no further."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from tidepool.protocol import JournalEntry

from jobs.control.report_authorization import parse_name
from jobs.files.job_folder import job_folder
from jobs.models import Checkpoint, Generation, Job, Journal, MetricPoint, Rank
from jobs.states import JobState
from jobs.tasks import ingest_report
from tests.jobs.cluster import Cluster, FakeHost, moment
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(cluster: Cluster, submit: Submit) -> Job:
    """Return a job that holds two slots of gpu-host-1 and none of gpu-host-2."""
    job = submit(max_slots=2)
    cluster.turn()
    cluster.train(job)
    return Job.objects.select_related("run").get(pk=job.pk)


@pytest.mark.parametrize("name", ["gpu-host-9", "../x", "", "gpu-host-1\n", "h" * 100])
def test_a_host_that_nobody_enrolled_is_not_believed(
    cluster: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = list(Host.objects.values())
    FakeHost(name).send()
    assert list(Host.objects.values()) == before
    assert "is not enrolled" in caplog.text


def test_a_service_of_ones_own_is_enrolled_by_a_command(db: None) -> None:
    for _ in range(2):
        call_command("enroll_host", "gpu-host-8", "gpu-host-9")
    FakeHost("gpu-host-9").send()
    assert Host.objects.get(name="gpu-host-9").state == Host.State.ONLINE


FORGED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "its end": ("coordinator", "finished", {"step": 1, "epoch": 1}),
    "its failure": (
        "coordinator",
        "failed",
        {"member_id": "gpu-host-1.0.1", "slot": 0, "code": 1, "signal": None, "by_script": True, "error": None}
        | {"host": "gpu-host-1", "step": 1, "generation": 1},
    ),
    "a step": ("metrics", "step", {"step": 9, "epoch": 0, "cursor": 1, "samples": 1, "world_size": 1, "loss": 0.0}),
    "a rank": (
        "shim.gpu-host-2",
        "rank_started",
        {"member_id": "gpu-host-2.0.1", "slot": 0, "pid": 1, "started_at": 1},
    ),
    "another host's rank": (
        "shim.gpu-host-1",
        "rank_exited",
        {"member_id": "gpu-host-1.0.1", "slot": 0, "pid": 1, "code": 1},
    ),
}


def _facts(job: Job) -> list[Any]:
    run = Job.objects.select_related("run").get(pk=job.pk)
    tables = (Rank, Generation, MetricPoint, Journal, Checkpoint)
    return [
        run.state,
        run.run.step,
        run.run.given_up,
        *(list(table.objects.order_by("pk").values()) for table in tables),
    ]


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_host_says_nothing_of_a_training_whose_slots_it_never_had(
    cluster: Cluster, job: Job, forged: tuple[str, str, dict[str, Any]]
) -> None:
    before = _facts(job)
    journal, kind, data = forged
    for number in range(1, 9):
        entry = JournalEntry(f"{job.pk}.1.{journal}", number, kind, {"at": moment(), **data})
        cluster.hosts["gpu-host-2"].send(entries=[entry])
    assert _facts(job) == before


@pytest.mark.parametrize(
    "name",
    [
        *("0{}.1.metrics", "{}.01.metrics", "{}.1.metrics.2", "{}.1.Metrics", "{}.1.metrics\n", "٣.1.metrics"),
        *(
            "{}.1.host",
            "{}.1.host.gpu-host-2",
            "{}.1.shim",
            "{}.1.shim.gpu-host-2",
            "{}.1.shim.gpu-host-1 ",
            "{}.1.coordinator.gpu-host-1",
        ),
        *("{}.2.metrics", "{}.0.coordinator"),
    ],
)
def test_a_journal_has_one_name(cluster: Cluster, job: Job, name: str) -> None:
    before = list(Journal.objects.values())
    cluster.hosts["gpu-host-1"].send(entries=[JournalEntry(name.format(job.pk), 1, "step", {})])
    assert list(Journal.objects.values()) == before


def test_the_names_that_executors_use_are_taken() -> None:
    for writer, text in (
        ("shim", "7.1.shim.a.b"),
        ("host", "7.1.host.a.b"),
        ("coordinator", "7.12.coordinator"),
        ("metrics", "70.1.metrics"),
    ):
        name = parse_name(text, "a.b")
        assert name is not None
        assert (name.writer, name.text) == (writer, text)


MISPLACED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a slot that it has not": ("shim.gpu-host-1", "rank_started", {"member_id": "gpu-host-1.3.9", "slot": 3}),
    "another name": ("shim.gpu-host-1", "rank_started", {"member_id": "gpu-host-2.0.9", "slot": 0}),
    "no number": ("shim.gpu-host-1", "rank_started", {"member_id": "gpu-host-1.0.x", "slot": 0}),
    "a slot beyond": ("shim.gpu-host-1", "rank_started", {"member_id": "gpu-host-1.9.1", "slot": 9}),
    "below nothing": ("shim.gpu-host-1", "rank_started", {"member_id": "gpu-host-1.-1.1", "slot": -1}),
    "a pid of 2 ** 70": ("shim.gpu-host-1", "rank_started", {"member_id": "gpu-host-1.0.9", "slot": 0, "pid": 2**70}),
    "a time that is none": (
        "shim.gpu-host-1",
        "rank_started",
        {"member_id": "gpu-host-1.0.9", "slot": 0, "started_at": float("nan")},
    ),
    "a member elsewhere": (
        "coordinator",
        "generation_active",
        {"members": [{"member_id": "gpu-host-2.0.1", "rank": 0, "host": "gpu-host-2", "slot": 0}], "generation": 9}
        | {"world_size": 1, "step": 2, "pause_ms": 1.0, "target_revision": 1, "cause": "resize"},
    ),
    "a generation before the first": (
        "coordinator",
        "generation_active",
        {"members": [], "generation": -1, "world_size": 0, "step": 2, "pause_ms": 1.0}
        | {"target_revision": 1, "cause": "resize"},
    ),
    "the whole folder as a checkpoint": ("coordinator", "checkpoint", {"path": "..", "step": 2}),
    "the code as a checkpoint": ("coordinator", "checkpoint", {"path": "../_submitted_code/digits-cnn", "step": 2}),
}


@pytest.mark.parametrize("forged", MISPLACED.values(), ids=MISPLACED)
def test_what_cannot_be_is_left_out_and_the_rest_of_the_report_is_stored(
    cluster: Cluster, job: Job, forged: tuple[str, str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """A script can write into its journals, too: it must not keep its host's reports from being stored."""
    before = _facts(job)[:-2]
    journal, kind, data = forged
    filled = {"at": moment(), "pid": 1, "started_at": 1.0, "epoch": 0, "size_bytes": 1, "sha256": "", **data}
    host = cluster.hosts["gpu-host-1"]
    host.journals[f"{job.pk}.1.{journal}"].append((kind, filled))
    host.send()
    # Left out, and counted as read: the journals go on.
    assert Journal.objects.get(name=f"{job.pk}.1.{journal}").number == len(host.journals[f"{job.pk}.1.{journal}"])
    assert _facts(job)[:-2] == before
    assert not Checkpoint.objects.exists()
    assert "set aside" in caplog.text
    cluster.finish(job)
    assert Job.objects.get(pk=job.pk).state == JobState.SUCCEEDED
    assert Path(job_folder(job).path).is_dir()


@pytest.mark.parametrize(
    "wrong",
    [
        {"applied_revision": 2**63},
        {"applied_revision": -1},
        {"at": float("nan")},
        {"at": 1e300},
        {"boot": "b" * 1000},
        {"facts": {"address": "a", "ncpus": -1, "ngpus": 4, "memory_bytes": 1, "virtual": True}},
        {"facts": {"address": "a" * 1000, "ncpus": 1, "ngpus": 4, "memory_bytes": 1, "virtual": True}},
        {"facts": {"address": "a", "ncpus": 1, "ngpus": 4, "memory_bytes": 2**80, "virtual": True}},
    ],
    ids=str,
)
def test_figures_that_no_host_has_are_dropped(
    cluster: Cluster, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    before = list(Host.objects.values())
    ingest_report({**cluster.hosts["gpu-host-1"].report(), **wrong})
    assert list(Host.objects.values()) == before
    assert "dropped" in caplog.text
