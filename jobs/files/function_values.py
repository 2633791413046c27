"""Digest of the value that a function left: the site keeps it, because files may be changed later."""

import json
import os
import re

from tidepool.function_payload import VALUE_FACTS
from tidepool.safe_open import open_regular

from jobs.files.job_folder import job_folder
from jobs.models import Job

__all__ = ["written_digest"]

_MOST_BYTES = 64 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


def written_digest(job: Job) -> str:
    """Return the sha256 that rank 0 wrote beside the value of the newest attempt; "": it left no value."""
    descriptor = open_regular(job_folder(job).attempt(job.run.attempt) / VALUE_FACTS)
    if descriptor is None:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        text = stream.read(_MOST_BYTES)
    try:
        digest = json.loads(text)["sha256"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else ""
