"""Registration and deletion of datasets. A check validates the files: at once if they are small, otherwise later."""

import logging
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from core.archive import ARCHIVE_SUFFIXES
from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, UserError, field_error
from core.file_sources import Source, new_upload_folder, obtained, slug
from core.folders import resolve_under
from core.live import publish
from core.models import Upload
from core.registered_rows import delete_named, in_words, kept_if_used, refuse_foreign, store_version
from core.roles import may_edit
from core.text import checked_name, plural, storable
from core.uploads import find_upload, finished_file
from datasets.inspection_queue import SINGLE_SUFFIXES, announce, check_at_once_if_small
from datasets.models import LINKS, Dataset, DatasetVersion
from datasets.topics import DATASETS

__all__ = [
    "DatasetRegistration",
    "check_again",
    "delete_dataset",
    "delete_version",
    "register",
    "require_owner",
    "version_at",
]

logger = logging.getLogger(__name__)

#: Longest base of a generated name, which leaves room for a suffix.
_MAX_MADE_NAME = 80
_ONE_SOURCE = "Enter either a folder on the server or a file to upload."


@dataclass(frozen=True)
class DatasetRegistration:
    """A dataset to register: files from `source`, from folders picked one by one, or from a finished upload."""

    name: str
    source: Source = field(default_factory=Source)
    kind: str = Dataset.Kind.ANY
    description: str = ""
    #: Paths of the parts. Only `training` is required; alone, it may contain the others as `val` and `test`.
    training: str = ""
    validation: str = ""
    testing: str = ""
    #: Id of a finished upload of the owner.
    upload: int | None = None


def register(owner: User, registration: DatasetRegistration) -> DatasetVersion:
    """Register a new dataset, or the next version of one that belongs to `owner`."""
    name = checked_name(registration.name)
    if registration.kind not in Dataset.Kind.values:
        raise field_error("kind", f"The kind must be one of {', '.join(Dataset.Kind.values)}.")
    refuse_foreign(owner, Dataset.objects.filter(name=name).first(), "dataset")
    described = {"kind": registration.kind, "description": registration.description}
    with _with_files(owner, registration, name) as version, transaction.atomic():
        store_version(owner, version, Dataset.objects.all(), name, "dataset", **described)
        Upload.objects.filter(pk=registration.upload or 0).delete()
        announce(version)
    return check_at_once_if_small(version)


def version_at(owner: User, path: str) -> DatasetVersion:
    """Return the newest version whose files are at `path`; if there is none, register a dataset for `owner`.

    A failed check does not matter for kind ANY, which requires nothing of the files: a script may download into an
    empty folder.
    path: as in a registration; "" is the whole data folder, which is not checked.
    """
    is_whole = not path.strip("/.")
    folder = Path(settings.TIDEPOOL_DATA_ROOTS[0]) if is_whole else _resolved(path, "data_path")
    there = DatasetVersion.objects.select_related("dataset").filter(path=str(folder))
    unfit = Q(state=DatasetVersion.State.INVALID) & ~Q(dataset__kind=Dataset.Kind.ANY)
    known = there.exclude(unfit).order_by("-pk").first()
    if known is not None:
        return known
    if not is_whole:
        return register(owner, DatasetRegistration(_free_name(owner, folder.name), Source(path=str(folder))))
    ready = DatasetVersion(path=str(folder), state=DatasetVersion.State.READY, size_bytes=0, file_count=0)
    name = _free_name(owner, "data-folder")
    with transaction.atomic():
        store_version(owner, ready, Dataset.objects.all(), name, "dataset", description="The whole data folder.")
        announce(ready)
    return ready


def _free_name(owner: User, wanted: str) -> str:
    """Return the wanted name, or one made from it that no dataset has."""
    name = storable(wanted)[:_MAX_MADE_NAME].strip(" .") or "data"
    names = [name, f"{name}-{owner.get_username()}", f"{name}-{secrets.token_hex(4)}"]
    taken = set(Dataset.objects.filter(name__in=names).values_list("name", flat=True))
    return next(each for each in names if each not in taken)


@contextmanager
def _with_files(owner: User, given: DatasetRegistration, name: str) -> Iterator[DatasetVersion]:
    """Yield a version, not stored yet, whose files are in place. If the body fails, new files are removed."""
    source = given.source
    is_picked = bool(given.training or given.validation or given.testing)
    if sum((is_picked, bool(source.path), source.upload is not None, given.upload is not None)) != 1:
        raise UserError(_ONE_SOURCE, fields={"path": [_ONE_SOURCE]})
    if given.upload is not None:
        yield _from_upload(owner, given.upload, name)
    elif given.validation or given.testing:
        picked = _picked(given)
        with _linked(picked, name) as folder:
            yield DatasetVersion(path=str(folder), **picked)
    elif given.training:
        yield DatasetVersion(path=str(_resolved(given.training, "training")))
    else:
        with obtained(source, settings.TIDEPOOL_DATA_ROOTS, label=name, single=SINGLE_SUFFIXES) as folder:
            yield DatasetVersion(path=str(folder), is_uploaded=source.upload is not None)


