"""Values that the client derives from answers of the REST API: lines of a log, and properties of a job."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["JobProperties", "LogLine"]


class JobProperties:
    """Properties of a job as it was when it was requested."""

    state: str
    #: A `Reason` of tidepool.client.rows, which imports this module.
    reason: Any
    finished_at: datetime | None

    @property
    def is_over(self) -> bool:
        return self.finished_at is not None

    @property
    def hold_up(self) -> str:
        """Why it does not train and is not over: it waits, is held back or is being stopped for now; "" if it does."""
        return str(self.reason.text) if self.state in ("PENDING", "SUSPENDED", "PREEMPTING") else ""


@dataclass(frozen=True)
class LogLine:
    text: str
    attempt: int
    #: Member that wrote the line.
    member: str
