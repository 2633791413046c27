"""Records of the executor on disk: the next one continues from them before it hears from the control plane."""

import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidepool.protocol import DesiredJob, ProtocolError, from_json, to_json

__all__ = ["JobKey", "Records", "load_json", "load_records", "save_json", "save_records"]

logger = logging.getLogger(__name__)

#: (job, attempt)
JobKey = tuple[int, int]


@dataclass
class Records:
    #: Of the newest desired state that was accepted.
    revision: int = 0
    #: The newest desired state for each job that may have processes here, also those that are being stopped.
    desired_jobs: dict[JobKey, DesiredJob] = field(default_factory=dict)


def load_records(path: Path) -> Records:
    """Records that cannot be read (of another version) are put aside: the control plane sends everything again."""
    values = load_json(path)
    try:
        desired_jobs = [from_json(DesiredJob, desired) for desired in values.get("desired_jobs", [])]
        return Records(values.get("revision", 0), {(desired.job, desired.attempt): desired for desired in desired_jobs})
    except ProtocolError as error:
        _put_aside(path, error)
        return Records()


def load_json(path: Path) -> dict[str, Any]:
    """Empty where there is no such file, or none that can be read."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        _put_aside(path, error)
        return {}
    return values


def save_records(path: Path, records: Records) -> None:
    save_json(
        path,
        {"revision": records.revision, "desired_jobs": [to_json(desired) for desired in records.desired_jobs.values()]},
    )


def save_json(path: Path, values: Any) -> None:
    """All or nothing, also when the machine stops in the middle."""
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("w") as file:
        json.dump(values, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)


def _put_aside(path: Path, error: ValueError) -> None:
    aside = path.with_name(f"{path.name}.unreadable")
    path.rename(aside)
    logger.error("%s is not understood and was put aside as %s: %s", path, aside, error)
