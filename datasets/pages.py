"""Findings of a check as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse

from core.archive import ARCHIVE_SUFFIXES
from core.models import Upload
from core.uploads import received
from datasets.actions.checking import SINGLE_SUFFIXES
from datasets.models import Dataset, DatasetVersion

__all__ = ["ClassTable", "class_table", "deletions", "unfinished_uploads"]

_SHOWN = 40
_ROLES = {"": "All", "training": "Training", "validation": "Validation", "testing": "Testing"}


@dataclass(frozen=True)
class ClassTable:
    """Counts of each class in each part."""

    #: "Training" and so on.
    heads: list[str]
    #: (class, (head, count) for each of `heads`), the largest first.
    rows: list[tuple[str, list[tuple[str, int]]]]
    #: What bars are drawn against.
    most: int
    #: Classes that are not among the rows.
    more: int


def class_table(summary: dict[str, Any]) -> ClassTable | None:
    """None where nothing has classes."""
    parts = [part for part in summary.get("parts", []) if part["classes"]]
    if not parts:
        return None
    names = {name: sum(part["classes"].get(name, 0) for part in parts) for part in parts for name in part["classes"]}
    ordered = sorted(names, key=lambda name: (-names[name], _natural(name)))
    heads = [_ROLES[part["role"]] for part in parts]
    rows = [
        (name, [(head, part["classes"].get(name, 0)) for head, part in zip(heads, parts, strict=True)])
        for name in ordered[:_SHOWN]
    ]
    most = max(count for _, counts in rows for _, count in counts)
    return ClassTable(heads, rows, most, max(0, len(ordered) - _SHOWN))


def deletions(dataset: Dataset, versions: Sequence[DatasetVersion]) -> list[dict[str, str]]:
    """The questions that are asked before something is deleted, with what is lost."""
    files = "files that were uploaded" if any(version.is_uploaded for version in versions) else ""
    stay = "Files in folders on the server stay where they are."
    whole = {
        "id": "delete-dataset",
        "title": f"Delete the dataset {dataset.name}?",
        "lost": f"All {len(versions)} versions are lost{', and the ' + files if files else ''}. {stay}"
        if len(versions) > 1
        else f"Its registration is lost{', and the ' + files if files else ''}. {stay}",
        "action": reverse("datasets:delete", args=[dataset.pk]),
        "yes": "Delete dataset",
    }
    if len(versions) == 1:
        return [whole]
    return [whole, *(_version_deletion(dataset, version) for version in versions)]


def _version_deletion(dataset: Dataset, version: DatasetVersion) -> dict[str, str]:
    lost = "Its uploaded files are lost" if version.is_uploaded else "Its files on the server stay where they are"
    return {
        "id": f"delete-{version.number}",
        "title": f"Delete version {version.number} of {dataset.name}?",
        "lost": f"{lost}. Trainings use the newest version that is left.",
        "action": reverse("datasets:version-delete", args=[dataset.pk, version.number]),
        "yes": "Delete version",
    }


def unfinished_uploads(user: User) -> list[dict[str, Any]]:
    """For the form: what is here of each, so that it goes on where it was."""
    return [
        {"id": upload.pk, "name": upload.name, "size_bytes": upload.size_bytes, "offset": received(upload)}
        for upload in Upload.objects.filter(owner=user).order_by("-id")
        if upload.name.lower().endswith((*ARCHIVE_SUFFIXES, *SINGLE_SUFFIXES))
    ]


def _natural(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() and len(name) < 10 else 10**9, name)
