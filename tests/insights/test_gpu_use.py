"""The use of GPUs over time, of a training and of the cluster, with what happened meanwhile."""

from datetime import timedelta

import plotly.graph_objects as go
import pytest
from django.test import Client
from django.utils import timezone

from core.models import AuditEntry
from insights.gpu_use import MAX_CELLS, MAX_LINES, cluster_use, job_use, use_figure
from jobs.control.gpu_spans import SPAN, Span, store, to_json
from jobs.gpu_time import to_ms
from jobs.messages import message
from jobs.models import AllocationPoint, Job, SlotClaim
from jobs.states import JobState, Reason
from tests.factories import HostFactory, JobEventFactory, JobFactory, SlotClaimFactory, SlotFactory
from workers.models import CapacityPoint, GpuReading, Host

NOW = timezone.now().replace(microsecond=0)
MINUTE_AGO = NOW - timedelta(minutes=1)


@pytest.fixture
def job(db: None) -> Job:
    return JobFactory(state=JobState.RUNNING, started_at=MINUTE_AGO)


def held(job: Job, host: str, index: int, busy: float | None = 80.0, seconds: int = 60) -> SlotClaim:
    """A GPU that the job has held for so long, with its spans."""
    host_row = Host.objects.filter(name=host).first() or HostFactory(name=host, virtual=False)
    slot = SlotFactory(host=host_row, index=index, virtual=False)
    start = to_ms(NOW) - seconds * 1000
    claim = SlotClaimFactory(slot=slot, job=job, claimed_at=NOW - timedelta(seconds=seconds))
    store(host_row.pk, [Span(claim.pk, at, at + SPAN, busy, 2**30) for at in range(start, to_ms(NOW) - SPAN, SPAN)])
    newest = Span(claim.pk, to_ms(NOW) - SPAN, to_ms(NOW), busy, 2**31)
    GpuReading.objects.create(slot=slot, at=NOW, memory_total_bytes=2**32, open_span=to_json(newest))
    return claim


def test_a_training_sees_its_own_gpus_and_none_of_another(job: Job) -> None:
    held(job, "a", 0)
    held(JobFactory(), "a", 1, busy=3.0)
    use = job_use(job, NOW)

    [line] = use.lines
    assert (line.name, line.memory_total_bytes, use.span_seconds) == ("a:0", 2**32, 10)
    assert [(span.busy_percent, span.memory_bytes) for span in line.spans] == [(80.0, 2**30)] * 5 + [(80.0, 2**31)]
    assert use.start == MINUTE_AGO
    assert use.end == NOW


def test_resizes_and_losses_are_marked(job: Job) -> None:
    AllocationPoint.objects.create(job=job, attempt=1, generation=1, at=MINUTE_AGO, slots=2)
    lost = message("host_lost", host="a")
    JobEventFactory(job=job, reason=Reason.HOST_LOST, detail=lost, at=NOW, actor="executor")
    held(job, "a", 0)
    host = HostFactory(name="b")
    CapacityPoint.objects.create(host=host, at=NOW - timedelta(hours=2), slots=4)
    CapacityPoint.objects.create(host=host, at=MINUTE_AGO, slots=0)
    entry = {"kind": "host", "key": str(host.pk), "name": "b", "actor": "ada"}
    AuditEntry.objects.create(at=MINUTE_AGO, verb="drained", **entry)
    AuditEntry.objects.create(at=MINUTE_AGO, verb="admitted", **entry)

    assert [mark.text for mark in job_use(job, NOW).marks] == ["2 GPUs.", "The host a no longer reports."]
    assert [mark.text for mark in cluster_use(NOW, 15).marks] == ["b offers 0 GPUs, 4 before.", "b was drained."]


def test_many_gpus_are_shown_by_host(job: Job) -> None:
    for index in range(MAX_LINES + 1):
        held(job, f"host-{index // 8}", index % 8, busy=float(index % 8))
    use = cluster_use(NOW, 5)

    assert [line.name for line in use.lines] == [f"host-{number}" for number in range(9)]
    assert {round(span.busy_percent or 0.0, 1) for span in use.lines[0].spans} == {3.5}


@pytest.mark.parametrize(("minutes", "seconds"), [(5, 10), (1440, 30)])
def test_a_figure_has_few_enough_bars_and_plotly_takes_it(job: Job, minutes: int, seconds: int) -> None:
    held(job, "a", 0, seconds=minutes * 60)
    use = cluster_use(NOW, minutes)
    figure = use_figure(use)

    assert use.span_seconds == seconds
    assert sum(len(trace.get("base", [])) for trace in figure["data"]) <= 2 * MAX_CELLS
    assert go.Figure(figure)
    busy = figure["data"][0]
    assert busy["customdata"][0] == [0.8, 80.0, 2**30]
    assert busy["y"][0] == "a:0"


def test_a_gpu_that_reports_no_utilization_has_its_memory(job: Job) -> None:
    held(job, "a", 0, busy=None)
    busy, memory, _ = use_figure(job_use(job, NOW))["data"]

    assert busy.get("base", []) == []
    assert memory["customdata"][0] == [0.25, None, 2**30]


def test_rest_gives_the_spans_in_time(job: Job, client: Client) -> None:
    held(job, "a", 0)
    client.force_login(job.owner)
    answer = client.get(f"/api/v1/jobs/{job.pk}/gpus/").json()

    first = answer["lines"][0]["spans"][0]
    assert (first["busy_percent"], first["memory_bytes"]) == (80.0, 2**30)
    assert first["start"].startswith(MINUTE_AGO.strftime("%Y-%m-%dT%H:%M:%S"))
    assert [line["name"] for line in client.get("/api/v1/cluster/gpus/?minutes=5").json()["lines"]] == ["a:0"]
