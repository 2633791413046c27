"""Queries of datasets for pages, the API and the jobs app."""

from typing import Any

from django.db.models import Count, QuerySet

from core.live import current_seqs
from core.registered_rows import with_latest
from core.text import by_reference, whole
from datasets.models import Dataset, DatasetVersion
from datasets.topics import DATASETS

__all__ = [
    "datasets",
    "datasets_live",
    "find_dataset",
    "find_version",
    "use_count",
    "version_live",
    "versions",
    "why_not_ready",
]


def datasets() -> QuerySet[Dataset]:
    """Return all datasets with their owners; `latest` is a list with the newest version."""
    return with_latest(Dataset.objects.all(), DatasetVersion.objects.defer("samples", "summary"), "dataset")


def find_dataset(reference: int | str) -> Dataset | None:
    """Return the dataset with this id or name, or None."""
    return by_reference(datasets(), reference)


def versions(dataset: Dataset) -> QuerySet[DatasetVersion]:
    return dataset.versions.order_by("-number").defer("samples")


def find_version(dataset: Dataset, number: int | str | None = None) -> DatasetVersion | None:
    """Return the version with this number; without a number, the newest."""
    known = dataset.versions.select_related("dataset__owner").order_by("-number")
    if number is not None:
        known = known.filter(number=whole(str(number)) or 0)
    return known.first()


def why_not_ready(version: DatasetVersion) -> str:
    """Return a sentence that says why no training can use the version; empty if it is READY."""
    what = f"Version {version.number} of the dataset {version.dataset.name}"
    if version.state == DatasetVersion.State.READY:
        return ""
    if version.state == DatasetVersion.State.INVALID:
        problem = version.problem.splitlines()[0]
        back = f", or delete this version to go back to version {version.number - 1}" if version.number > 1 else ""
        return f"{what} cannot be used. {problem} Then check it again{back}."
    if version.state == DatasetVersion.State.CHECKING:
        return f"{what} is being checked ({version.progress:.0%}): try again later."
    return f"{what} is waiting for its check: try again later."


def use_count(dataset: Dataset) -> int:
    """Return the number of jobs, of all users, that have used a version. Such a dataset cannot be deleted."""
    return dataset.versions.aggregate(count=Count("jobs"))["count"]  # type: ignore[no-any-return]


def version_live(version: DatasetVersion) -> dict[str, Any]:
    """Return the state of a version's check for pages, the same in events and in responses."""
    return {
        "version": version.number,
        "state": version.state,
        "progress": version.progress,
        "problem": version.problem,
        "size_bytes": version.size_bytes,
        "file_count": version.file_count,
    }


def datasets_live(ids: list[int]) -> dict[str, Any]:
    """Return the states of the newest versions of these datasets; a deleted dataset has the state DELETED."""
    seq = current_seqs([DATASETS])[DATASETS]
    storable = [number for number in ids if number < 2**63]
    rows = datasets().filter(pk__in=storable)
    found = {row.pk: version_live(row.latest[0]) for row in rows}  # type: ignore[attr-defined]
    state = {str(pk): found.get(pk, {"state": "DELETED"}) for pk in ids}
    return {"seq": seq, "state": state, "append": {}}
