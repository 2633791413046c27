"""The list of jobs, with its filters and orders, shared by the page, the API and the CSV file."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Count, Q, QuerySet
from django_filters import CharFilter

from core.filters import ListFilter, MomentFilter, TextField, TextFilter, choice_filter, within
from core.keyset import KeysetPage, Order, every_row, keyset_page
from core.name_patterns import compiled_pattern, pattern_in
from core.roles import Asking, is_cluster_admin
from core.text import whole
from core.time import parsed_moment
from datasets.models import DatasetVersion
from jobs.models import Job, JobTag
from jobs.queries.job_columns import parse_columns
from jobs.queries.jobs import visible_jobs
from jobs.states import TERMINAL, JobState
from jobs.tags import folded, searched
from jobs.topics import JOBS, jobs_topic_of, newest_of_job
from models_registry.models import RegisteredModelVersion

__all__ = [
    "ACTIVE",
    "FINISHED",
    "GROUPINGS",
    "ORDERS",
    "PERIODS",
    "JobFilter",
    "all_pages",
    "job_page_of",
    "jobs_topic",
    "list_keys",
    "state_counts",
]

#: Values of `state` that stand for all unfinished and all finished states.
ACTIVE, FINISHED = "active", "finished"
PERIODS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}

#: Parameter by which a list can be grouped, and filtered -> the column that it names.
GROUPINGS = {
    "model": "model__model__name",
    "tag": "tags__name",
    "instance_group": "instance_group__name",
    "dataset": "dataset__dataset__name",
    "owner": "owner__username",
}
#: Number of newest trainings whose names a regular expression is tried on.
_MOST_MATCHED = 20_000

#: Orders of the list, each with an index (see Job.Meta).
ORDERS = {
    "newest": Order("submitted_at", descending=True, parse=parsed_moment),
    "oldest": Order("submitted_at", descending=False, parse=parsed_moment),
    "name": Order("name_folded", descending=False),
    "-name": Order("name_folded", descending=True),
    "priority": Order("priority", descending=True, parse=whole),
    "-priority": Order("priority", descending=False, parse=whole),
    #: Excludes unfinished jobs.
    "ended": Order("finished_at", descending=True, parse=parsed_moment),
}


class _ColumnsField(forms.Field):
    def to_python(self, value: Any) -> tuple[str, ...]:
        try:
            return parse_columns(value or "")
        except ValueError as error:
            raise ValidationError(str(error)) from None


class _SearchField(TextField):
    def to_python(self, value: Any) -> str:
        text = super().to_python(value)
        try:
            compiled_pattern(pattern_in(searched(text)[0]) or "")
        except ValueError as error:
            raise ValidationError(str(error)) from None
        return text


class _Search(CharFilter):  # type: ignore[misc]
    field_class = _SearchField


class _Columns(CharFilter):  # type: ignore[misc]  # django-filter has no types
    field_class = _ColumnsField


class JobFilter(ListFilter):
    """Filter of jobs. An empty one matches all jobs that the viewer may see, the newest first."""

    state = choice_filter("Unknown state", [ACTIVE, FINISHED, *JobState], method="in_state")
    search = _Search(
        method="named",
        help_text="Part of the name, the number, or a regular expression such as `/^resnet.*lr0/`; and words such as "
        "`tag:baseline`.",
    )
    tag = TextFilter(method="with_tag", help_text="Comma-separated tags; a job must have all of them.")
    owner = TextFilter("owner__username", help_text="User name.")
    model = TextFilter(method="with_model", help_text="Name.")
    dataset = TextFilter(method="with_dataset", help_text="Name.")
    instance_group = TextFilter("instance_group__name", help_text="Name.")
    within = choice_filter("Unknown period", PERIODS, method="lately", help_text="Submitted since then.")
    submitted_after = MomentFilter("submitted_at", "gte", help_text="Then or later.")
    submitted_before = MomentFilter("submitted_at", "lt")
    sort = choice_filter(
        "The list has no such order", ORDERS, method="sorted_by", help_text="`ended` leaves out what is not over."
    )
    group = choice_filter(
        "The list cannot be grouped by that",
        GROUPINGS,
        method="all_of_them",
        help_text="Grouping of the page; the API and the CSV file list each job.",
    )
    columns = _Columns(
        method="all_of_them",
        help_text="Columns of the page, such as `reason,metric:loss,parameter:lr`; the CSV file has these as well.",
    )

    class Meta:
        model = Job
        fields: list[str] = []

    @property
    def chosen_columns(self) -> tuple[str, ...]:
        return self.values["columns"] or ()

    @property
    def sorted_as(self) -> str:
        return self.values["sort"] or "newest"

    @property
    def order(self) -> Order:
        return ORDERS[self.sorted_as]

    @property
    def is_narrowing(self) -> bool:
        return bool(set(self.given) - {"sort", "columns", "group"}) or self.sorted_as == "ended"

    def in_state(self, jobs: QuerySet[Job], name: str, state: str) -> QuerySet[Job]:
        if state in (ACTIVE, FINISHED):
            return jobs.filter(finished_at__isnull=state == ACTIVE)
        # For an unfinished state, the condition lets the database use the small index of unfinished jobs.
        return jobs.filter(state=state) if state in TERMINAL else jobs.filter(state=state, finished_at__isnull=True)

    def named(self, jobs: QuerySet[Job], name: str, search: str) -> QuerySet[Job]:
        name, tags = searched(search)
        if pattern := pattern_in(name):
            newest = jobs.order_by("-submitted_at").values_list("pk", "name")[:_MOST_MATCHED]
            matches = compiled_pattern(pattern).search
            return _tagged(jobs.filter(pk__in=[pk for pk, text in newest if matches(text)]), tags)
        named = Q(name_folded__contains=name.casefold())
        is_number = name.isascii() and name.isdecimal() and len(name) < 19
        return _tagged(jobs.filter(named | Q(pk=int(name)) if is_number else named), tags)

    def with_tag(self, jobs: QuerySet[Job], name: str, tags: str) -> QuerySet[Job]:
        return _tagged(jobs, [folded(tag) for tag in tags.split(",") if tag.strip()])

    def with_model(self, jobs: QuerySet[Job], name: str, model: str) -> QuerySet[Job]:
        return jobs.filter(model__in=RegisteredModelVersion.objects.filter(model__name=model))

    def with_dataset(self, jobs: QuerySet[Job], name: str, dataset: str) -> QuerySet[Job]:
        return jobs.filter(dataset__in=DatasetVersion.objects.filter(dataset__name=dataset))

    def lately(self, jobs: QuerySet[Job], name: str, period: str) -> QuerySet[Job]:
        return jobs.filter(submitted_at__gte=within(PERIODS, period))

    def all_of_them(self, jobs: QuerySet[Job], name: str, value: object) -> QuerySet[Job]:
        """Return all rows: columns and groupings do not filter."""
        return jobs

    def sorted_by(self, jobs: QuerySet[Job], name: str, sort: str) -> QuerySet[Job]:
        """Exclude rows without a place in the order. The pages sort."""
        return jobs.filter(finished_at__isnull=False) if sort == "ended" else jobs


def _tagged(jobs: QuerySet[Job], tags: Sequence[str]) -> QuerySet[Job]:
    """Return the jobs that have all of these tags."""
    if not tags:
        return jobs
    found = JobTag.objects.filter(name__in=tags).order_by().values("job").annotate(count=Count("pk"))
    return jobs.filter(pk__in=found.filter(count=len(set(tags))).values("job"))


def jobs_topic(user: Asking) -> str:
    """Return the live topic that announces new jobs to this user."""
    return JOBS if is_cluster_admin(user) else jobs_topic_of(user.pk or 0)


def job_page_of(user: Asking, wanted: JobFilter, given: Mapping[str, str], size: int) -> KeysetPage[Job]:
    """Return the page of the list at the given `after` or `before`.

    Rows have `seq`, the sequence number of the newest event on their live topic, read in the same query as the row.
    """
    return keyset_page(
        _listed(user).annotate(seq=newest_of_job()), wanted.order, given, size, keys=list_keys(user, wanted)
    )


def all_pages(user: Asking, wanted: JobFilter) -> Iterator[Job]:
    """Yield every job of the list, read in chunks."""
    return every_row(_listed(user), wanted.order, keys=list_keys(user, wanted))


def _listed(user: Asking) -> QuerySet[Job]:
    return visible_jobs(user).prefetch_related("tags")


def state_counts(user: Asking, wanted: JobFilter) -> dict[str, int]:
    """Return state -> number of jobs that match the rest of the filter."""
    others = {name: text for name, text in wanted.given.items() if name not in ("state", "columns")}
    rows = list_keys(user, JobFilter(others)).order_by().values_list("state").annotate(count=Count("pk"))
    return dict(rows)


def list_keys(user: Asking, wanted: JobFilter) -> QuerySet[Job]:
    """Return the matching jobs without joins: the indexes cover all compared columns."""
    return wanted.of(visible_jobs(user).select_related(None))
