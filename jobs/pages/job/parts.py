"""Parts of a job's page that apps above `jobs` add: each has a template and the context that it needs.

The page fetches a part from `jobs:part` while somebody looks at it; a part may also be rendered with the page itself.
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
    """A job and the user who looks at it. The curves are read from the database once, when a part first needs them."""

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
    #: Returns the variables that the page needs when it is first rendered; None: the page fetches the part later.
    on_page: Callable[[ViewedJob], Mapping[str, Any]] | None = None


_parts: dict[str, Part] = {}


def register_part(name: str, part: Part) -> None:
    """Add a part under the name by which its address ends. Called from an app's `AppConfig.ready`."""
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
