"""Records of the executor on disk, from which the next executor continues before the control plane's first message."""

import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidepool.protocol import DesiredJob, ProtocolError, from_json, to_json

__all__ = ["JobKey", "Records", "load_json", "load_records", "save_json", "save_records"]

logger = logging.getLogger(__name__)

#: (id of the job, attempt)
JobKey = tuple[int, int]


@dataclass
class Records:
    #: Revision of the newest accepted desired state.
    revision: int = 0
    #: Newest desired state of each job that may have processes here, including jobs that are being stopped.
    desired_jobs: dict[JobKey, DesiredJob] = field(default_factory=dict)


def load_records(path: Path) -> Records:
    """Load the records. Unreadable ones (of another version) are set aside: the control plane sends all again."""
    values = load_json(path)
    try:
        desired_jobs = [from_json(DesiredJob, desired) for desired in values.get("desired_jobs", [])]
        return Records(values.get("revision", 0), {(desired.job, desired.attempt): desired for desired in desired_jobs})
    except ProtocolError as error:
        _set_aside(path, error)
        return Records()


def load_json(path: Path) -> dict[str, Any]:
    """Return the file's content; empty if the file does not exist or cannot be parsed."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        _set_aside(path, error)
        return {}
    return values


def save_records(path: Path, records: Records) -> None:
    save_json(
        path,
        {"revision": records.revision, "desired_jobs": [to_json(desired) for desired in records.desired_jobs.values()]},
    )


def save_json(path: Path, values: Any) -> None:
    """Write the file atomically, even if the machine crashes, for this user alone: desired states contain secrets."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(values, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)


def _set_aside(path: Path, error: ValueError) -> None:
    aside = path.with_name(f"{path.name}.unreadable")
    path.rename(aside)
    logger.error("%s cannot be parsed and was set aside as %s: %s", path, aside, error)
