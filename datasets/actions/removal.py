"""Deletes datasets and versions that nobody uses, and sends a refused version to another check."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import ProtectedError

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed
from core.live import DATASETS, publish
from datasets.actions.checks import announce
from datasets.models import Dataset, DatasetVersion

__all__ = ["check_again", "delete_dataset", "delete_version"]

logger = logging.getLogger(__name__)


@transaction.atomic
def delete_dataset(user: User, dataset: Dataset) -> None:
    """With all versions and their uploaded files. Folders on the server stay."""
    _require_owner(user, dataset)
    versions = list(dataset.versions.select_for_update())
    number = dataset.pk
    try:
        dataset.delete()
    except ProtectedError as error:
        raise _in_use(dataset.name, error) from error
    audit(user, "deleted", kind="dataset", key=number, name=dataset.name, before=_owned(dataset))
    publish(DATASETS, "state", {str(number): {"state": "DELETED"}})
    transaction.on_commit(partial(_remove_files, versions))


@transaction.atomic
def delete_version(user: User, version: DatasetVersion) -> None:
    """The last one goes with its dataset only: a dataset without versions would be a name for nothing."""
    dataset = Dataset.objects.select_for_update().get(pk=version.dataset_id)
    _require_owner(user, dataset)
    if dataset.versions.count() == 1:
        raise Conflict(f"Version {version.number} is the only one of {dataset.name}: delete the dataset instead.")
    try:
        version.delete()
    except ProtectedError as error:
        raise _in_use(f"Version {version.number} of {dataset.name}", error) from error
    before = {"version": version.number, **_owned(dataset)}
    audit(user, "deleted a version of", kind="dataset", key=dataset.pk, name=dataset.name, before=before)
    announce(dataset.versions.order_by("-number")[0])
    transaction.on_commit(partial(_remove_files, [version]))


@transaction.atomic
def check_again(user: User, version: DatasetVersion) -> None:
    """Of a version that was refused, after its files were corrected. One that is READY stays what it was."""
    _require_owner(user, version.dataset)
    invalid, waiting = DatasetVersion.State.INVALID, DatasetVersion.State.WAITING
    if not DatasetVersion.objects.filter(pk=version.pk, state=invalid).update(state=waiting, problem="", progress=0):
        raise Conflict("Only a version whose check found problems is checked again: register changed files anew.")
    version.refresh_from_db()
    announce(version)


def _require_owner(user: User, dataset: Dataset) -> None:
    if dataset.owner_id != user.pk and not user.is_staff:
        raise NotAllowed(f"Only the owner of {dataset.name} and administrators may change it: ask them.")


def _owned(dataset: Dataset) -> dict[str, str]:
    return {"owner": dataset.owner.get_username()}


def _in_use(what: str, error: ProtectedError) -> Conflict:
    count = len(error.protected_objects)
    trainings = "1 training has" if count == 1 else f"{count} trainings have"
    return Conflict(f"{what} cannot be deleted: {trainings} used it, and what they learned came from it.")


def _remove_files(versions: Iterable[DatasetVersion]) -> None:
    """Remove what Tidepool put there itself: uploads, and folders of links."""
    for version in versions:
        if version.archive:
            Path(version.archive).unlink(missing_ok=True)
        if (version.is_uploaded or version.training) and _is_ours(Path(version.path)):
            shutil.rmtree(version.path, ignore_errors=True)
            logger.info("dataset=%s version=%s its files are removed", version.dataset_id, version.number)


def _is_ours(folder: Path) -> bool:
    root = settings.TIDEPOOL_DATA_ROOTS[0]
    return folder.parent in {root / "uploads", root / "sets"}
