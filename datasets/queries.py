"""Reads datasets for pages, the API and the jobs app."""

from __future__ import annotations

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery

from datasets.models import Dataset, DatasetVersion
from webapp.lib.references import by_reference

__all__ = ["datasets", "find_dataset", "versions"]


def datasets() -> QuerySet[Dataset]:
    """All datasets with their owners; `latest` holds the newest version in a list of one."""
    newest = DatasetVersion.objects.filter(dataset=OuterRef("dataset")).order_by("-number")
    latest = DatasetVersion.objects.filter(pk=Subquery(newest.values("pk")[:1]))
    return Dataset.objects.select_related("owner").prefetch_related(Prefetch("versions", latest, to_attr="latest"))


def find_dataset(reference: int | str) -> Dataset | None:
    """By id or name."""
    return by_reference(datasets(), reference)


def versions(dataset: Dataset) -> QuerySet[DatasetVersion]:
    return dataset.versions.order_by("-number")
