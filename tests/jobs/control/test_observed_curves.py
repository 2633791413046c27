"""Tests of what executors read of plain scripts: stored once, with its source; owners correct how logs are read."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.control.dispatch import build_sync
from jobs.control.metrics import store_steps
from jobs.control.transition import lock_job
from jobs.files.job_folder import job_folder
from jobs.models import Job, MetricPoint
from jobs.pages.job.curves import sources_of
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit


@pytest.fixture
def job(cluster: Cluster, submit: Submit, code: RegisteredModelVersion) -> Job:
    """A plain script that runs."""
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine="single")
    job = submit(max_slots=1)
    cluster.turn()
    return Job.objects.get(pk=job.pk)


def observed(step: int, kind: str = "log", where: str = "stdout", **values: Any) -> dict[str, Any]:
    return {"step": step, "at": 1.0, "kind": kind, "where": where, **values}


def report(cluster: Cluster, job: Job, *records: dict[str, Any], attempt: int = 1) -> Job:
    cluster.hosts[job.run.lead_host].journals[f"{job.pk}.{attempt}.observed"] += [
        ("observed", values) for values in records
    ]
    cluster.report()
    return Job.objects.select_related("run").get(pk=job.pk)


def points(job: Job) -> list[tuple[str, int, float | None]]:
    rows = MetricPoint.objects.filter(job=job).order_by("name", "step")
    return list(rows.values_list("name", "step", "value"))


def test_a_step_that_a_script_prints_shows_that_it_works(cluster: Cluster, job: Job) -> None:
    assert job.run.stepped_at is None
    assert report(cluster, job, observed(1, metrics={"loss": 0.5})).run.stepped_at is not None


def test_curves_sources_and_progress_are_stored_once(cluster: Cluster, job: Job) -> None:
    records = [
        observed(1, metrics={"loss": 0.5, "acc": None}, epoch=1, progress=0.25),
        observed(2, metrics={"loss": 0.4}),
    ]
    rubbish = [
        {},
        observed(-1),
        observed(3, kind="other"),
        {"step": "x"},
        observed(2, metrics={"x" * 65: 1.0, "": 2.0}),
    ]
    for _ in range(2):
        after = report(cluster, job, *rubbish, *records, observed(3, epoch=2, progress=7.0))
    assert points(job) == [("acc", 1, None), ("loss", 1, 0.5), ("loss", 2, 0.4)]
    assert after.run.curve_sources == {name: {"kind": "log", "where": "stdout"} for name in ("loss", "acc")}
    assert (after.run.step, after.run.epoch, after.run.progress) == (3, 2, 1.0)
    assert after.run.final_metrics == {"loss": 0.4, "acc": None}


def test_another_source_begins_a_curve_anew(cluster: Cluster, job: Job) -> None:
    report(cluster, job, observed(9, metrics={"loss": 0.5, "acc": 0.1}))
    csv = {"kind": "csv", "where": "metrics.csv"}
    after = report(cluster, job, observed(3, **csv, metrics={"loss": 0.51}))
    assert points(job) == [("acc", 9, 0.1), ("loss", 3, 0.51)]
    assert after.run.curve_sources["loss"] == csv
    assert after.run.step == 9, "where the log says that it is"


def test_a_library_counts_better_than_its_log(cluster: Cluster, job: Job) -> None:
    report(cluster, job, observed(900, metrics={"loss": 0.5}, epoch=9, progress=0.9))
    library = {"kind": "library", "where": "journal/library.jsonl"}
    moment = observed(20, **library, metrics={"loss": 0.4}, epoch=1, progress=0.2)
    after = report(cluster, job, moment, observed(950, metrics={"acc": 0.5}, epoch=9, progress=0.9))
    assert points(job) == [("acc", 950, 0.5), ("loss", 20, 0.4)]
    assert (after.run.progress, after.run.curve_sources["loss"]) == (0.2, library)
    after = report(cluster, job, observed(2000, metrics={"acc": 0.5}, epoch=20, progress=1.0))
    assert (after.run.step, after.run.progress) == (900, 0.2), "steps never go back within an attempt"


def test_more_curves_than_a_page_can_use_are_left_out(cluster: Cluster, job: Job) -> None:
    records = [observed(1, metrics={f"m{part}.{n}": 1.0 for n in range(100)}) for part in range(4)]
    assert len(report(cluster, job, *records).run.curve_sources) == 300


def test_what_the_curves_lack_is_told(cluster: Cluster, job: Job) -> None:
    report(cluster, job, observed(1, metrics={"loss": 1.0}, left_out=40))
    after = report(cluster, job, observed(2, metrics={f"m{number}": 1.0 for number in range(103)}, has_gaps=True))
    assert after.run.curve_limits == {"names": 40, "gaps": True}
    said = sources_of(report(cluster, job, observed(3, metrics={"loss": 1.0})))["limits"]
    assert [sentence.split(":")[0] for sentence in said] == ["40 more metrics have no curve", "The curves have gaps"]


def test_names_of_a_session_beyond_the_limit_are_counted(job: Job) -> None:
    made = {"epoch": 1, "cursor": 1, "samples": 1, "world_size": 1, "generation": 1, "attempt": 1, "at": 1.0}
    names = {f"task{number}": 1.0 for number in range(300)}
    store_steps(lock_job(job.pk), [{**made, "step": 1}, {**made, "step": 2, **names, "x" * 65: 1.0}])
    run = Job.objects.get(pk=job.pk).run
    assert run.curve_limits == {"names": 201}
    assert len(run.final_metrics) == 100


def test_steps_of_a_plain_script_judge_nothing(cluster: Cluster, job: Job) -> None:
    """A script with a checkpoint of its own that printed its steps has not "ended early"."""
    report(cluster, job, observed(5, metrics={"loss": 0.5}))
    (job_folder(job).attempt(1) / "checkpoint").mkdir(parents=True, exist_ok=True)
    (job_folder(job).attempt(1) / "checkpoint" / "weights").write_text("1")
    cluster.train(job, plain=True)
    [rank] = cluster.ranks(job)
    cluster.hosts[job.run.lead_host].end(rank.slot, code=0)
    cluster.report()
    after = Job.objects.get(pk=job.pk)
    assert (after.state, after.reason_params["message"], after.run.step) == (JobState.SUCCEEDED, "complete", 5)


def test_what_is_read_after_the_end_moves_the_step_and_not_the_progress(cluster: Cluster, job: Job) -> None:
    report(cluster, job, observed(35, metrics={"loss": 0.5}, epoch=3, progress=0.8))
    [rank] = cluster.ranks(job)
    cluster.hosts[job.run.lead_host].end(rank.slot, code=0)
    cluster.report()
    assert Job.objects.get(pk=job.pk).state == JobState.SUCCEEDED
    after = report(cluster, job, observed(40, metrics={"loss": 0.4}, epoch=4, progress=0.9))
    assert (after.run.step, after.run.epoch, after.run.progress) == (40, 4, 1.0)
    assert after.run.final_metrics == {"loss": 0.4}


def test_its_owner_corrects_how_the_log_is_read(cluster: Cluster, job: Job, alice: User, client: Client) -> None:
    csv = observed(1, kind="csv", where="a.csv", metrics={"lr": 0.1})
    report(cluster, job, csv, observed(1, metrics={"los": 1.0}, progress=0.5))
    client.force_login(alice)
    address = f"/api/v1/jobs/{job.pk}/log-pattern/"
    answer = client.put(address, {"pattern": r"R (?P<reward>\S+)"}, content_type="application/json")
    assert (answer.status_code, answer.json()["curve_sources"]) == (200, {"lr": {"kind": "csv", "where": "a.csv"}})
    [desired] = build_sync(job.run.lead_host).jobs
    assert (desired.log_pattern, desired.log_pattern_revision) == (r"R (?P<reward>\S+)", 1)
    # The executor's earlier readings arrive late.
    late, new = observed(2, metrics={"los": 2.0}), observed(1, metrics={"reward": 3.0}, revision=1)
    after = report(cluster, job, late, new)
    assert points(job) == [("lr", 1, 0.1), ("reward", 1, 3.0)]
    assert after.run.progress is None


@pytest.mark.parametrize("pattern", ["(", "no group", r"(?=a)(?P<loss>a)", "(?P<loss>a)" + "a" * 500])
def test_a_pattern_that_cannot_be_used_is_refused(job: Job, alice: User, client: Client, pattern: str) -> None:
    client.force_login(alice)
    for address, field, send in (
        (f"/api/v1/jobs/{job.pk}/log-pattern/", "pattern", client.put),
        (f"/api/v1/jobs/{job.pk}/log-pattern/try/", "pattern", client.post),
    ):
        answer = send(address, {"pattern": pattern}, content_type="application/json")
        assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])
    assert client.post(f"/jobs/{job.pk}/log-pattern/", {"pattern": pattern, "act": "save"}).status_code == 400


def test_a_pattern_is_tried_on_the_last_lines(job: Job, cluster: Cluster, alice: User, client: Client) -> None:
    cluster.train(job)
    rank = job.ranks.get()
    log = job_folder(job).attempt(1) / "log" / f"{rank.member_id}.{rank.host}" / "stdout"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"it {n} R {n}.5\n" for n in range(30)))
    client.force_login(alice)
    pattern = {"pattern": r"it (?P<step>\d+) R (?P<reward>\S+)", "act": "try"}
    answer = client.post(f"/jobs/{job.pk}/log-pattern/", pattern)
    assert answer.context["found"][-1] == {"line": "it 29 R 29.5", "step": 29, "epoch": 0, "metrics": {"reward": 29.5}}
    assert Job.objects.get(pk=job.pk).log_pattern == ""


def test_the_log_of_a_training_that_is_over_is_read_again(
    job: Job, cluster: Cluster, alice: User, client: Client
) -> None:
    cluster.train(job)
    rank = job.ranks.get()
    log = job_folder(job).attempt(1) / "log" / f"{rank.member_id}.{rank.host}" / "stdout"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"it {n} R {n}.5\n" for n in range(1000)) + "it 1000 R 7")
    csv = observed(1, kind="csv", where="a.csv", metrics={"lr": 0.1})
    report(cluster, job, csv, observed(1, metrics={"it": 1.0}))
    cluster.finish(job)
    client.force_login(alice)
    address, pattern = f"/api/v1/jobs/{job.pk}/log-pattern/", r"it (?P<step>\d+) R (?P<reward>\S+)"

    answer = client.put(address, {"pattern": pattern}, content_type="application/json")

    assert (answer.status_code, answer.json()["log_pattern"]) == (200, pattern)
    assert [point for point in points(job) if point[0] != "reward"] == [("lr", 1, 0.1)]
    assert [step for name, step, _ in points(job) if name == "reward"] == list(range(1001))
    after = Job.objects.select_related("run").get(pk=job.pk)
    assert (after.state, after.run.step, after.run.final_metrics) == ("SUCCEEDED", 1000, {"lr": 0.1, "reward": 7.0})
    # Readings by the former pattern arrive too late.
    report(cluster, job, observed(2, metrics={"it": 2.0}))
    assert {name for name, _, _ in points(job)} == {"lr", "reward"}


@pytest.mark.parametrize("is_resumable", [True, False])
@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ((6, 7, 9), [1, 2, 3, 4, 5, 6, 7, 9]),  # it continues by itself after step 5
        ((1, 2), [1, 2]),  # it begins anew, and ends earlier than before
    ],
)
def test_an_attempt_replaces_points_as_it_passes_them(
    cluster: Cluster, job: Job, is_resumable: bool, steps: tuple[int, ...], kept: list[int]
) -> None:
    report(cluster, job, *(observed(step, metrics={"loss": 0.5}, progress=step / 10) for step in range(1, 9)))
    cluster.train(job, plain=True)
    folder = job_folder(job).attempt(1) / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("resumable" if is_resumable else "weights")).write_text("1")
    [rank] = cluster.ranks(job)
    cluster.hosts[job.run.lead_host].end(rank.slot, signal=9)
    cluster.report()
    cluster.turn(3)
    job = Job.objects.select_related("run").get(pk=job.pk)
    assert (job.run.attempt, job.run.step, job.run.progress) == (2, 0, None)
    assert [step for _, step, _ in points(job)] == [1, 2, 3, 4, 5, 6, 7, 8], "nothing is deleted before it is passed"
    for step in steps:
        report(cluster, job, observed(step, metrics={"loss": 0.1}), attempt=2)
    assert [step for _, step, value in points(job) if value == 0.1] == list(steps)
    cluster.train(job, plain=True)
    cluster.finish(job)
    assert [step for _, step, _ in points(job)] == kept
