"""Many reports at once: what is stored is what one after the other would store."""

import base64
import json
import random
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from msgspec import structs
from tidepool.protocol import Report, from_json

from jobs.control.intake import MESSAGE_BYTES, batch_of
from jobs.control.steady_hosts import SteadyHosts
from jobs.management.commands.take_reports import store
from jobs.models import Job, Journal, MetricPoint, Rank
from jobs.states import JobState, RankState
from tests.jobs.cluster import Cluster, FakeHost
from tests.jobs.conftest import Submit
from tests.jobs.control.test_dispatch import Mailbox, mailbox
from tests.jobs.control.test_reports import story
from workers.models import Host, Intake

__all__ = ["mailbox"]

REPORT = "jobs.tasks.ingest_report"


def message(task: str, *args: Any) -> bytes:
    """Return a message as Celery writes it to Redis."""
    body = base64.b64encode(json.dumps([args, {}, {"callbacks": None}]).encode()).decode()
    return json.dumps({"body": body, "headers": {"task": task}, "properties": {"body_encoding": "base64"}}).encode()


def take(*messages: bytes, steady: SteadyHosts | None = None) -> None:
    store(batch_of(messages), steady or SteadyHosts())


def test_the_newest_facts_and_all_entries_are_left_of_a_host() -> None:
    host = FakeHost("gpu-host-1")
    host.journals["7.1.metrics"] = [("step", {"step": 1}), ("step", {"step": 2})]
    old = host.report()
    host.journals["7.1.metrics"].append(("step", {"step": 3}))
    host.applied = 9
    new = host.report()
    other = FakeHost("gpu-host-2").report()
    batch = batch_of([message(REPORT, values) for values in (new, other, old, old)])
    assert [(report.host, report.applied_revision) for report in batch.reports] == [
        ("gpu-host-1", 9),
        ("gpu-host-2", 0),
    ]
    assert sorted(entry.number for entry in batch.reports[0].entries) == [1, 2, 3]


def test_each_start_of_an_executor_counts_for_itself() -> None:
    host = FakeHost("gpu-host-1")
    leaving = host.report(leaving=True)
    host.boot = "boot-2"
    batch = batch_of([message(REPORT, leaving), message(REPORT, host.report())])
    assert [(report.boot, report.leaving) for report in batch.reports] == [("boot-1", True), ("boot-2", False)]


def test_requests_follow_once_each() -> None:
    marks = [message("jobs.tasks.note_taken", float(at)) for at in range(3)]
    batch = batch_of([*marks, message("jobs.tasks.note_saves")])
    assert [(each.task, each.args) for each in batch.requests] == [
        ("jobs.tasks.note_taken", [2.0]),
        ("jobs.tasks.note_saves", []),
    ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (b"no JSON", "JSON"),
        (b'{"body": "{}"}', "headers"),
        (json.dumps({"body": "%", "headers": {"task": "a"}, "properties": {"body_encoding": "base64"}}).encode(), ""),
        (message(REPORT), ""),
        (message(REPORT, {"host": "x"}), ""),
        (message(REPORT, {"version": 99}), "99"),
        (b" " * (MESSAGE_BYTES + 1), "larger"),
    ],
    ids=["no JSON", "no task", "no base64", "no report", "half a report", "other version", "too large"],
)
@pytest.mark.django_db
def test_a_message_that_cannot_be_read_is_counted_and_delays_no_other(wrong: bytes, why: str) -> None:
    good = FakeHost("gpu-host-1").enroll()
    take(wrong, message(REPORT, good.report()), wrong)
    assert why in batch_of([wrong]).dropped[0]
    assert Intake.objects.get().dropped == 2
    assert Host.objects.get().state == Host.State.ONLINE


