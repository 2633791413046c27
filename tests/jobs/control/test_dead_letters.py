"""An entry that cannot be stored is tried a few times, set aside and told; the job ends, and others go on."""

from typing import Any

import pytest
from django.db import IntegrityError, OperationalError
from tidepool import protocol
from tidepool.protocol import Report, from_json

from jobs.control import journals
from jobs.control.reports import store_reports
from jobs.control.steady_hosts import SteadyHosts
from jobs.models import Job, Journal, MetricPoint, Rank, UnstoredEntry
from jobs.states import JobState, RankState, Reason
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db

Raising = Any


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Raising:
    """Have the storing of entries of this kind raise."""
    store = journals._store_entry

    def raise_at(kind: type, error: Exception) -> None:
        def storing(job: Job, entry: Any, host: str) -> None:
            if isinstance(entry, kind):
                raise error
            store(job, entry, host)

        monkeypatch.setattr(journals, "_store_entry", storing)

    return raise_at


def of_one_slot(cluster: Cluster, submit: Submit) -> Job:
    job = submit(max_slots=1)
    cluster.turn()
    cluster.train(job)
    return Job.objects.get(pk=job.pk)


def test_an_end_that_cannot_be_stored_ends_the_job_with_its_reason(
    cluster: Cluster, submit: Submit, raising: Raising
) -> None:
    job, other = of_one_slot(cluster, submit), of_one_slot(cluster, submit)
    raising(protocol.RankExited, IntegrityError("UNIQUE constraint failed: x.y"))
    host = cluster.hosts[job.run.lead_host]
    [slot] = [rank.slot for rank in host.ranks.values() if rank.job == job.pk]
    host.end(slot, code=0)
    cluster.log_step(other, 2, loss=0.5)

    for tries in (1, 2):
        cluster.report()
        assert Job.objects.get(pk=job.pk).state == JobState.RUNNING
        row = UnstoredEntry.objects.get()
        assert (row.tries, row.set_aside_at, row.kind, row.job_id) == (tries, None, "rank_exited", job.pk)
        assert "UNIQUE constraint" in row.error
        assert "IntegrityError" in row.traceback
    assert MetricPoint.objects.filter(job=other, step=2).exists(), "others go on"

    cluster.report()
    job = Job.objects.get(pk=job.pk)
    assert (job.state, job.reason_code) == (JobState.FAILED, Reason.REPORT_SET_ASIDE)
    assert "cannot be stored (rank_exited" in job.reason_text
    assert job.run.error["kind"] == "ReportSetAside"
    assert [rank.state for rank in job.ranks.all()] == [RankState.LOST]
    assert UnstoredEntry.objects.get().set_aside_at is not None
    cluster.report()
    cluster.turn()
    assert not job.claims.filter(released_at=None).exists()
    assert Job.objects.get(pk=other.pk).state == JobState.RUNNING


def test_what_only_tells_is_set_aside_and_the_training_goes_on(
    cluster: Cluster, submit: Submit, raising: Raising
) -> None:
    job = of_one_slot(cluster, submit)
    raising(protocol.CheckpointFailed, TypeError("of a bug"))
    host = cluster.hosts[job.run.lead_host]
    for step in range(3):
        host.write(job, "coordinator", "checkpoint_failed", step=step, epoch=0, error="full")
    host.write(job, "coordinator", "no_progress", text="it stands still")
    for _ in range(3):
        cluster.report()

    job = Job.objects.get(pk=job.pk)
    assert job.state == JobState.RUNNING
    assert [row.tries for row in UnstoredEntry.objects.order_by("pk")] == [3, 1, 1], (
        "the first one showed that it lasts"
    )
    told = job.events.filter(reason=Reason.REPORT_SET_ASIDE)
    assert [event.detail["kind"] for event in told] == ["checkpoint_failed"], "once for the attempt"
    assert job.events.filter(reason=Reason.NO_PROGRESS).exists(), "what follows is stored"
    number = len(host.journals[f"{job.pk}.1.coordinator"])
    assert Journal.objects.get(name=f"{job.pk}.1.coordinator").number == number


def test_of_many_the_number_is_kept(
    cluster: Cluster, submit: Submit, raising: Raising, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.control.dead_letters._MOST_KEPT", 2)
    job = of_one_slot(cluster, submit)
    raising(protocol.CheckpointFailed, TypeError("of a bug"))
    for step in range(5):
        cluster.hosts[job.run.lead_host].write(
            job, "coordinator", "checkpoint_failed", step=step, epoch=0, error="full"
        )
    for _ in range(3):
        cluster.report()
    assert [row.more for row in UnstoredEntry.objects.order_by("pk")] == [0, 3]


def test_a_database_that_is_away_sets_nothing_aside(cluster: Cluster, submit: Submit, raising: Raising) -> None:
    job = of_one_slot(cluster, submit)
    raising(protocol.RankExited, OperationalError("database is locked"))
    host = cluster.hosts[job.run.lead_host]
    [slot] = [rank.slot for rank in host.ranks.values() if rank.job == job.pk]
    host.end(slot, code=0)
    for _ in range(5):
        with pytest.raises(OperationalError):
            host.send()
    assert not UnstoredEntry.objects.exists()


def test_files_that_cannot_be_read_are_the_entrys_fault_and_keep_back_no_other(
    cluster: Cluster, submit: Submit
) -> None:
    jobs = []
    for _ in range(2):
        jobs.append(submit(max_slots=4))
        cluster.turn()
        cluster.train(jobs[-1])
    broken, other = (Job.objects.get(pk=job.pk) for job in jobs)
    first, second = cluster.hosts[broken.run.lead_host], cluster.hosts[other.run.lead_host]
    path = "checkpoint/" + "x" * 300  # no file's name may be as long
    first.write(broken, "coordinator", "checkpoint", step=1, epoch=0, path=path, size_bytes=1, sha256="")
    second.end(0, code=1, error={"kind": "ValueError", "message": "of a script", "traceback": ""})
    for _ in range(3):
        store_reports([from_json(Report, host.report()) for host in (first, second)], SteadyHosts())

    assert Rank.objects.filter(job=other, state=RankState.EXITED).exists()
    row = UnstoredEntry.objects.get()
    assert (row.job_id, row.kind, row.tries, "File name too long" in row.error) == (broken.pk, "checkpoint", 3, True)
    assert row.set_aside_at is not None
    assert Job.objects.get(pk=broken.pk).state == JobState.RUNNING


def test_a_host_whose_own_facts_cannot_be_stored_says_so_and_its_trainings_go_on(
    cluster: Cluster, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = of_one_slot(cluster, submit)

    def refuse(*_: object) -> None:
        raise ValueError("no such column")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.control.hosts._note_facts", refuse)
        cluster.log_step(job, 2, loss=0.5)
        cluster.report()
    assert "no such column" in Host.objects.get(name=job.run.lead_host).report_problem
    assert MetricPoint.objects.filter(job=job, step=2).exists()
    cluster.report()
    assert Host.objects.get(name=job.run.lead_host).report_problem == ""
