"""Registers datasets. Whether their files are good is found by a check: at once for small ones, later for others."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from core.archive import ARCHIVE_SUFFIXES
from core.errors import UserError, field_error
from core.folders import resolve_under
from core.models import Upload
from core.names import checked_name
from core.ownership import refuse_foreign
from core.sources import Source, new_upload_folder, obtained, slug
from core.text import storable
from core.uploads import find_upload, finished_file
from datasets.actions.checking import SINGLE_SUFFIXES, check_at_once_if_small
from datasets.actions.checks import announce
from datasets.models import LINKS, Dataset, DatasetVersion

__all__ = ["DatasetRegistration", "register", "version_at"]

#: Leaves room for what is put behind it.
_MAX_MADE_NAME = 80
_ONE_SOURCE = "Give one of: a folder on the server, or a file to upload."


@dataclass(frozen=True)
class DatasetRegistration:
    """A dataset to register: files from `source`, from folders picked one by one, or from a finished upload."""

    name: str
    source: Source = field(default_factory=Source)
    kind: str = Dataset.Kind.ANY
    description: str = ""
    #: Paths. Only the first is needed; alone it may hold the others as `val` and `test`.
    training: str = ""
    validation: str = ""
    testing: str = ""
    #: Id of an upload of the owner's.
    upload: int | None = None


@dataclass(frozen=True)
class _Files:
    """The places of a version's files: fields of its row."""

    path: str
    picked: dict[str, str] = field(default_factory=dict)
    is_uploaded: bool = False
    archive: str = ""
    archive_name: str = ""
    upload: Upload | None = None

    @property
    def fields(self) -> dict[str, Any]:
        given = {"is_uploaded": self.is_uploaded, "archive": self.archive, "archive_name": self.archive_name}
        return {"path": self.path, **self.picked, **given}


def register(owner: User, registration: DatasetRegistration) -> DatasetVersion:
    """A new dataset, or the next version of one that belongs to `owner`."""
    name = checked_name(registration.name)
    if registration.kind not in Dataset.Kind.values:
        raise field_error("kind", f"There is no such kind: use one of {', '.join(Dataset.Kind.values)}.")
    refuse_foreign(owner, Dataset.objects.filter(name=name).first(), "dataset")
    with _files(owner, registration, name) as files:
        version = _store(owner, registration, name, files)
    return check_at_once_if_small(version)


def version_at(owner: User, path: str) -> DatasetVersion:
    """The newest version of whatever dataset has its files at `path`; where there is none, of a new one of `owner`.

    Its check does not matter where nothing is asked of its files: an empty folder is what a script downloads to.
    path: as in a registration; "": the whole data folder, which nobody looks into.
    """
    folder = _resolved(path, "data_path") if path.strip("/.") else Path(settings.TIDEPOOL_DATA_ROOTS[0])
    there = DatasetVersion.objects.select_related("dataset").filter(path=str(folder))
    unfit = Q(state=DatasetVersion.State.INVALID) & ~Q(dataset__kind=Dataset.Kind.ANY)
    known = there.exclude(unfit).order_by("-pk").first()
    if known is not None:
        return known
    if not path.strip("/."):
        return _whole_data_folder(owner, folder)
    return register(owner, DatasetRegistration(_free_name(owner, folder), Source(path=str(folder))))


@transaction.atomic
def _whole_data_folder(owner: User, folder: Path) -> DatasetVersion:
    dataset = Dataset.objects.create(
        name=_free_name(owner, Path("data-folder")), owner=owner, description="The whole data folder."
    )
    facts = {"state": DatasetVersion.State.READY, "size_bytes": 0, "file_count": 0}
    version = DatasetVersion.objects.create(dataset=dataset, number=1, path=str(folder), **facts)
    announce(version)
    return version


def _free_name(owner: User, folder: Path) -> str:
    """The folder's name, or one made of it that no dataset has."""
    name = storable(folder.name)[:_MAX_MADE_NAME].strip(" .") or "data"
    wanted = [name, f"{name}-{owner.get_username()}"]
    wanted += [f"{name}-{secrets.token_hex(4)}"]
    taken = set(Dataset.objects.filter(name__in=wanted).values_list("name", flat=True))
    return next(each for each in wanted if each not in taken)


@contextmanager
def _files(owner: User, given: DatasetRegistration, name: str) -> Iterator[_Files]:
    """Make the files ready; what was made is removed again when the body fails."""
    source = given.source
    is_picked = bool(given.training or given.validation or given.testing)
    if sum((is_picked, bool(source.path), source.upload is not None, given.upload is not None)) != 1:
        raise UserError(_ONE_SOURCE, fields={"path": [_ONE_SOURCE]})
    if given.upload is not None:
        yield _from_upload(owner, given.upload, name)
    elif given.validation or given.testing:
        picked = _picked(given)
        with _linked(picked, name) as folder:
            yield _Files(str(folder), picked)
    elif given.training:
        yield _Files(str(_resolved(given.training, "training")))
    else:
        with obtained(source, settings.TIDEPOOL_DATA_ROOTS, label=name, single=SINGLE_SUFFIXES) as folder:
            yield _Files(str(folder), is_uploaded=source.upload is not None)


def _from_upload(owner: User, upload_id: int, name: str) -> _Files:
    upload = find_upload(owner, upload_id)
    if not upload.name.lower().endswith((*SINGLE_SUFFIXES, *ARCHIVE_SUFFIXES)):
        raise field_error("upload", f"{upload.name} is no archive and no data file: upload a .zip or .tar.gz.")
    folder = new_upload_folder(settings.TIDEPOOL_DATA_ROOTS, name)
    return _Files(
        str(folder), is_uploaded=True, archive=str(finished_file(upload)), archive_name=upload.name, upload=upload
    )


def _picked(given: DatasetRegistration) -> dict[str, str]:
    if not given.training:
        raise field_error("training", "Pick the training folder, too: what is validated must have been trained.")
    asked = {"training": given.training, "validation": given.validation, "testing": given.testing}
    return {role: str(_resolved(path, role)) for role, path in asked.items() if path}


def _resolved(path: str, role: str) -> Path:
    return resolve_under(path, settings.TIDEPOOL_DATA_ROOTS, field=role)


@contextmanager
def _linked(picked: dict[str, str], name: str) -> Iterator[Path]:
    """One folder for scripts to read, with a link to each that was picked, called as in IBM's tutorial."""
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
def _store(owner: User, registration: DatasetRegistration, name: str, files: _Files) -> DatasetVersion:
    described = {"kind": registration.kind, "description": registration.description}
    dataset, is_new = Dataset.objects.select_for_update().get_or_create(
        name=name, defaults={"owner": owner, **described}
    )
    if not is_new:
        refuse_foreign(owner, dataset, "dataset")
        dataset.kind, dataset.description = registration.kind, registration.description
        dataset.save(update_fields=["kind", "description"])
    if files.upload is not None:
        files.upload.delete()
    newest = dataset.versions.order_by("-number").first()
    number = newest.number + 1 if newest else 1
    version = DatasetVersion.objects.create(dataset=dataset, number=number, **files.fields)
    announce(version)
    return version
