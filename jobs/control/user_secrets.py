"""Secrets of a job's owner and group, encrypted for one host. They are opened here alone, and only for a start."""

from typing import NamedTuple

from tidepool.protocol import GivenSecret

from core.sealing import UnreadableError, unseal
from jobs.models import Job, Secret
from workers.executor.sealed_secrets import sealed_secrets
from workers.host_keys import host_key
from workers.models import Host

__all__ = ["SealedForHost", "user_secrets_for"]


class SealedForHost(NamedTuple):
    sealed: str = ""
    #: Sentence on why the secrets cannot be given to the host, without its end; "": they can.
    problem: str = ""


def user_secrets_for(job: Job, host: str) -> SealedForHost:
    """Return the secrets of the job's current attempt, as only this host can open them."""
    if not job.secrets:
        return SealedForHost()
    number = Host.objects.values_list("key_number", flat=True).get(name=host)
    if not number:
        return SealedForHost(
            problem=f"{host} has no key of its own to encrypt them with; an administrator lets it join with a token"
        )
    try:
        given = [
            GivenSecret(row.name, unseal(row.sealed, row.row_name), row.is_file)
            for row in Secret.objects.filter(uses__job=job).order_by("name")
        ]
    except UnreadableError as error:
        return SealedForHost(problem=f"one of {job.secrets} cannot be read, since {error}")
    return SealedForHost(sealed_secrets(host_key(host, number), host, job.pk, job.run.attempt, given))
