"""Studies: searches for the parameters with the best value of a metric. Each trial is a job."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidepool.client.decoding import decoded
from tidepool.client.errors import Conflict, MissingPackage, NotFound
from tidepool.client.http import Connection
from tidepool.client.rows import StudyInfo, TrialInfo
from tidepool.client.training import Job

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

__all__ = ["Study", "StudyTrial", "log_uniform", "uniform", "whole"]

_PAUSE_SECONDS = 1.0
_OVER = ("FINISHED", "STOPPED")


def uniform(low: float, high: float, *, step: float | None = None) -> dict[str, Any]:
    """Return a range of numbers for a study's space. step: distance of the values; None: any value."""
    return _range("uniform", low, high, step)


def log_uniform(low: float, high: float) -> dict[str, Any]:
    """Return a range of numbers whose logarithm is drawn evenly, such as that of learning rates."""
    return _range("log_uniform", low, high, None)


def whole(low: int, high: int, *, step: int | None = None, log: bool = False) -> dict[str, Any]:
    """Return a range of whole numbers that includes both ends. log: draw the logarithm evenly."""
    return _range("log_int" if log else "int", low, high, step)


def _range(kind: str, low: float, high: float, step: float | None) -> dict[str, Any]:
    return {"kind": kind, "low": low, "high": high, **({} if step is None else {"step": step})}


class StudyTrial:
    """A trial: its values, its result, and the job that trained it."""

    def __init__(self, connection: Connection, info: TrialInfo) -> None:
        self._connection = connection
        self.info = info

    def __repr__(self) -> str:
        return f"<tidepool trial {self.number} {self.info.state} {self.value} {dict(self.parameters)}>"

    @property
    def number(self) -> int:
        return self.info.number

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.info.values

    @property
    def value(self) -> float | None:
        """Value of the study's metric; None: the trial is not complete."""
        return self.info.value

    @property
    def job(self) -> Job:
        """The job that trained the trial. Raises Conflict while the trial is queued."""
        if self.info.job is None:
            raise Conflict(f"Trial {self.number} is queued: its training is not submitted yet.")
        return Job(self._connection, self.info.job)

    def make_version(self, name: str = "") -> str:
        """Create a model version from the trial's newest checkpoint; see `Job.make_version`."""
        checkpoints = self.job.checkpoints()
        if not checkpoints:
            raise NotFound(f"Training {self.info.job} has no checkpoint: download its weights with job.download().")
        newest = max(checkpoints, key=lambda checkpoint: checkpoint.id)
        return self.job.make_version(newest.id, name)


class Study:
    """A study, by its number. `info` has its last fetched state; `refresh()` fetches it again."""

    def __init__(self, connection: Connection, number: int, info: StudyInfo | None = None) -> None:
        self._connection = connection
        self.id = number
        self._info = info

    def __repr__(self) -> str:
        shown = f" {self._info.name!r} {self._info.state}" if self._info else ""
        return f"<tidepool.Study {self.id}{shown}>"

    @property
    def url(self) -> str:
        """URL of the study's page."""
        return f"{self._connection.url}/studies/{self.id}/"

    @property
    def info(self) -> StudyInfo:
        return self._info or self.refresh()

    def refresh(self) -> StudyInfo:
        self._info = decoded(StudyInfo, self._connection.get(self._path()))
        return self._info

    @property
    def best(self) -> StudyTrial | None:
        """The complete trial with the best value so far; None: no trial is complete."""
        found = self.refresh().best
        return None if found is None else StudyTrial(self._connection, found)

    def trials(self) -> list[StudyTrial]:
        rows = self._connection.rows(self._path("trials/"))
        return [StudyTrial(self._connection, decoded(TrialInfo, row)) for row in rows]

    def dataframe(self) -> "pd.DataFrame":
        """Return the trials as a table: number, job, state, value, and a column for each parameter.

        Raises MissingPackage without pandas, which `trials()` does not need.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackage(
                "study.dataframe() makes a pandas DataFrame, and pandas is not installed: `pip install pandas`, or use "
                "study.trials()."
            ) from error
        rows = [trial.info for trial in self.trials()]
        return pd.DataFrame(
            [
                {"number": row.number, "job": row.job, "state": row.state, "value": row.value, **row.values}
                for row in rows
            ]
        ).set_index("number")

    def importance(self) -> dict[str, float]:
        """Return the share of each parameter in the differences of the values; {} with too few trials."""
        return dict(self._connection.get(self._path("importance/")))

    def wait(self, timeout: float | None = None) -> StudyInfo:
        """Wait until the study is over or paused. Raises TimeoutError after `timeout` seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        while self.refresh().state not in (*_OVER, "PAUSED"):
            if ends is not None and time.monotonic() + _PAUSE_SECONDS > ends:
                raise TimeoutError(f"Study {self.id} is {self.info.state} after {timeout:g} s: {self.info.reason}")
            time.sleep(_PAUSE_SECONDS)
        return self.info

    def pause(self) -> StudyInfo:
        """Submit no more trials; those that have been submitted train on."""
        return self._command("pause")

    def resume(self) -> StudyInfo:
        return self._command("resume")

    def stop(self) -> StudyInfo:
        """End the study for good, and stop its trials."""
        return self._command("stop")

    def change(self, **limits: Any) -> StudyInfo:
        """Change `trials`, `at_once`, `minutes`, `gpu_hours` or `priority`; None removes a limit."""
        self._info = decoded(StudyInfo, self._connection.json("PATCH", self._path(), json=limits))
        return self._info

    def enqueue(self, *values: Mapping[str, Any]) -> list[StudyTrial]:
        """Queue trials with these values, before all others."""
        return self._queued("enqueue/", {"values": [dict(each) for each in values]})

    def more_seeds(self, trial: int, count: int = 3) -> list[StudyTrial]:
        """Repeat a trial with other seeds, to see how much of its value is chance."""
        return self._queued("seeds/", {"trial": trial, "count": count})

    def _queued(self, path: str, given: dict[str, Any]) -> list[StudyTrial]:
        rows: Sequence[Any] = self._connection.json("POST", self._path(path), json=given)
        return [StudyTrial(self._connection, decoded(TrialInfo, row)) for row in rows]

    def _command(self, verb: str) -> StudyInfo:
        self._info = decoded(StudyInfo, self._connection.json("POST", self._path(f"{verb}/")))
        return self._info

    def _path(self, rest: str = "") -> str:
        return f"studies/{self.id}/{rest}"
