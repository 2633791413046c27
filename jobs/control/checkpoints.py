"""Checkpoint rows, from what the coordinator reports. Called by `jobs.control.journals` only."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from tidepool.protocol import KEPT_CHECKPOINTS, CheckpointFailed, CheckpointPublished, Restored

from jobs.control.transition import Why, change, record
from jobs.files.folder import job_folder
from jobs.messages import message
from jobs.models import Checkpoint, Job, MetricPoint
from jobs.states import Reason

__all__ = ["fail", "restore", "store"]


def store(job: Job, written: CheckpointPublished) -> None:
    """Store a published checkpoint; older ones make room."""
    Checkpoint.objects.get_or_create(
        job=job,
        attempt=job.run.attempt,
        step=written.step,
        defaults={
            "epoch": written.epoch,
            "path": job_folder(job).relative(job.run.attempt, written.path),
            "size_bytes": written.size_bytes,
            "sha256": written.sha256,
            "created_at": datetime.fromtimestamp(written.at, UTC),
        },
    )
    _make_room(job)


def fail(job: Job, failed: CheckpointFailed) -> None:
    params = message("checkpoint_failed", step=failed.step, error=failed.error)
    record(job, Why(Reason.CHECKPOINT_FAILED, params, "executor"))


def restore(job: Job, restored: Restored) -> None:
    """Store from which checkpoint the attempt continues, and where training stands now."""
    folder = job_folder(job)
    for each in restored.unusable:
        path = folder.relative(job.run.attempt, each.path)
        Checkpoint.objects.filter(job=job, path=path).update(problem=each.why[:500])
    MetricPoint.objects.filter(job=job, step__gt=restored.step).delete()
    change(job, step=restored.step, epoch=restored.epoch)
    unusable = [each.why for each in restored.unusable]
    params = message("restored", step=restored.step, from_nothing=not restored.used, unusable=unusable)
    record(job, Why(Reason.RESTORED, params, "executor"))


def _make_room(job: Job) -> None:
    """The training removes its own oldest ones; those of former attempts are removed here.

    Nobody can continue from one whose files are gone.
    """
    folder, kept = job_folder(job).path, job.checkpoints_kept or KEPT_CHECKPOINTS
    own = Checkpoint.objects.filter(job=job).order_by("-step", "-attempt")
    for place, checkpoint in enumerate(own):
        path: Path = folder / checkpoint.path
        if place >= kept and checkpoint.attempt < job.run.attempt:
            shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            checkpoint.delete()
