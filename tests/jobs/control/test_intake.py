"""Many reports at once: what is stored is what one after the other would store."""

import base64
import copy
import json
import random
import socket
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from kombu.utils.json import JSONEncoder
from msgspec import structs
from tidepool.protocol import Report, Sync, from_json

from core.broker import connect
from jobs.control import metrics
from jobs.control.intake import MESSAGE_BYTES, batch_of
from jobs.control.steady_hosts import SteadyHosts
from jobs.management.commands.take_reports import rest_seconds, store, take_messages
from jobs.models import AllocationPoint, Generation, Job, Journal, MetricPoint, Rank, SlotClaim
from jobs.states import JobState, RankState
from jobs.tasks import ingest_report
from tests.jobs.cluster import Cluster, FakeHost
from tests.jobs.conftest import Submit
from tests.jobs.control.test_dispatch import Mailbox, mailbox
from tests.jobs.control.test_reports import story
from tests.processes import broker
from tests.waiting import PATIENCE_SECONDS
from workers.models import Host, Intake

__all__ = ["mailbox"]

REPORT = "jobs.tasks.ingest_report"


def message(task: str, *args: Any) -> bytes:
    """Return a message as Celery writes it to Redis."""
    body = base64.b64encode(json.dumps([args, {}, {"callbacks": None}], cls=JSONEncoder).encode()).decode()
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


def test_what_a_script_says_commands_no_terminal() -> None:
    host = FakeHost("gpu-host-1")
    said = "\x1b]0;title\x07\x1b[31mred\x1b[0m\r\n\ttab \x1b]52;c;cm0gLXJm\x1b\\\x9b2J\a\r\0 end"
    host.journals["7.1.coordinator"] = [("no_progress", {"text": said})]
    [report] = batch_of([message(REPORT, host.report())]).reports
    assert report.entries[0].data["text"] == "red\n\ttab \ufffd2J\ufffd\ufffd\ufffd end"


