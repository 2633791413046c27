"""`metrics.jsonl`: one line per completed step, contiguous over all resizes. Rank 0 writes it; it is the truth.

Metrics that a script reports when the record of the last step is written are in a further line of that step: after its
loop, or after a rank has been lost.
"""

import json
import math
from pathlib import Path
from typing import Any

from tidepool.journal import end_of

__all__ = ["MetricsFile"]

KEPT_RECORDS = 4


class MetricsFile:
    """Appends step records to a file. Without a folder (off the cluster) it keeps them in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / "metrics.jsonl" if folder else None
        self._last_step: int | None = None
        #: Number of the lead under which records are written.
        self.lead_number = 0

    def write(self, records: list[dict[str, Any]]) -> None:
        """Append those of `records` whose step the file does not have yet (the newest few, oldest first)."""
        if self._path is None:
            return
        last_step = self._newest_step(self._path)
        new = [record for record in records if record["step"] > last_step]
        if not new:
            return
        self._append(self._path, new)
        self._last_step = new[-1]["step"]

    def has(self, step: int) -> bool:
        """Return whether the record of this step is in the file."""
        return self._path is not None and step <= self._newest_step(self._path)

    def _newest_step(self, path: Path) -> int:
        if self._last_step is None:
            self._last_step = _last_step(path)
        return self._last_step

    def add(self, record: dict[str, Any]) -> None:
        """Append further metrics of the last step, which is in the file."""
        if self._path is not None:
            self._append(self._path, [record])

    def forget(self) -> None:
        """Another rank may have written meanwhile: look at the file again before the next write."""
        self._last_step = None

    def _append(self, path: Path, records: list[dict[str, Any]]) -> None:
        lead = {"lead_number": self.lead_number} if self.lead_number else {}
        numbered = [_finite(record | lead) for record in records]
        with path.open("a") as file:
            file.write("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in numbered))


def _last_step(path: Path) -> int:
    """Step of the last whole line. A killed writer's torn line is cut off: nobody has read it, and it is due again."""
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        line, end = end_of(file)
        file.truncate(end)
    return int(json.loads(line)["step"]) if line else 0


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN or infinity: null says that there was no number."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
