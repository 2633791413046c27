"""Reports may be lost, doubled, shuffled, late or wrong: what is stored is each fact once."""

import random
from typing import Any

import pytest
from tidepool.protocol import JournalEntry

from jobs.models import AllocationPoint, Generation, Job, JobEvent, Journal, MetricPoint, Rank
from jobs.states import GenerationState, JobState, RankState, Reason
from jobs.tasks import ingest_report
from tests.factories import set_job
from tests.jobs.cluster import Cluster, FakeHost
from tests.jobs.conftest import Submit
from tests.jobs.control.test_dispatch import Mailbox, mailbox
from workers.models import GpuReading, Host, Slot

__all__ = ["mailbox"]

pytestmark = pytest.mark.django_db


def test_the_first_report_makes_the_host(db: None) -> None:
    FakeHost("gpu-host-9", slots=2).enroll().send()
    host = Host.objects.get(name="gpu-host-9")
    assert (host.state, host.ngpus, host.ncpus, host.virtual, host.boot) == ("ONLINE", 2, 8, True, "boot-1")
    assert [slot.index for slot in host.slots.all()] == [0, 1]
    assert [slot.device_model for slot in host.slots.all()] == ["virtual GPU (CPU)"] * 2
    assert GpuReading.objects.filter(slot__host=host, utilisation_percent=0.0).count() == 2


def test_a_report_twice_is_a_report_once(db: None) -> None:
    values = FakeHost("gpu-host-9").enroll().report()
    for _ in range(3):
        ingest_report(values)
    assert (Host.objects.count(), Slot.objects.count(), GpuReading.objects.count()) == (1, 4, 4)


@pytest.mark.parametrize(
    "values",
    [None, [], {}, {"host": "x"}, {"version": 99}],
    ids=["nothing", "list", "empty", "half", "other version"],
)
def test_a_wrong_report_changes_nothing(db: None, values: Any, caplog: pytest.LogCaptureFixture) -> None:
    FakeHost("gpu-host-9").enroll()
    ingest_report(values)
    assert not Host.objects.filter(last_report_at__isnull=False).exists()
    assert "dropped" in caplog.text


def story(cluster: Cluster, job: Job, seed: int) -> list[dict[str, Any]]:
    """The reports of a whole training, in order, as if nothing had been acknowledged."""
    cluster.pull()
    reports = [host.report() for host in cluster.hosts.values()]
    job.refresh_from_db()
    lead = cluster.hosts[job.run.lead_host]
    members = [
        {
            "member_id": rank.member_id,
            "rank": number,
            "host": rank.member_id.split(".")[0],
            "slot": rank.slot,
            "holder": True,
        }
        for number, rank in enumerate(cluster.ranks(job))
    ]
    lead.write(
        job, "coordinator", "generation_planned", generation=1, members=members, target_revision=1, cause="start"
    )
    lead.write(
        job,
        "coordinator",
        "generation_active",
        generation=1,
        members=members,
        target_revision=1,
        world_size=len(members),
        step=0,
        pause_ms=3.0,
        cause="start",
    )
    reports.append(lead.report())
    for step in range(1, 6):
        cluster.log_step(job, step, loss=1 / step)
        reports.append(lead.report())
    lead.write(job, "coordinator", "finished", step=5, epoch=1)
    for host in cluster.hosts.values():
        for slot in list(host.ranks):
            host.end(slot, code=0)
        reports.append(host.report())
    return reports


@pytest.mark.parametrize("seed", range(4))
def test_doubled_and_shuffled_reports_store_each_fact_once(cluster: Cluster, submit: Submit, seed: int) -> None:
    job = submit()
    cluster.cycle()
    chance = random.Random(seed)
    reports = story(cluster, job, seed)
    heard = [report for report in reports for _ in range(chance.randint(1, 3))]
    chance.shuffle(heard)
    for values in heard:
        ingest_report(values)
    cluster.settle()  # the host sends again what was not acknowledged

    done = Job.objects.get(pk=job.pk)
    assert done.state == JobState.SUCCEEDED
    assert (done.run.step, done.run.epoch, done.run.final_metrics) == (5, 1, {"loss": 0.2})
    assert Rank.objects.filter(job=job, state=RankState.EXITED).count() == 8
    assert Rank.objects.filter(job=job).count() == 8
    generation = Generation.objects.get(job=job)
    assert (generation.state, generation.world_size) == (GenerationState.ENDED, 8)
    points = AllocationPoint.objects.filter(job=job, slots=8)
    assert [(point.generation, point.pause_ms) for point in points] == [(1, 3.0)]
    values = MetricPoint.objects.filter(job=job, name="loss").order_by("step")
    assert [(point.step, point.value) for point in values] == [(step, 1 / step) for step in range(1, 6)]
    assert JobEvent.objects.filter(job=job, detail__message="trained").count() == 1
    journals = {journal.name: journal.number for journal in Journal.objects.filter(job=job)}
    assert journals == {name: len(lines) for host in cluster.hosts.values() for name, lines in host.journals.items()}