@pytest.mark.django_db
@pytest.mark.parametrize(("text", "loss"), [("half \udce9", 0.5), ("", float("nan"))], ids=["half a pair", "NaN"])
def test_an_end_is_stored_whatever_its_script_says(cluster: Cluster, submit: Submit, text: str, loss: float) -> None:
    job = submit(max_slots=1)
    cluster.turn()
    cluster.train(job)
    host = cluster.hosts[Job.objects.get(pk=job.pk).run.lead_host]
    cluster.log_step(job, 2, loss=loss)
    host.end(0, code=1, error={"kind": "ValueError", "message": text, "traceback": ""})
    batch = batch_of([message(REPORT, host.report())])
    assert batch.dropped == []
    store(batch, SteadyHosts())
    assert Rank.objects.get(job=job).state == RankState.EXITED


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_message_that_is_nested_too_deeply_is_dropped_alone(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    body = base64.b64encode(f"[[{nested}], {{}}, {{}}]".encode()).decode()
    deep = {"body": body, "headers": {"task": REPORT}, "properties": {"body_encoding": "base64"}}
    batch = batch_of([json.dumps(deep).encode(), message(REPORT, FakeHost("gpu-host-1").report())])
    assert ([report.host for report in batch.reports], len(batch.dropped)) == (["gpu-host-1"], 1)


@pytest.mark.django_db
def test_a_host_that_sends_a_gigabyte_is_cut_off_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, 32 MiB may be on their way for longer than a broker may take to answer.
    monkeypatch.setattr("core.broker.ANSWER_SECONDS", PATIENCE_SECONDS)
    good = FakeHost("gpu-host-1").enroll()
    with broker() as url, override_settings(TIDEPOOL_BROKER_URL=url):
        queue = settings.CELERY_TASK_DEFAULT_QUEUE
        with socket.socket(socket.AF_UNIX) as bad:
            bad.connect(unquote(urlsplit(url).path))
            length = 1024**3
            bad.sendall(f"*3\r\n$5\r\nLPUSH\r\n${len(queue)}\r\n{queue}\r\n${length}\r\n".encode())
            assert bad.recv(1024).startswith(b"-ERR Protocol error: invalid bulk length")
            assert bad.recv(1024) == b"", "the broker has closed the connection"
        # A message that is just short enough for the broker is too large for the intake.
        connect().lpush(queue, b" " * (2 * MESSAGE_BYTES))
        connect().lpush(queue, message(REPORT, good.report()))
        store(batch_of(take_messages(1)), SteadyHosts())
    assert Intake.objects.get().dropped == 1
    assert Host.objects.get().state == Host.State.ONLINE


@pytest.mark.django_db
def test_a_host_whose_report_raises_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = FakeHost("gpu-host-1").enroll(), FakeHost("gpu-host-2").enroll()
    unknown = FakeHost("gpu-host-3")

    def release(reports: list[Report]) -> dict[str, str]:
        if any(report.host == "gpu-host-1" for report in reports):
            raise ValueError("of a test")
        return {}

    monkeypatch.setattr("jobs.control.reports.release_vacated", release)
    take(*(message(REPORT, host.report()) for host in (first, unknown, second)))
    assert Host.objects.get(name="gpu-host-2").state == Host.State.ONLINE


def rows_of(job: Job) -> list[list[Any]]:
    """Return all that reports have stored of the job, but for times at which it was stored."""
    job = Job.objects.get(pk=job.pk)
    run = job.run
    return [
        [job.state, run.step, run.epoch, run.progress, run.final_metrics, run.attempt, run.generation],
        [*MetricPoint.objects.filter(job=job).order_by("name", "step").values_list("name", "step", "epoch", "value")],
        [*Rank.objects.filter(job=job).order_by("member_id").values_list("member_id", "host", "slot", "pid", "state")],
        [*Generation.objects.filter(job=job).order_by("number").values_list("number", "state", "world_size")],
        [*AllocationPoint.objects.filter(job=job).order_by("id").values_list("slots", "generation", "attempt")],
        [*Journal.objects.filter(job=job).order_by("name").values_list("name", "number")],
        [*SlotClaim.objects.open().filter(job=job).order_by("slot").values_list("slot")],
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(8))
def test_any_order_and_doubling_in_batches_store_the_rows_of_one_by_one(
    cluster: Cluster, submit: Submit, mailbox: Mailbox, seed: int
) -> None:
    job = submit()
    cluster.cycle()
    chance = random.Random(seed)
    reports = story(cluster, job, seed)

    def finish() -> None:
        """Have hosts send again what was not acknowledged, and carry out what is wanted then."""
        again = copy.deepcopy(cluster)
        again.report()
        again.settle()

    with transaction.atomic():
        for values in reports:
            ingest_report(values)
        finish()
        expected = rows_of(job)
        assert all(expected[:4]), "the story has steps, ranks and a generation"
        transaction.set_rollback(True)
    messages = [message(REPORT, values) for values in reports for _ in range(chance.randint(1, 3))]
    chance.shuffle(messages)
    steady = SteadyHosts()
    while messages:
        count = chance.randint(1, 8)
        take(*messages[:count], steady=steady)
        del messages[:count]
    finish()
    assert rows_of(job) == expected


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


def steps_of_all(cluster: Cluster, jobs: list[Job], step: int) -> list[bytes]:
    for job in jobs:
        cluster.log_step(job, step, loss=1 / step, accuracy=0.5)
    return [message(REPORT, host.report()) for host in cluster.hosts.values()]


@pytest.mark.django_db
def test_many_hosts_take_as_many_queries_as_two(submit: Submit, mailbox: Mailbox) -> None:
    counts = []
    cluster = Cluster.of(*(f"gpu-host-{number}" for number in range(8)), slots=1)
    jobs = [submit(max_slots=1) for _ in range(8)]
    cluster.turn(2)
    for job in jobs:
        cluster.train(job)
    for step, (few, steady) in enumerate([(8, SteadyHosts()), (2, SteadyHosts()), (8, SteadyHosts())], start=2):
        messages = steps_of_all(cluster, jobs, step)[:few]
        with CaptureQueriesContext(connection) as queries:
            take(*messages, steady=steady)
        # The delay of the control plane is read once a second, by whatever comes then.
        counts.append(sum("workers_intake" not in query["sql"] for query in queries))
        cluster.pull()
    # A query for each host would be six more. Some are made at most once a second, in whichever turn comes then.
    assert counts[2] < counts[1] + 6


@pytest.mark.django_db
def test_a_training_whose_steps_cannot_be_stored_keeps_back_no_other(
    cluster: Cluster, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, other = submit(max_slots=4), submit(max_slots=4)
    cluster.turn(2)
    for job in (broken, other):
        cluster.train(job)
    messages = steps_of_all(cluster, [broken, other], 2)
    of_step = metrics._outcome

    def refuse(job: Job, records: Any) -> Any:
        if job.pk == broken.pk:
            raise ValueError("of a test")
        return of_step(job, records)

    monkeypatch.setattr(metrics, "_outcome", refuse)
    take(*messages)
    assert MetricPoint.objects.filter(job=other, step=2).exists()
    assert not MetricPoint.objects.filter(job=broken, step=2).exists()
    monkeypatch.setattr(metrics, "_outcome", of_step)
    take(*messages)
    assert MetricPoint.objects.filter(job=broken, step=2).exists()


@pytest.mark.django_db
def test_entries_are_acknowledged_without_the_whole_desired_state(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=1)
    cluster.turn(2)
    cluster.train(job)
    name = Job.objects.get(pk=job.pk).run.lead_host
    with broker() as url, override_settings(TIDEPOOL_BROKER_URL=url):
        messages = steps_of_all(cluster, [job], 2)
        connect().delete(f"host.{name}")
        take(*messages)
        [sent] = connect().lrange(f"host.{name}", 0, -1)
    body = base64.b64decode(json.loads(sent)["body"])
    sync = from_json(Sync, json.loads(body)[0][0])
    assert (sync.host, sync.revision, sync.jobs, sync.hosts) == (name, 0, [], len(cluster.hosts))
    assert sync.acknowledged[f"{job.pk}.1.metrics"] == Journal.objects.get(name=f"{job.pk}.1.metrics").number


@pytest.mark.parametrize(("took", "rest"), [(0.01, 0.03), (0.05, 0.15), (0.1, 0.2), (0.25, 0.05), (0.5, 0.0)])
def test_reports_that_come_soon_share_a_turn(took: float, rest: float) -> None:
    assert rest_seconds(took) == pytest.approx(rest)
