"""Marking of checkpoints to be kept beyond the number that a training keeps on its own."""

from django.db import transaction

from core.audit.entries import Audited, audit_all
from core.errors import Conflict
from jobs.control.checkpoints import keep, release
from jobs.control.transition import lock_job
from jobs.models import Checkpoint, TrainedVersion

__all__ = ["MOST_KEPT", "change_kept"]

MOST_KEPT = 50


@transaction.atomic
def change_kept(checkpoint: Checkpoint, kept: bool, actor: str) -> Checkpoint | None:
    """Keep the checkpoint for good, or subject it to removal again. Returns None if it was removed at once.

    Idempotent.
    """
    job = lock_job(checkpoint.job_id)
    row = job.checkpoints.filter(pk=checkpoint.pk).first()
    if row is None:
        raise Conflict("This checkpoint no longer exists: a newer one has replaced it.")
    if row.kept == kept:
        return row
    if kept:
        _refuse(row)
        keep(job, row)
    else:
        _refuse_weights_of_a_version(row)
        release(job, row)
    if actor != job.owner.get_username():
        name = f"{job.name}, step {row.step}"
        audit_all(actor, "changed", "checkpoint", [Audited(row.pk, name, {"kept": not kept}, {"kept": kept})])
    return job.checkpoints.filter(pk=row.pk).first()


def _refuse_weights_of_a_version(checkpoint: Checkpoint) -> None:
    made = TrainedVersion.objects.filter(checkpoint=checkpoint).select_related("version__model").first()
    if made is not None:
        raise Conflict(f"The checkpoint stays: {made.version} uses its weights.")


def _refuse(checkpoint: Checkpoint) -> None:
    if checkpoint.problem:
        raise Conflict(f"The checkpoint cannot be used ({checkpoint.problem}): keep another one.")
    if Checkpoint.objects.filter(job=checkpoint.job_id, kept=True).count() >= MOST_KEPT:
        raise Conflict(f"{MOST_KEPT} checkpoints of this training are already kept: stop keeping one of them first.")
