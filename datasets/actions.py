"""Registers datasets: the only writer of this app's rows."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from datasets.models import Dataset, DatasetVersion
from webapp.lib.errors import field_error
from webapp.lib.folders import FolderFacts, folder_facts
from webapp.lib.names import checked_name
from webapp.lib.ownership import refuse_foreign
from webapp.lib.sources import Source, obtained

__all__ = ["DatasetRegistration", "register"]

#: Taken as they are; everything else comes in an archive.
_DATA_SUFFIXES = (".csv", ".json", ".jsonl", ".npy", ".npz", ".parquet", ".txt")


@dataclass(frozen=True)
class DatasetRegistration:
    name: str
    source: Source
    kind: str = Dataset.Kind.ANY
    description: str = ""


def register(owner: User, registration: DatasetRegistration) -> DatasetVersion:
    """A new dataset, or the next version of one that belongs to `owner`."""
    name = checked_name(registration.name)
    if registration.kind not in Dataset.Kind.values:
        raise field_error("kind", f"There is no such kind: use one of {', '.join(Dataset.Kind.values)}.")
    refuse_foreign(owner, Dataset.objects.filter(name=name).first(), "dataset")
    with obtained(registration.source, settings.TIDEPOOL_DATA_ROOTS, label=name, single=_DATA_SUFFIXES) as folder:
        facts = folder_facts(folder)
        return _store(owner, registration, name, str(folder), facts)


@transaction.atomic
def _store(owner: User, registration: DatasetRegistration, name: str, path: str, facts: FolderFacts) -> DatasetVersion:
    described = {"kind": registration.kind, "description": registration.description}
    dataset, is_new = Dataset.objects.select_for_update().get_or_create(
        name=name, defaults={"owner": owner, **described}
    )
    if not is_new:
        refuse_foreign(owner, dataset, "dataset")
        dataset.kind, dataset.description = registration.kind, registration.description
        dataset.save(update_fields=["kind", "description"])
    newest = dataset.versions.order_by("-number").first()
    return DatasetVersion.objects.create(
        dataset=dataset,
        number=newest.number + 1 if newest else 1,
        path=path,
        size_bytes=facts.size_bytes,
        file_count=facts.file_count,
        digest=facts.digest,
    )
