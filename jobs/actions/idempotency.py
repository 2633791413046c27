"""Idempotent submission: a client that lost the response sends the same key again, and gets the same job.

The key is stored in the transaction of the new job, so that neither exists without the other.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError

from core.errors import Conflict, field_error
from jobs.models import Job, SubmissionKey

__all__ = ["HEADER", "once"]

HEADER = "Idempotency-Key"
_KEY = re.compile(r"[\x21-\x7e]{8,128}")

#: Creates a job, and calls the given function in the same transaction.
Make = Callable[[Callable[[Job], object]], Job]


def once(owner: User, key: str | None, asked: Any, make: Make) -> tuple[Job, bool]:
    """Return the job that `make` creates, or the job of an earlier request with this key; and whether it is new.

    asked: the request, as JSON. Raises UserError for an invalid key, and for a key that was sent with another request.
    """
    if key is None:
        return make(lambda job: None), True
    if not _KEY.fullmatch(key):
        raise field_error(HEADER, f"{HEADER} has 8 to 128 visible ASCII characters: send a random one, such as a UUID.")
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    if earlier := _earlier(owner, key, digest):
        return earlier, False
    try:
        return make(lambda job: SubmissionKey.objects.create(owner=owner, key=key, digest=digest, job=job)), True
    except IntegrityError:
        # A concurrent identical request was stored first.
        if earlier := _earlier(owner, key, digest):
            return earlier, False
        raise


def _earlier(owner: User, key: str, digest: str) -> Job | None:
    row = SubmissionKey.objects.filter(owner=owner, key=key).first()
    if row is None:
        return None
    if row.digest != digest:
        raise Conflict(f"This {HEADER} was sent with another request: use a new one for each request.", code="key_used")
    return Job.objects.select_related("owner", "model__model", "dataset__dataset", "instance_group", "run").get(
        pk=row.job_id
    )
