"""Parts of a job's page that apps which import `jobs` add: each has a template and its context.

The page fetches a part from `jobs:part` while it is visible; a part may also be rendered with the page.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.contrib.auth.models import User

from jobs.models import Job
from jobs.queries.curves import thinned_metrics
from jobs.queries.metrics import Curve

__all__ = ["Part", "ViewedJob", "page_context", "register_part", "registered_parts"]


class ViewedJob:
    """A job and its viewer. The curves are read from the database once, when a part first needs them."""

    def __init__(self, job: Job, user: User) -> None:
        self.job = job
        self.user = user

    @cached_property
    def curves(self) -> dict[str, Curve]:
        return thinned_metrics(self.job)


@dataclass(frozen=True)
class Part:
    #: Path of the template that renders the part.
    template: str
    #: Returns the template's variables.
    context: Callable[[ViewedJob], Mapping[str, Any]]
    #: Returns the variables for the first rendering of the page; None: the page fetches the part later.
    on_page: Callable[[ViewedJob], Mapping[str, Any]] | None = None


_parts: dict[str, Part] = {}


def register_part(name: str, part: Part) -> None:
    """Add a part under the last component of its address. Call it from `AppConfig.ready`."""
    assert name not in _parts, name
    _parts[name] = part


def registered_parts() -> Mapping[str, Part]:
    return _parts


def page_context(view: ViewedJob) -> dict[str, Any]:
    """Return the variables of all parts that are rendered with the page."""
    context: dict[str, Any] = {}
    for part in _parts.values():
        if part.on_page is not None:
            context |= part.on_page(view)
    return context
