"""Brings what the database knows of jobs to MLflow, outside the path of every training.

The rows are the outbox: a `TrackedRun` notes how much of them has arrived, after it has. MLflow away for a day costs
nothing; what was sent and not noted is sent again as it was, and MLflow keeps one of two equal values.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from django.db.models import Max

from jobs.models import AllocationPoint, Job, MetricPoint, SlotClaim
from jobs.states import JobState
from tracking.models import TrackedRun, UnsentCall
from tracking.new_runs import metric_key
from tracking.registry_mirror import follow_registry, make_versions
from tracking.runs import ensure_run
from tracking.sharing import keep_readers
from tracking.study_mirror import StudyMirror
from tracking.upstream import MlflowServer, Refused
from workers.models import GpuReading

__all__ = ["Mirror", "metrics_of", "status_of"]

logger = logging.getLogger(__name__)

#: Metrics per call, by MLflow's limit, and calls per turn, so that a long history keeps no other job waiting.
_BATCH, _BATCHES = 1000, 10
_RUNS_PER_TURN = 20
_KEPT_PER_TURN = 200
_READINGS_EVERY = timedelta(seconds=10)
_REGISTRY_EVERY = timedelta(seconds=15)
#: Reports of a host that was away may come after a job's end.
_LATE = timedelta(minutes=1)
#: Time that a plain script's own MLflow client has to send metrics before the mirror sends what the script printed.
_OWN_FIRST = timedelta(seconds=15)
_MISSING = "RESOURCE_DOES_NOT_EXIST"
_RELATED = ("owner", "run", "model__model", "dataset__dataset", "instance_group")
_STATUS = {
    JobState.PENDING: "SCHEDULED",
    JobState.SUSPENDED: "SCHEDULED",
    JobState.SUCCEEDED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "KILLED",
}
_MEASURES = {
    "utilisation_percent": "gpu_{}_utilization_percentage",
    "memory_used_bytes": "gpu_{}_memory_usage_bytes",
    "power_watts": "gpu_{}_power_usage_watts",
}

Metric = dict[str, Any]


def status_of(state: str) -> str:
    """MLflow's word for a job's state."""
    return _STATUS.get(JobState(state), "RUNNING")


def metrics_of(points: Iterable[MetricPoint], sent_steps: dict[str, int], own: Collection[str] = ()) -> list[Metric]:
    """Return the points as MLflow takes them, but for steps that were sent before a restart made them again.

    sent_steps: name -> highest step that was sent; brought up to date. own: names that the script logs to MLflow
    itself: it would be there twice.
    """
    metrics = []
    for point in points:
        if metric_key(point.name) in own:
            continue
        if point.step > sent_steps.get(point.name, -1):
            sent_steps[point.name] = point.step
            metrics.append(_metric(point.name, point.value, point.at, point.step))
    return metrics


def _versions_of(job: Job) -> dict[str, str]:
    """Return the versions that the newest attempt runs with on its first host, by what they are of."""
    used = job.software.select_related("environment").order_by("-attempt", "host").first()
    if used is None:
        return {}
    found = {
        "python": used.environment.python,
        "torch": used.environment.packages.get("torch", ""),
        "cuda": used.cuda,
        "nccl": used.nccl,
        "driver": used.driver,
        "environment": used.environment.digest,
    }
    return {name: version for name, version in found.items() if version}


def _metric(name: str, value: float | None, at: datetime, step: int) -> Metric:
    shown = "NaN" if value is None or not math.isfinite(value) else value
    return {"key": metric_key(name), "value": shown, "timestamp": int(at.timestamp() * 1000), "step": step}


class Mirror:
    """Call `turn` every other second. Raises Away while MLflow does not answer: nothing is lost by that."""

    def __init__(self, server: MlflowServer) -> None:
        self._server = server
        self._studies = StudyMirror(server)
        #: Jobs up to this number, and from this one on, have been looked at for runs that they lack.
        self._newest: int | None = None
        self._oldest = 0
        self._read_at: datetime | None = None
        self._registry_at: datetime | None = None
        #: Slot -> when its newest reading was taken that has been sent.
        self._readings: dict[int, datetime] = {}
        self._between_calls: Callable[[], None] = lambda: None

    def turn(self, now: datetime, between_calls: Callable[[], None] = lambda: None) -> bool:
        """Run one turn. Returns whether there may be more to do at once.

        `between_calls` is called often where nothing is half done, and may raise to break the turn off.
        """
        self._between_calls = between_calls
        has_more = self._make_runs() or self._send_kept()
        has_more |= self._studies.turn(now, between_calls)
        self._keep_registry(now)
        has_readings = self._read_at is None or now - self._read_at >= _READINGS_EVERY
        if has_readings:
            self._read_at = now
        for run in (
            TrackedRun.objects.filter(is_done=False)
            .select_related("job__owner", "job__run", "job__model")
            .order_by("pk")
        ):
            between_calls()
            try:
                has_more |= self._send(run, now, has_readings=has_readings)
            except Refused as error:
                self._give_up(run, error)
        return has_more

    def _keep_registry(self, now: datetime) -> None:
        make_versions(self._server)
        if self._registry_at is not None and now - self._registry_at < _REGISTRY_EVERY:
            return
        try:
            follow_registry(self._server)
            keep_readers(self._server)
        except Refused as error:
            logger.warning("MLflow did not return its model versions, or rejected read permissions: %s", error)
        self._registry_at = now

    def _make_runs(self) -> bool:
        """Make missing runs: those of the newest jobs first, then of jobs that were there before MLflow was."""
        if self._newest is None:
            self._newest = Job.objects.aggregate(newest=Max("pk"))["newest"] or 0
            self._oldest = self._newest + 1
        jobs = Job.objects.select_related(*_RELATED)
        new = list(jobs.filter(pk__gt=self._newest).order_by("pk")[:_RUNS_PER_TURN])
        old = list(jobs.filter(pk__lt=self._oldest, tracked_run=None).order_by("-pk")[:_RUNS_PER_TURN])
        for job in [*new, *old]:
            self._between_calls()
            try:
                ensure_run(self._server, job)
            except Refused as error:
                logger.warning("job=%s has no run in MLflow: %s", job.pk, error)
            self._newest, self._oldest = max(self._newest, job.pk), min(self._oldest, job.pk)
        if not old:
            self._oldest = 0
        return len(new) == _RUNS_PER_TURN or bool(old)

    def _send_kept(self) -> bool:
        """Send what scripts logged while MLflow was away."""
        kept = list(UnsentCall.objects.select_related("job__owner").order_by("pk")[:_KEPT_PER_TURN])
        for call in kept:
            self._between_calls()
            try:
                self._server.post(call.job.owner.get_username(), call.call, call.values)
            except Refused as error:
                logger.warning("job=%s logged values were rejected: %s", call.job_id, error)
            call.delete()
        return len(kept) == _KEPT_PER_TURN

    def _send(self, run: TrackedRun, now: datetime, *, has_readings: bool) -> bool:
        has_more = self._send_points(run, now)
        self._send_allocation(run)
        if has_readings and run.job.finished_at is None:
            self._log(run, self._new_readings(run.job))
        if not has_more:
            self._send_status(run)
            if run.job.finished_at is not None and run.job.finished_at < now - _LATE:
                self._note(run, is_done=True)
        return has_more

    def _send_points(self, run: TrackedRun, now: datetime) -> bool:
        is_to_wait = not run.job.elastic and run.job.finished_at is None
        for _ in range(_BATCHES):
            rows = MetricPoint.objects.filter(job=run.job_id, pk__gt=run.sent_point).order_by("pk")
            points = list(takewhile(lambda point: not is_to_wait or point.at <= now - _OWN_FIRST, rows[:_BATCH]))
            if not points:
                return False
            steps = dict(run.sent_steps)
            self._log(run, metrics_of(points, steps, run.own_metrics))
            self._note(run, sent_point=points[-1].pk, sent_steps=steps)
            if len(points) < _BATCH:
                return False
        return True

    def _send_allocation(self, run: TrackedRun) -> None:
        """Send world sizes and generations, each with the step that it began with."""
        rows = AllocationPoint.objects.filter(job=run.job_id, pk__gt=run.sent_allocation).order_by("pk")
        points = list(rows[: _BATCH // 2])
        if not points:
            return
        metrics = []
        for point in points:
            reached = MetricPoint.objects.filter(job=run.job_id, at__lte=point.at).aggregate(step=Max("step"))["step"]
            for name, value in (("world_size", point.slots), ("generation", point.generation)):
                metrics.append(_metric(f"cluster/{name}", value, point.at, reached or 0))
        self._log(run, metrics)
        self._note(run, sent_allocation=points[-1].pk)

    def _new_readings(self, job: Job) -> list[Metric]:
        """Return new readings of the job's GPUs."""
        slots = SlotClaim.objects.open().filter(job=job).values("slot")
        metrics = []
        for reading in GpuReading.objects.filter(slot__in=slots).select_related("slot__host"):
            if self._readings.get(reading.slot_id) == reading.at:
                continue
            self._readings[reading.slot_id] = reading.at
            step = int((reading.at - job.submitted_at).total_seconds())
            place = f"{reading.slot.host.name}_{reading.slot.index}"
            for column, name in _MEASURES.items():
                if (value := getattr(reading, column)) is not None:
                    metrics.append(_metric(f"system/{name.format(place)}", value, reading.at, max(0, step)))
        return metrics

    def _send_status(self, run: TrackedRun) -> None:
        job, status = run.job, status_of(run.job.state)
        if status == run.sent_status:
            return
        values: dict[str, Any] = {"run_id": run.run_id, "status": status}
        if job.finished_at is not None:
            values["end_time"] = int(job.finished_at.timestamp() * 1000)
        self._server.post(job.owner.get_username(), "runs/update", values)
        tags = {"state": job.state, "attempt": str(job.run.attempt), **_versions_of(job)}
        named = [{"key": f"tidepool.{name}", "value": value} for name, value in tags.items()]
        self._server.post(job.owner.get_username(), "runs/log-batch", {"run_id": run.run_id, "tags": named})
        self._note(run, sent_status=status)

    def _log(self, run: TrackedRun, metrics: Sequence[Metric]) -> None:
        if metrics:
            user = run.job.owner.get_username()
            self._server.post(user, "runs/log-batch", {"run_id": run.run_id, "metrics": list(metrics)})

    @staticmethod
    def _note(run: TrackedRun, **columns: Any) -> None:
        """Note that it has arrived."""
        for name, value in columns.items():
            setattr(run, name, value)
        TrackedRun.objects.filter(pk=run.pk).update(**columns)

    def _give_up(self, run: TrackedRun, error: Refused) -> None:
        """Make a run that MLflow has lost again, from the beginning; leave one that its owner has deleted there."""
        if error.code != _MISSING:
            logger.warning("job=%s run=%s is not mirrored any more: %s", run.job_id, run.run_id, error)
            self._note(run, is_done=True)
            return
        logger.warning("job=%s MLflow has lost the run %s: it is made again", run.job_id, run.run_id)
        TrackedRun.objects.filter(pk=run.pk).delete()
        self._oldest = max(self._oldest, run.job_id + 1)
