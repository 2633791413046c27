"""Functions of `import tidepool` without a client: they act as the user who is logged in."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any, overload

from tidepool.client.api import Client
from tidepool.client.rows import Dataset, Model
from tidepool.client.studies import Study
from tidepool.client.training import Job

__all__ = ["datasets", "job", "jobs", "models", "studies", "study", "study_from_nni", "submit"]

#: Arguments of `study` that describe the search; all others describe its trials, like those of `submit`.
_SEARCH = frozenset({"goal", "value_of", "sampler", "pruner", "trials", "minutes", "gpu_hours", "at_once", "seed"})


@cache
def _default() -> Client:
    """Client of the user who is logged in."""
    return Client()


@overload
def submit(what: str | Path | None = None, *arguments: str, metric: None = None, **given: Any) -> Job: ...


@overload
def submit(what: str | Path | None = None, *arguments: str, metric: str, **given: Any) -> Study: ...


def submit(what: str | Path | None = None, *arguments: str, metric: str | None = None, **given: Any) -> Job | Study:
    """Submit a script, a folder or a registered model; see `Client.submit`."""
    made: Job | Study = _default().submit(what, *arguments, **given, **({} if metric is None else {"metric": metric}))
    return made


def job(number: int) -> Job:
    """Return the job with this number."""
    return _default().job(number)


def jobs(**filters: Any) -> list[Job]:
    """Return the user's jobs, newest first; see `Client.jobs`."""
    return _default().jobs(**filters)


def study(name: str | int, what: str | Path | None = None, *arguments: str, **given: Any) -> Study:
    """Create a study with this name; with a number alone, return the study with this number.

    given: `space` and `metric`, the arguments of the search named in `Client.create_study`, and those of
    `Client.submit` for the trials. A trial has at most one GPU unless `max_slots` says otherwise.
    """
    client = _default()
    if isinstance(name, int):
        return client.study(name)
    search = {key: given.pop(key) for key in [*given] if key in {*_SEARCH, "space", "metric"}}
    planned = client.plan(what, *arguments, name=name, **{"max_slots": 1, **given})
    return client.create_study(planned, **search)


def study_from_nni(config: str | Path, **given: Any) -> Study:
    """Create the study that a configuration of NNI describes. A warning says what has no effect here.

    given: arguments of the search and of the trials as in `study`, which take precedence over the file.
    """
    from tidepool.client.nni_config import study_of_nni

    client, read = _default(), study_of_nni(config, sampler=given.get("sampler"), pruner=given.get("pruner"))
    for notice in read.notices:
        warnings.warn(f"{Path(config).name}: {notice}", stacklevel=2)
    search = read.search | {key: given.pop(key) for key in [*given] if key in _SEARCH}
    planned = client.plan(read.code, *read.arguments, **{**read.options, **given})
    return client.create_study(planned, **search)


def studies() -> list[Study]:
    """Return the user's studies, newest first."""
    return _default().studies()


def datasets() -> list[Dataset]:
    return _default().datasets()


def models() -> list[Model]:
    return _default().models()
