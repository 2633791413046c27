"""Answers of the site as frozen dataclasses. Fields that a newer site adds are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast

__all__ = [
    "Checkpoint",
    "Dataset",
    "Event",
    "JobInfo",
    "LogLine",
    "MetricPoint",
    "Model",
    "Reason",
    "Remedy",
    "ResultFile",
    "Script",
    "Term",
    "Why",
    "of",
]

Row = TypeVar("Row")


def of(kind: type[Row], values: Mapping[str, Any]) -> Row:
    """The row, with moments as datetimes."""
    given: dict[str, Any] = {}
    names = _names(cast(Any, kind))
    for name in names:
        if name in values:
            value = values[name]
            is_moment = isinstance(value, str) and (name == "at" or name.endswith("_at"))
            given[name] = datetime.fromisoformat(value) if is_moment else value
    return kind(**given)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


@dataclass(frozen=True)
class Reason:
    code: str
    text: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobInfo:
    """A job as it was when it was asked for."""

    id: int
    name: str
    owner: str
    model: str
    #: "": its script reads none.
    dataset: str
    instance_group: str
    #: PENDING, STARTING, RUNNING, PREEMPTING, CANCELLING, SUSPENDED, SUCCEEDED, FAILED or CANCELLED.
    state: str
    reason: Reason
    min_slots: int
    max_slots: int
    #: World size now, and the number that it shall have.
    slots: int
    target_slots: int
    priority: int
    attempt: int
    step: int
    epoch: int
    #: 0 to 1; None: not known.
    progress: float | None
    final_metrics: Mapping[str, Any]
    #: `kind`, `message`, `traceback` of one that failed.
    error: Mapping[str, Any] | None
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    #: While it waits: 1 is the next of its group to start.
    queue_position: int | None = None
    expected_start: Mapping[str, Any] | None = None
    #: Words that people have put on it.
    tags: Sequence[str] = ()

    @property
    def is_over(self) -> bool:
        return self.finished_at is not None

    @property
    def hold_up(self) -> str:
        """Why it does not train and is not over: it waits, is held back or is being stopped for now; "" if it does."""
        return self.reason.text if self.state in ("PENDING", "SUSPENDED", "PREEMPTING") else ""


@dataclass(frozen=True)
class LogLine:
    text: str
    attempt: int
    #: The member that wrote it.
    member: str


@dataclass(frozen=True)
class MetricPoint:
    name: str
    step: int
    epoch: int
    #: None: not a number.
    value: float | None
    at: datetime


@dataclass(frozen=True)
class Event:
    seq: int
    old: str
    new: str
    reason: Reason
    actor: str
    at: datetime


@dataclass(frozen=True)
class Term:
    name: str
    value: str
    #: The other job that it is about.
    job: int | None


@dataclass(frozen=True)
class Remedy:
    #: min_slots, max_slots, priority or end.
    kind: str
    #: The new value; of an end the other job.
    value: int | None
    #: GPUs that the job would then have.
    target: int
    starts_now: bool
    text: str


@dataclass(frozen=True)
class Why:
    """The reason for a job's GPUs: its sentence, the arithmetic, and what would change it."""

    text: str
    terms: tuple[Term, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True)
class Checkpoint:
    id: int
    attempt: int
    step: int
    epoch: int
    size_bytes: int
    sha256: str
    #: "": it can be continued from.
    problem: str
    created_at: datetime
    #: It stays, however many newer ones there are.
    kept: bool = False
    #: Versions of models that have its weights, such as "digits-cnn-trained v2".
    versions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ResultFile:
    path: str
    #: None: in the folder that all attempts share.
    attempt: int | None
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True)
class Dataset:
    id: int
    name: str
    kind: str
    description: str
    owner: str
    created_at: datetime
    #: The newest version: `number`, `state`, `size_bytes`, `file_count`, `problem` and more.
    latest: Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    id: int
    name: str
    description: str
    owner: str
    readers: str
    created_at: datetime
    #: The newest version: `number`, `engine`, `entry_point`, `dataset`, `parameters` and more.
    latest: Mapping[str, Any]


@dataclass(frozen=True)
class Script:
    """Code that was taken over for a training."""

    model: str
    version: int
    entry_point: str
    #: elastic, fixed or single.
    engine: str
    reads_data: bool
    dataset: str = ""
    #: What is wrong with it as far as reading it tells.
    warning: str | None = None
