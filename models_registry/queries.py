"""Reads models for pages, the API and the jobs app."""

from __future__ import annotations

from pathlib import Path

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery

from models_registry.code import checked_entry_point
from models_registry.models import RegisteredModel, RegisteredModelVersion
from webapp.lib.errors import UserError
from webapp.lib.references import by_reference

__all__ = ["code_text", "find_model", "models", "versions"]

_SHOWN_BYTES = 64 * 1024


def models() -> QuerySet[RegisteredModel]:
    """All models with their owners; `latest` holds the newest version in a list of one."""
    newest = RegisteredModelVersion.objects.filter(model=OuterRef("model")).order_by("-number")
    latest = RegisteredModelVersion.objects.filter(pk=Subquery(newest.values("pk")[:1]))
    return RegisteredModel.objects.select_related("owner").prefetch_related(
        Prefetch("versions", latest, to_attr="latest")
    )


def find_model(reference: int | str) -> RegisteredModel | None:
    """By id or name."""
    return by_reference(models(), reference)


def versions(model: RegisteredModel) -> QuerySet[RegisteredModelVersion]:
    return model.versions.order_by("-number")


def code_text(version: RegisteredModelVersion) -> str:
    """The beginning of the entry point's source; empty where its file is gone by now."""
    folder = Path(version.path)
    try:
        file = folder / checked_entry_point(folder, version.entry_point)
        with file.open("rb") as stream:
            return stream.read(_SHOWN_BYTES).decode("utf-8", "replace")
    except (UserError, OSError):
        return ""
