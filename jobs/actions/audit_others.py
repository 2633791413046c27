"""Audit entries for what administrators do to other people's trainings, besides the training's history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.audit.entries import audit
from jobs.models import Job

__all__ = ["record_for_another"]


def record_for_another(
    job: Job, actor: str, verb: str, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None
) -> None:
    """Write an audit entry unless `actor`, a user's name, is the job's owner."""
    if actor != job.owner.get_username():
        audit(actor, verb, kind="job", key=job.pk, name=job.name, before=before, after=after)
