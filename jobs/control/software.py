"""Storage of the software that the hosts of an attempt report."""

import hashlib
import json

from tidepool.protocol import EnvironmentUsed

from jobs.models import AttemptSoftware, Environment, Job

__all__ = ["store_software"]


def store_software(job: Job, used: EnvironmentUsed, host: str) -> None:
    """Store the software of the job's present attempt on a host; the first report of an attempt counts."""
    parts = {"python": used.python, "platform": used.platform, "packages": used.packages, "origins": used.origins}
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    environment, _ = Environment.objects.get_or_create(digest=digest, defaults=parts)
    AttemptSoftware.objects.get_or_create(
        job=job,
        attempt=job.run.attempt,
        host=host,
        defaults={"environment": environment, "cuda": used.cuda, "nccl": used.nccl, "driver": used.driver},
    )
