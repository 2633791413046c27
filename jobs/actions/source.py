"""Storage of a submission's source: where the code came from, and the command that sent it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidepool.source_privacy import without_credentials, without_tokens

from jobs.models import Job, JobSource

__all__ = ["MAX_DIFF_BYTES", "MAX_LEFT_OUT", "Source", "copy_source", "source_of_json", "store_source"]

MAX_DIFF_BYTES = 1024**2
MAX_LEFT_OUT = 100


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source as a client tells it; for the fields see `jobs.models.JobSource`."""

    repository: str = ""
    commit: str = ""
    branch: str = ""
    is_dirty: bool = False
    diff: str = ""
    left_out: Sequence[dict[str, str]] = ()
    problem: str = ""
    command: str = ""

    @property
    def cleaned(self) -> "Source":
        """Return the source without credentials and tokens, which a client may have overlooked."""
        return replace(
            self,
            repository=without_credentials(self.repository),
            diff=without_tokens(self.diff),
            command=without_tokens(self.command),
        )

    @property
    def is_empty(self) -> bool:
        return not (self.repository or self.commit or self.branch or self.problem or self.command)


def store_source(job: Job, source: Source) -> None:
    """Store the source of a new job. A source that says nothing, such as that of a folder without git, has no row."""
    if not source.is_empty:
        JobSource.objects.create(job=job, **{**vars(source.cleaned), "left_out": list(source.left_out)})


def copy_source(original: Job, copy: Job) -> None:
    """Store the source of a job that reuses the code of another one. The command was not typed for the copy."""
    row = JobSource.objects.filter(job=original).first()
    if row is not None:
        names = ("repository", "commit", "branch", "is_dirty", "diff", "left_out", "problem")
        store_source(copy, Source(**{name: getattr(row, name) for name in names}))


def source_of_json(values: dict[str, Any]) -> Source | None:
    """Return the source that a row of another app holds as JSON; {}: none."""
    return Source(**values) if values else None
