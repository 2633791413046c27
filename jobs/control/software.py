"""Storage of the software that the hosts of an attempt report."""

import hashlib
import json
from typing import Final

from tidepool.protocol import EnvironmentUsed

from jobs.control.transition import Why, record
from jobs.messages import message
from jobs.models import AttemptSoftware, Environment, Job
from jobs.queries.provenance import environment_differences
from jobs.states import Reason

__all__ = ["store_software"]


#: Highest number of differences between hosts that an event names.
_MOST_NAMED: Final = 10


def store_software(job: Job, used: EnvironmentUsed, host: str) -> None:
    """Store the software of the job's present attempt on a host; the first report of an attempt counts.

    An event tells what differs from the attempt's first host, because each builds environments by itself.
    """
    parts = {"python": used.python, "platform": used.platform, "packages": used.packages, "origins": used.origins}
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    environment, _ = Environment.objects.get_or_create(digest=digest, defaults=parts)
    first = AttemptSoftware.objects.filter(job=job, attempt=job.run.attempt).select_related("environment").first()
    _, is_new = AttemptSoftware.objects.get_or_create(
        job=job,
        attempt=job.run.attempt,
        host=host,
        defaults={"environment": environment, "cuda": used.cuda, "nccl": used.nccl, "driver": used.driver},
    )
    if is_new and first is not None and (found := environment_differences(first.environment, environment)):
        left = len(found) - _MOST_NAMED
        changes = [*found[:_MOST_NAMED], *([f"{left} more"] if left > 0 else [])]
        told = message("environment_differs", host=host, other=first.host, changes=changes)
        record(job, Why(Reason.ENVIRONMENT_CHANGED, told, "executor"))
