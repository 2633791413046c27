"""A secret of a user, for tests and pictures."""

from django.contrib.auth.models import User

from jobs.actions.secrets import SecretSpec, add_secret
from jobs.models import Job, Secret, SecretUse

__all__ = ["CANARY", "own_secret"]

CANARY = "hf_canary_5up3r-53cr3t"


def own_secret(owner: User, name: str = "HF_TOKEN") -> Secret:
    """Return the user's secret of this name; the first call adds it, to trainings that are over as well."""
    row = Secret.objects.filter(owner=owner, name=name).first()
    if row is None:
        row = add_secret(SecretSpec(name=name, value=CANARY), owner)
        jobs = Job.objects.filter(owner=owner, finished_at__isnull=False)
        jobs.update(secrets=name)
        SecretUse.objects.bulk_create(SecretUse(job=job, secret=row) for job in jobs)
    return row
