"""Jobs in groups by model, tag, owner, instance group or dataset: rows of the list, and lines of a comparison."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Count, Max, Q

from core.roles import Asking, is_cluster_admin
from jobs.models import Job
from jobs.queries.job_list import GROUPINGS, JobFilter, list_keys
from jobs.states import JobState

__all__ = ["MOST_GROUPS", "JobGroup", "grouping_labels", "job_groups", "jobs_by_name"]

MOST_GROUPS = 200


@dataclass(frozen=True)
class JobGroup:
    #: Name of the model, tag or other thing that its jobs share; None: they have none.
    name: str | None
    jobs: int
    active: int
    succeeded: int
    failed: int
    newest: datetime
    #: Parameters of the list that shows the jobs of this group; "" for those without a name.
    address: str


def grouping_labels(user: Asking) -> dict[str, str]:
    """Return kind -> label of the groupings that are offered. Only administrators see jobs of several owners."""
    kinds = [kind for kind in GROUPINGS if kind != "owner" or is_cluster_admin(user)]
    return {kind: kind.replace("_", " ").capitalize() for kind in kinds}


def jobs_by_name(jobs: Sequence[Job], kinds: Iterable[str]) -> dict[str, dict[str | None, list[int]]]:
    """Return kind -> name -> ids of the jobs, in their order; None: jobs without. A job counts for each of its tags."""
    kinds = list(kinds)
    columns = [GROUPINGS[kind] for kind in kinds]
    rows = list(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("pk", *columns))
    found: dict[str, dict[str | None, list[int]]] = {kind: {} for kind in kinds}
    for job in jobs:
        names = [row[1:] for row in rows if row[0] == job.pk]
        for kind, of_kind in zip(kinds, zip(*names, strict=True), strict=True):
            for name in dict.fromkeys(of_kind):
                found[kind].setdefault(name, []).append(job.pk)
    return found


def job_groups(user: Asking, wanted: JobFilter) -> list[JobGroup]:
    """Return the groups of the matching jobs, the one with the newest job first. A job counts for each of its tags."""
    kind = wanted.values["group"]
    rows = Job.objects.filter(pk__in=list_keys(user, wanted).order_by().values("pk")).values_list(GROUPINGS[kind])
    counted = rows.annotate(
        jobs=Count("pk"),
        active=Count("pk", Q(finished_at=None)),
        succeeded=Count("pk", Q(state=JobState.SUCCEEDED)),
        failed=Count("pk", Q(state=JobState.FAILED)),
        newest=Max("submitted_at"),
    )
    found = counted.order_by("-newest", GROUPINGS[kind])[:MOST_GROUPS]
    return [
        JobGroup(name, count, active, succeeded, failed, newest, _address(wanted.given, kind, name))
        for name, count, active, succeeded, failed, newest in found
    ]


def _address(given: Mapping[str, str], kind: str, name: str | None) -> str:
    if name is None:
        return ""
    rest = {key: text for key, text in given.items() if key not in ("group", kind)}
    both = ",".join(filter(None, (given.get("tag"), name))) if kind == "tag" else name
    return urlencode({**rest, kind: both})
