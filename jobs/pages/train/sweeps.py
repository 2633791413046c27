"""Sweeps from the Train page: a training with several values of some parameters. The app of studies starts them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from jobs.actions import Submission

__all__ = ["Sweep", "register_sweeps", "start_sweep"]


@dataclass(frozen=True)
class Sweep:
    #: Training with the first values.
    first: Submission
    #: Parameter -> its values.
    values: Mapping[str, Sequence[Any]]
    #: Metric that compares the trainings, and its goal: minimize or maximize.
    metric: str
    goal: str


#: Function that starts a sweep and returns the address of its page.
Start = Callable[[Sweep, User], str]
_starts: list[Start] = []


def register_sweeps(start: Start) -> None:
    """Let this function start all sweeps. Call it when the app is ready."""
    _starts[:] = [start]


def start_sweep(sweep: Sweep, user: User) -> str:
    """Start the trainings; return the address of the page that shows them. Raises UserError."""
    return _starts[0](sweep, user)