def test_a_report_of_a_million_entries_is_dropped() -> None:
    host = FakeHost("gpu-host-1")
    host.journals["7.1.metrics"] = [("step", {"step": 1, "epoch": 0, "at": 1.0})] * 1_000_000
    names = json.dumps([{"journal": "7.1.metrics", "number": 1, "kind": "step", "data": {}}])[1:-1]
    values = host.report(entries=[])
    text = json.dumps(values)[:-1] + ', "entries": [' + ",".join([names] * 1_000_000) + "]}"
    body = base64.b64encode(f"[[{text}], {{}}, {{}}]".encode()).decode()
    huge = {"body": body, "headers": {"task": REPORT}, "properties": {"body_encoding": "base64"}}
    batch = batch_of([json.dumps(huge).encode()])
    assert (batch.reports, len(batch.dropped)) == ([], 1)


@pytest.mark.django_db
def test_a_host_whose_report_raises_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = FakeHost("gpu-host-1").enroll(), FakeHost("gpu-host-2").enroll()
    unknown = FakeHost("gpu-host-3")

    def release(report: Report) -> str:
        if report.host == "gpu-host-1":
            raise ValueError("of a test")
        return ""

    monkeypatch.setattr("jobs.control.reports.release_vacated", release)
    take(*(message(REPORT, host.report()) for host in (first, unknown, second)))
    assert Host.objects.get(name="gpu-host-2").state == Host.State.ONLINE


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(4))
def test_any_order_loss_and_doubling_in_batches_store_each_fact_once(
    cluster: Cluster, submit: Submit, mailbox: Mailbox, seed: int
) -> None:
    job = submit()
    cluster.cycle()
    chance = random.Random(seed)
    messages = [message(REPORT, values) for values in story(cluster, job, seed) for _ in range(chance.randint(0, 3))]
    chance.shuffle(messages)
    steady = SteadyHosts()
    while messages:
        count = chance.randint(1, 8)
        take(*messages[:count], steady=steady)
        del messages[:count]
    cluster.report()  # hosts send again what was not acknowledged, before they learn what is wanted now
    cluster.settle()

    done = Job.objects.get(pk=job.pk)
    assert (done.state, done.run.step, done.run.final_metrics) == (JobState.SUCCEEDED, 5, {"loss": 0.2})
    assert Rank.objects.filter(job=job, state=RankState.EXITED).count() == Rank.objects.filter(job=job).count() == 8
    points = MetricPoint.objects.filter(job=job, name="loss").order_by("step").values_list("step", "value")
    assert list(points) == [(step, 1 / step) for step in range(1, 6)]
    journals = {journal.name: journal.number for journal in Journal.objects.filter(job=job)}
    assert journals == {name: len(lines) for host in cluster.hosts.values() for name, lines in host.journals.items()}


@pytest.mark.django_db
def test_entries_behind_a_gap_within_a_batch_wait(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    cluster.train(job)
    lead = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    for step in (2, 3, 4, 5):
        cluster.log_step(job, step, loss=1.0)
    report = from_json(Report, lead.report())
    name = f"{job.pk}.1.metrics"
    held = [entry for entry in report.entries if not (entry.journal == name and entry.number == 3)]
    lost = structs.replace(report, entries=held)
    take(
        message(REPORT, json.loads(json.dumps(lead.report() | {"entries": [structs.asdict(e) for e in lost.entries]})))
    )
    assert Journal.objects.get(name=name).number == 2
    take(message(REPORT, lead.report()))
    assert Journal.objects.get(name=name).number == 5


def test_a_steady_host_is_written_every_three_seconds() -> None:
    host, now = FakeHost("gpu-host-1"), timezone.now()
    steady, report = SteadyHosts(), from_json(Report, FakeHost("gpu-host-1").report())
    assert not steady.is_steady(report, now)
    steady.note(report, now)
    again = from_json(Report, host.report())
    assert steady.is_steady(again, now + timedelta(seconds=2.9))
    assert not steady.is_steady(again, now + timedelta(seconds=3))
    for news in ({"applied_revision": 1}, {"leaving": True}, {"boot": "boot-2"}):
        assert not steady.is_steady(from_json(Report, host.report(**news)), now)
    host.start(7, 1, 0)
    assert not steady.is_steady(from_json(Report, host.report()), now), "a rank, and a GPU that works"
