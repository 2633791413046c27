"""What administrators do to other people's trainings is written down in the audit, besides the training's history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.audit.entries import audit
from jobs.models import Job

__all__ = ["record_for_another"]


def record_for_another(
    job: Job, actor: str, verb: str, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None
) -> None:
    """Nothing of what owners do themselves. `actor` is a user's name: parts of Tidepool have their own actions."""
    if actor != job.owner.get_username():
        audit(actor, verb, kind="job", key=job.pk, name=job.name, before=before, after=after)
