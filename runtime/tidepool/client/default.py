"""Functions of `import tidepool` without a client: they act as the user who is logged in."""

from functools import cache
from pathlib import Path
from typing import Any

from tidepool.client.api import Client
from tidepool.client.rows import Dataset, Model
from tidepool.client.training import Job

__all__ = ["datasets", "job", "jobs", "models", "submit"]


@cache
def _default() -> Client:
    """Client of the user who is logged in."""
    return Client()


def submit(what: str | Path | None = None, *arguments: str, **given: Any) -> Job:
    """Submit a script, a folder or a registered model; see `Client.submit`."""
    return _default().submit(what, *arguments, **given)


def job(number: int) -> Job:
    """Return the job with this number."""
    return _default().job(number)


def jobs(**filters: Any) -> list[Job]:
    """Return the user's jobs, newest first; see `Client.jobs`."""
    return _default().jobs(**filters)


def datasets() -> list[Dataset]:
    return _default().datasets()


def models() -> list[Model]:
    return _default().models()
