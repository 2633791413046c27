"""A job as one line of a CSV file."""

from __future__ import annotations

import json
from collections.abc import Sequence

from core.csv_text import Cell
from core.time import iso
from jobs.models import Job

__all__ = ["COLUMNS", "job_row"]

COLUMNS = (
    "id", "name", "owner", "state", "reason", "model", "model version", "dataset", "dataset version", "instance group",
    "min GPUs", "max GPUs", "GPUs now", "priority", "step", "epoch", "progress", "final metrics", "parameters", "error",
    "submitted (UTC)", "started (UTC)", "ended (UTC)",
)  # fmt: skip


def job_row(job: Job) -> Sequence[Cell]:
    return (
        job.pk,
        job.name,
        job.owner.get_username(),
        job.state,
        job.reason_text,
        job.model.model.name,
        job.model.number,
        job.dataset.dataset.name,
        job.dataset.number,
        job.instance_group.name,
        job.min_slots,
        job.max_slots,
        job.slots,
        job.priority,
        job.step,
        job.epoch,
        job.progress,
        json.dumps(job.final_metrics, ensure_ascii=False),
        json.dumps(job.parameters, ensure_ascii=False),
        str(job.error.get("message", "")),
        iso(job.submitted_at),
        iso(job.started_at),
        iso(job.finished_at),
    )