def _from_upload(owner: User, upload_id: int, name: str) -> DatasetVersion:
    upload = find_upload(owner, upload_id)
    if not upload.name.lower().endswith((*SINGLE_SUFFIXES, *ARCHIVE_SUFFIXES)):
        raise field_error("upload", f"{upload.name} is neither an archive nor a data file: upload a .zip or .tar.gz.")
    folder = new_upload_folder(settings.TIDEPOOL_DATA_ROOTS, name)
    archive = str(finished_file(upload))
    return DatasetVersion(path=str(folder), is_uploaded=True, archive=archive, archive_name=upload.name)


def _picked(given: DatasetRegistration) -> dict[str, str]:
    if not given.training:
        raise field_error("training", "Choose a training folder: validation and testing folders require one.")
    paths = {"training": given.training, "validation": given.validation, "testing": given.testing}
    return {role: str(_resolved(path, role)) for role, path in paths.items() if path}


def _resolved(path: str, role: str) -> Path:
    return resolve_under(path, settings.TIDEPOOL_DATA_ROOTS, field=role)


@contextmanager
def _linked(picked: dict[str, str], name: str) -> Iterator[Path]:
    """Yield a folder with a link to each picked folder, under the names of IBM's tutorial."""
    folder = settings.TIDEPOOL_DATA_ROOTS[0] / "sets" / f"{slug(name)}-{secrets.token_hex(6)}"
    folder.mkdir(parents=True, mode=0o755)
    try:
        for role, target in picked.items():
            (folder / LINKS[role]).symlink_to(target)
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@transaction.atomic
def delete_dataset(user: User, dataset: Dataset) -> None:
    """Delete the dataset with all versions and their uploaded files. Folders on the server stay."""
    require_owner(user, dataset)
    versions, number = list(dataset.versions.select_for_update()), dataset.pk
    delete_named(user, dataset, "dataset", partial(_in_use, user, dataset.name))
    publish(DATASETS, "state", {str(number): {"state": "DELETED"}})
    transaction.on_commit(partial(_remove_files, versions))


@transaction.atomic
def delete_version(user: User, version: DatasetVersion) -> None:
    """Delete a version with its uploaded files. The only version of a dataset is deleted with the dataset only."""
    dataset = Dataset.objects.select_for_update().get(pk=version.dataset_id)
    require_owner(user, dataset)
    if dataset.versions.count() == 1:
        raise Conflict(f"Version {version.number} is the only one of {dataset.name}: delete the dataset instead.")
    with kept_if_used(partial(_in_use, user, f"Version {version.number} of {dataset.name}")):
        version.delete()
    before = {"version": version.number, "owner": dataset.owner.get_username()}
    audit(user, "deleted a version of", kind="dataset", key=dataset.pk, name=dataset.name, before=before)
    announce(dataset.versions.order_by("-number")[0])
    transaction.on_commit(partial(_remove_files, [version]))


@transaction.atomic
def check_again(user: User, version: DatasetVersion) -> None:
    """Queue an INVALID version for another check, after its files were corrected. Other versions are refused."""
    require_owner(user, version.dataset)
    invalid, waiting = DatasetVersion.State.INVALID, DatasetVersion.State.WAITING
    if not DatasetVersion.objects.filter(pk=version.pk, state=invalid).update(state=waiting, problem="", progress=0):
        raise Conflict("Only a version with problems can be checked again: register changed files as a new version.")
    version.refresh_from_db()
    announce(version)


def require_owner(user: User, dataset: Dataset) -> None:
    if not may_edit(user, dataset):
        raise NotAllowed(f"Only the owner of {dataset.name} and administrators may change this dataset: ask the owner.")


def _in_use(user: User, what: str, users: Collection[Any]) -> str:
    # Rows of apps above this one, such as trainings and studies.
    if others := [each for each in users if each._meta.verbose_name != "job"]:
        return f"{what} cannot be deleted: it is the data of {in_words(others, user)}."
    trainings = plural(len(users), "{count} training has", "{count} trainings have")
    return f"{what} cannot be deleted: {trainings} used this data, and their results depend on it."


def _remove_files(versions: Iterable[DatasetVersion]) -> None:
    """Remove files that Tidepool created: uploads, and folders of links."""
    root = settings.TIDEPOOL_DATA_ROOTS[0]
    for version in versions:
        if version.archive:
            Path(version.archive).unlink(missing_ok=True)
        is_ours = Path(version.path).parent in {root / "uploads", root / "sets"}
        if (version.is_uploaded or version.training) and is_ours:
            shutil.rmtree(version.path, ignore_errors=True)
            logger.info("dataset=%s version=%s its files are removed", version.dataset_id, version.number)
