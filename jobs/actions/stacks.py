"""The request for the stacks of a job's processes, which the shims of its hosts then take."""

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from core.errors import Conflict
from jobs.control.lifecycle import hosts_of, open_claims, raise_revisions
from jobs.control.transition import change, lock_job
from jobs.models import Job
from jobs.states import TERMINAL

__all__ = ["request_stacks"]

#: Time for which a further request gets the answer of the one before.
_SHARED = timedelta(seconds=2)


@transaction.atomic
def request_stacks(job_id: int, actor: str) -> Job:
    """Have all processes of the job write their stacks; `insights.stacks` reads the answers.

    Whoever asks within two seconds after another one shares the answer. Raises Conflict for a job without processes.
    """
    job, now = lock_job(job_id), timezone.now()
    if job.state in TERMINAL:
        raise Conflict("The training is over: it has no processes whose stacks could be taken. Its logs remain.")
    claims = open_claims(job)
    if not claims:
        raise Conflict("The training holds no GPU: it has no processes whose stacks could be taken.")
    if job.run.stacks_at is not None and now - job.run.stacks_at < _SHARED:
        return job
    change(job, stacks_number=job.run.stacks_number + 1, stacks_at=now, stacks_by=actor)
    raise_revisions(hosts_of(claims))
    return job