def test_entries_after_a_gap_wait_for_those_before(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    cluster.train(job)
    lead = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    lead.pull()
    for step in (2, 3, 4):
        cluster.log_step(job, step, loss=float(step))
    whole = lead.report()
    later = {**whole, "entries": [entry for entry in whole["entries"] if entry["number"] > 2]}
    ingest_report(later)
    assert not MetricPoint.objects.filter(job=job).exists()
    ingest_report(whole)
    assert [point.step for point in MetricPoint.objects.filter(job=job)] == [2, 3, 4]


def test_a_former_life_changes_nothing_but_is_acknowledged(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    set_job(job, attempt=2)
    host = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    host.end(0, code=1)
    host.send()
    assert Job.objects.get(pk=job.pk).state == JobState.STARTING
    assert Journal.objects.get(name=f"{job.pk}.1.shim.{host.name}").number == 2


def test_journals_of_unknown_jobs_are_acknowledged(cluster: Cluster, mailbox: Mailbox) -> None:
    entries = [JournalEntry("999.1.metrics", number, "step", {}) for number in (1, 2)]
    entries.append(JournalEntry("nonsense", 3, "step", {}))
    cluster.hosts["gpu-host-1"].send(entries=entries)
    _, sync, _ = mailbox.sent[-1]
    assert sync.acknowledged == {"999.1.metrics": 2, "nonsense": 3}


def test_new_entries_are_acknowledged_at_once(cluster: Cluster, submit: Submit, mailbox: Mailbox) -> None:
    job = submit(max_slots=1)
    cluster.cycle()
    host = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    host.pull()
    host.send()
    queue, sync, _ = mailbox.sent[-1]
    assert queue == f"host.{host.name}"
    assert sync.acknowledged == {f"{job.pk}.1.shim.{host.name}": 1}


def test_a_new_lead_host_learns_how_far_the_journal_is_stored(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    cluster.train(job)
    name = f"{job.pk}.1.coordinator"
    old, new = cluster.hosts["gpu-host-1"], cluster.hosts["gpu-host-2"]
    new.journals[name] = old.journals.pop(name)
    new.send()
    assert new.pull().acknowledged[name] == 1


def test_a_broken_entry_is_left_out_and_said(
    cluster: Cluster, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    job.refresh_from_db()
    host = cluster.hosts[job.run.lead_host]
    host.write(job, "coordinator", "generation_active", generation="one")
    host.write(job, "coordinator", "from the future")
    host.write(job, "coordinator", "checkpoint", step=1, epoch=0, path="../../../etc", size_bytes=1, sha256="")
    cluster.report()
    assert Journal.objects.get(name=f"{job.pk}.1.coordinator").number == 3
    assert Job.objects.get(pk=job.pk).state == JobState.STARTING
    assert caplog.text.count("set aside") == 2
    assert job.events.filter(reason=Reason.REPORT_SET_ASIDE).count() == 1, "told once"


def test_what_is_left_of_an_ended_script_is_told(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    cluster.train(job)
    rank = job.ranks.order_by("pk").first()
    assert rank is not None
    cluster.hosts[rank.host].write(job, f"shim.{rank.host}", "rank_lingers", member_id=rank.member_id, slot=rank.slot)
    cluster.report()
    told = job.events.order_by("-seq")[0]
    assert (told.reason, told.detail["message"], told.detail["member_id"]) == (
        Reason.NO_PROGRESS,
        "rank_lingers",
        rank.member_id,
    )


def test_what_the_coordinator_says_of_stuck_ranks_is_told(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    cluster.train(job)
    job.refresh_from_db()
    host = cluster.hosts[job.run.lead_host]
    host.write(
        job, "coordinator", "rank_stuck", member_id="b.0.1", host="b", silent=True, seconds=61.0, why="it is silent"
    )
    said = "No step for 301 s: all ranks wait for each other."
    host.write(job, "coordinator", "no_progress", text=said)
    cluster.report()
    stuck, stalled = job.events.order_by("-seq")[1], job.events.order_by("-seq")[0]
    assert (stuck.reason, stuck.detail["message"], stuck.detail["why"]) == (
        Reason.RANK_LOST,
        "rank_stuck",
        "it is silent",
    )
    assert (stalled.reason, stalled.text) == (Reason.NO_PROGRESS, said)
    assert Job.objects.get(pk=job.pk).state == JobState.RUNNING


def test_a_rank_that_never_came_to_its_training_is_told_with_the_place_where_it_hung(
    cluster: Cluster, submit: Submit
) -> None:
    job = submit()
    cluster.turn()
    cluster.train(job)
    job.refresh_from_db()
    host = cluster.hosts[job.run.lead_host]
    error = {"kind": "LaunchTimeout", "message": "after 1800 s it had not", "traceback": "in load"}
    end = {"member_id": "b.0.1", "host": "b", "code": None, "signal": 6, "step": None, "error": error}
    end |= {"slot": 0, "by_script": True, "generation": 0}
    host.write(job, "coordinator", "rank_failed", **end)
    cluster.report()
    told = job.events.order_by("-seq")[0]
    assert (told.reason, told.detail["traceback"]) == (Reason.LAUNCH_TIMEOUT, "in load")
    assert told.detail["error"] == "LaunchTimeout: after 1800 s it had not"
    assert Job.objects.get(pk=job.pk).state == JobState.RUNNING


def test_what_is_no_number_is_a_gap(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    cluster.train(job)
    cluster.log_step(job, 2, loss=float("nan"), accuracy=None, note="text", learning_rate=0.1, huge=10**400)  # type: ignore[arg-type]
    cluster.report()
    points = MetricPoint.objects.filter(job=job, step=2).order_by("name")
    assert {point.name: point.value for point in points} == {
        "accuracy": None,
        "huge": None,
        "learning_rate": 0.1,
        "loss": None,
    }
    assert Job.objects.get(pk=job.pk).run.final_metrics == {
        "accuracy": None,
        "huge": None,
        "learning_rate": 0.1,
        "loss": None,
    }


def test_what_a_script_records_by_itself_makes_curves_and_no_progress(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    cluster.train(job, step=40)
    before = Job.objects.get(pk=job.pk).run
    host = cluster.hosts[before.lead_host]
    records = [{}, {"step": 64, "at": 1.0, "loss": 0.5, "test_loss": None}, {"step": -1, "at": 1.0}, {"step": "x"}]
    host.journals[f"{job.pk}.1.recorded"] += [("recorded", values) for values in records]
    cluster.report()
    cluster.report()  # once more
    points = MetricPoint.objects.filter(job=job, step=64).order_by("name")
    assert {point.name: point.value for point in points} == {"loss": 0.5, "test_loss": None}
    after = Job.objects.get(pk=job.pk).run
    assert (after.step, after.progress) == (before.step, before.progress)
    assert after.final_metrics == {**before.final_metrics, "loss": 0.5, "test_loss": None}


def test_progress_and_ranks_are_known(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=2)
    cluster.turn()
    cluster.train(job, step=40)
    row = Job.objects.get(pk=job.pk)
    assert (row.run.step, row.run.progress) == (40, 0.4)
    ranks = Rank.objects.filter(job=job).order_by("rank")
    assert [(rank.rank, rank.state, rank.generation) for rank in ranks] == [(0, "RUNNING", 1), (1, "RUNNING", 1)]
    assert {rank.pid for rank in ranks} == {status.pid for status in cluster.ranks(job)}


def test_a_late_report_does_not_set_the_host_back(cluster: Cluster) -> None:
    host = cluster.hosts["gpu-host-1"]
    late = host.report()
    host.applied = Host.objects.get(name=host.name).desired_revision
    host.boot = "boot-2"
    host.send()
    ingest_report(late)
    assert Host.objects.get(name=host.name).boot == "boot-2"


def test_an_executor_that_remembers_more_than_the_database(cluster: Cluster) -> None:
    cluster.hosts["gpu-host-1"].send(applied_revision=70)
    assert Host.objects.get(name="gpu-host-1").desired_revision == 71


def test_an_executor_that_leaves_takes_its_slots_along(cluster: Cluster, submit: Submit) -> None:
    cluster.hosts["gpu-host-1"].send(leaving=True)
    assert Host.objects.get(name="gpu-host-1").state == Host.State.OFFLINE
    job = submit(max_slots=4)
    cluster.cycle()
    assert {claim.slot.host.name for claim in job.claims.all()} == {"gpu-host-2"}
    cluster.hosts["gpu-host-1"].send()
    assert Host.objects.get(name="gpu-host-1").state == Host.State.ONLINE


def test_draining_lasts_although_reports_come(cluster: Cluster) -> None:
    Host.objects.filter(name="gpu-host-1").update(state=Host.State.DRAINING)
    cluster.report()
    assert Host.objects.get(name="gpu-host-1").state == Host.State.DRAINING


def test_what_a_script_says_keeps_no_report_from_being_stored(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    host = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    error = {"kind": "ValueError", "message": "half \ud800, nothing \0", "traceback": "ValueError: \udfff"}
    host.end(0, code=1, error=error)
    host.send()
    failed = Job.objects.get(pk=job.pk)
    assert failed.run.error == {"kind": "ValueError", "message": "half �, nothing �", "traceback": "ValueError: �"}
    assert "half �" in failed.reason_text


@pytest.mark.parametrize(
    "wrong", [{"step": 10**30}, {"step": -1}, {"epoch": 2**63}, {"at": 1e300}, {"at": float("inf")}]
)
def test_a_step_that_cannot_be_stored_is_left_out(cluster: Cluster, submit: Submit, wrong: dict[str, Any]) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    cluster.train(job)
    lead = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    entry = {"step": 2, "epoch": 0, "at": 1.0, "loss": 0.5, **wrong}
    lead.journals[f"{job.pk}.1.metrics"].append(("step", entry))
    cluster.log_step(job, 3, loss=0.25)
    cluster.report()
    assert list(MetricPoint.objects.filter(job=job).values_list("step", flat=True)) == [3]
