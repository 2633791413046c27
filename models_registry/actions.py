"""Registration of templates and models with copies of their files. No other module writes this app's rows."""

import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings as site
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from tidepool.units import size_words

from core.archive import ARCHIVE_SUFFIXES
from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Seen
from core.errors import NotAllowed, field_error, if_full
from core.file_sources import Source, new_upload_folder, obtained
from core.folders import HASHED_BYTES, folder_facts, is_own
from core.parameters import Scalar, checked_parameters
from core.registered_rows import delete_named, in_words, refuse_foreign, store_version
from core.roles import may_edit
from core.text import checked_name, is_storable, plural
from core.visibility import Readers
from models_registry.code_inspection import COMPAT_MODULES, checked_entry_point, found_entry_point, inspect_code
from models_registry.model_settings import checked_settings, setting_uses
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion

__all__ = [
    "ModelRegistration",
    "TemplateAddition",
    "add_template",
    "delete_model",
    "delete_template",
    "readers_of_training",
    "register",
    "register_script",
    "set_readers",
    "take_again",
]

_IGNORED = shutil.ignore_patterns("__pycache__", ".git", "*.pyc")


@dataclass(frozen=True)
class TemplateAddition:
    name: str
    source: Source
    entry_point: str = "main.py"
    framework: str = ModelTemplate.Framework.PYTORCH
    #: Readers of the code, one of `Readers`.
    readers: str = Readers.EVERYBODY
    description: str = ""


@dataclass(frozen=True)
class ModelRegistration:
    name: str
    #: Source of the code: files, a template, or another version.
    source: Source | ModelTemplate | RegisteredModelVersion
    #: Script that trains, for a source of files. "": the only candidate.
    entry_point: str = ""
    framework: str = RegisteredModelVersion.Framework.PYTORCH
    #: Engine; "": the one that the code shows.
    engine: str = RegisteredModelVersion.Engine.ELASTIC
    #: Name of the dataset that is suggested for trainings; empty: none.
    default_dataset: str = ""
    #: Settings by their names in `models_registry.model_settings`; the script gets those that it declares.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Parameters that the script gets in any case; they take precedence over settings.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Compatibility folders on the script's path; None: found from the imports of the code.
    compat: list[str] | None = None
    #: One of `Readers`. "": the model's readers; for a new model those of its source, or everybody.
    readers: str = ""
    #: Whether code that Python cannot parse is refused. Otherwise it is registered, and its pages say so.
    refuses_broken_code: bool = False
    description: str = ""


def add_template(owner: User, addition: TemplateAddition) -> ModelTemplate:
    """Register a template under a new name."""
    name = checked_name(addition.name)
    _check_choice("framework", [addition.framework], ModelTemplate.Framework.values)
    _check_choice("readers", [addition.readers], Readers.values)
    _refuse_own_copies(addition.source)
    if ModelTemplate.objects.filter(name=name).exists():
        raise field_error(
            "name", f"There is already a template {name!r}: choose another name, or update that template."
        )
    with _kept_code(addition.source, addition.entry_point, compat=None, label=name) as code:
        return ModelTemplate.objects.create(
            name=name,
            description=addition.description,
            framework=addition.framework,
            owner=owner,
            readers=addition.readers,
            taken_at=timezone.now(),
            **code.columns,
        )


def take_again(template: ModelTemplate, user: User) -> ModelTemplate:
    """Copy the files at the template's path again. Models that were made from it keep their copies."""
    _refuse_others(user, template, "template")
    former = template.folder
    with _kept_code(Source(path=template.path), template.entry_point, compat=None, label=template.name) as code:
        ModelTemplate.objects.filter(pk=template.pk).update(**code.columns, taken_at=timezone.now())
    _drop_unused([former])
    template.refresh_from_db()
    return template


@transaction.atomic
def delete_template(template: ModelTemplate, user: User) -> None:
    _refuse_others(user, template, "template")

    def refusal(versions: Collection[RegisteredModelVersion]) -> str:
        names = sorted({version.model.name for version in versions})
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"The template {template.name} cannot be deleted: {shown} uses it."

    delete_named(user, template, "template", refusal)
    transaction.on_commit(partial(_drop_unused, [template.folder]))


@transaction.atomic
def delete_model(model: RegisteredModel, user: User) -> None:
    """Delete the model with its versions. Refused if a training has used one."""
    _refuse_others(user, model, "model")
    folders = [version.folder for version in model.versions.all()]

    def refusal(users: Collection[Any]) -> str:
        # Rows of apps above this one, such as trainings, studies and search algorithms.
        if others := [each for each in users if each._meta.verbose_name != "job"]:
            return f"The model {model.name} cannot be deleted: it is the code of {in_words(others, user)}."
        trainings = plural(len(users), "{count} training was", "{count} trainings were")
        return f"The model {model.name} cannot be deleted: {trainings} started with this model and would lose the code."

    delete_named(user, model, "model", refusal)
    transaction.on_commit(partial(_drop_unused, folders))


def register(owner: User, registration: ModelRegistration, *, reuse: bool = False) -> RegisteredModelVersion:
    """Register a new model, or the next version of one that belongs to `owner`.

    reuse: return the newest version if it has the same files and settings; share files with an older version.
    """
    name = checked_name(registration.name)
    parameters = checked_parameters(registration.parameters)
    settings = checked_settings(registration.settings)
    _check_choice("framework", [registration.framework], RegisteredModelVersion.Framework.values)
    _check_choice("engine", list(filter(None, [registration.engine])), RegisteredModelVersion.Engine.values)
    _check_choice("readers", list(filter(None, [registration.readers])), Readers.values)
    _check_choice("compat", registration.compat or [], sorted(COMPAT_MODULES))
    if registration.default_dataset:
        checked_name(registration.default_dataset, field="dataset")
    refuse_foreign(owner, RegisteredModel.objects.filter(name=name).first(), "model")
    source = registration.source
    if isinstance(source, Source):
        _refuse_own_copies(source)
    readers = registration.readers or _readers_of(source)
    with _kept_code(source, registration.entry_point, compat=registration.compat, label=name) as code:
        if code.warning and registration.refuses_broken_code:
            raise field_error("entry_point", code.warning)
        version = RegisteredModelVersion(
            framework=registration.framework,
            engine=registration.engine or code.engine,
            template=source.template if isinstance(source, RegisteredModelVersion) else None,
            settings=settings,
            default_dataset=registration.default_dataset,
            **code.columns,
        )
        if isinstance(source, ModelTemplate):
            version.template = source
        version.parameters = {**_declared_settings(version), **parameters}
        brought, same = Path(version.copy), _same_as(version, name) if reuse else None
        if same is None:
            if reuse:
                _share_files(version, name)
            described = {"description": registration.description}
            if registration.readers:
                described["readers"] = readers
            models = RegisteredModel.objects.all()
            store_version(owner, version, models, name, "model", {"readers": readers}, **described)
    _drop_unused([brought])
    return version if same is None else same


def register_script(owner: User, source: Source, entry_point: str = "", engine: str = "") -> RegisteredModelVersion:
    """Register a script, or a folder of scripts. Its name and engine are found from the files.

    engine: the engine, if the code does not show it.

    Only the owner can read a new model. Files that equal the newest version make no new one.
    Raises EntryPointWanted if a person has to choose the script that trains, and UserError if Python cannot parse it.
    """
    path = source.path or (source.upload.name if source.upload else "")
    if not is_storable(path):
        raise field_error("path", "The path contains a character that no file name can contain: remove it.")
    name = _name_for(owner, Path(path))
    readers = readers_of_training(name)
    registration = ModelRegistration(
        name, source, entry_point, engine=engine, readers=readers, refuses_broken_code=True
    )
    return register(owner, registration, reuse=True)


def readers_of_training(name: str) -> str:
    """Return the `readers` for files that are submitted with a training: only the owner reads a new model."""
    return "" if RegisteredModel.objects.filter(name=name).exists() else Readers.OWNER


@transaction.atomic
@transaction.atomic
def set_readers(row: RegisteredModel | ModelTemplate, readers: str, user: User, seen: Seen = UNSEEN) -> None:
    """Set who may read a model or template. Trainings keep the code that they were submitted with."""
    what = "model" if isinstance(row, RegisteredModel) else "template"
    _refuse_others(user, row, what)
    _check_choice("readers", [readers], Readers.values)
    type(row)._default_manager.select_for_update().get(pk=row.pk)
    row.refresh_from_db(fields=["readers"])
    before = {"readers": row.readers}
    row.readers = seen.merged({"readers": readers}, before, lambda: authors_of(what, row.pk)).get(
        "readers", row.readers
    )
    row.save(update_fields=["readers"])
    audit(user, "changed", kind=what, key=row.pk, name=row.name, before=before, after={"readers": row.readers})


def _name_for(owner: User, path: Path) -> str:
    """Return the name of the file or folder, with the user's name appended if somebody else's model has it."""
    name = path.name
    for suffix in (".py", *ARCHIVE_SUFFIXES):
        name = name.removesuffix(suffix)
    name = name.lstrip(".") or "script"
    is_foreign = RegisteredModel.objects.filter(name=name).exclude(owner=owner).exists()
    return f"{name}-{owner.get_username()}" if is_foreign else name


def _same_as(new: RegisteredModelVersion, name: str) -> RegisteredModelVersion | None:
    """Return the model's newest version if it equals the new one; older ones do not count."""
    facts = ("digest", "entry_point", "engine", "framework", "compat", "settings", "parameters", "default_dataset")
    newest = RegisteredModelVersion.objects.filter(model__name=name).select_related("model").order_by("-number").first()
    if newest is None or not newest.digest or any(getattr(newest, each) != getattr(new, each) for each in facts):
        return None
    # A later release may read more from the same code.
    return newest if newest.declared == new.declared else None


def _share_files(new: RegisteredModelVersion, name: str) -> None:
    """Use the copy of an older version of the model with the same files, if there is one."""
    older = RegisteredModelVersion.objects.filter(model__name=name, digest=new.digest)
    former = older.exclude(digest="").exclude(copy="").order_by("number").first()
    if former is None or not former.folder.is_dir():
        return
    if new.path == new.copy:  # an upload exists nowhere else
        new.path = former.copy
    new.copy = former.copy


def _declared_settings(version: RegisteredModelVersion) -> dict[str, Scalar]:
    """Return the settings that the script declares, by the names of its arguments."""
    if not version.settings:
        return {}
    arguments = [argument for argument in version.declared.arguments if argument.takes == "value"]
    return {each.argument: each.given for each in setting_uses(version.settings, arguments) if each.argument}


def _readers_of(source: Source | ModelTemplate | RegisteredModelVersion) -> str:
    """Return the readers of the code's source; files are for everybody."""
    if isinstance(source, Source):
        return Readers.EVERYBODY
    return source.model.readers if isinstance(source, RegisteredModelVersion) else source.readers


def _refuse_own_copies(source: Source) -> None:
    """Refuse a path to a copy of other code, which would bypass `core.visibility`."""
    if source.path and is_own(source.path, site.TIDEPOOL_MODEL_ROOTS):
        raise field_error(
            "path", "The path belongs to a model or template: clone the model, or create a model from the template."
        )


@dataclass(frozen=True)
class _Code:
    #: Columns of `KeptCode`.
    columns: Mapping[str, Any]
    #: Engine that the code shows.
    engine: str
    #: Sentence about code that Python cannot parse, or None.
    warning: str | None


@contextmanager
def _kept_code(
    source: Source | ModelTemplate | RegisteredModelVersion, entry_point: str, *, compat: list[str] | None, label: str
) -> Iterator[_Code]:
    """Yield the code, copied unless it is a template's or a version's. If the body fails, a new copy is removed.

    compat: compatibility folders; None: found from the imports of the code.
    """
    if not isinstance(source, Source):
        yield _inspected(Path(source.path), source.folder, source.entry_point, compat, digest=source.digest)
        return
    with obtained(source, site.TIDEPOOL_MODEL_ROOTS, label=label, single=(".py",)) as folder:
        if folder.is_file() and folder.suffix != ".py":
            raise field_error("path", "The path is a file: enter the folder that contains the code, or a .py file.")
        if folder.is_dir():
            entry_point = checked_entry_point(folder, entry_point or found_entry_point(folder))
        _check_size(folder)
        if source.upload is not None:
            yield _inspected(folder, folder, entry_point, compat)
            return
        with _copied(folder, label) as copy:
            script = checked_entry_point(copy, entry_point or folder.name)
            yield _inspected(folder, copy, script, compat)


def _check_size(folder: Path) -> None:
    try:
        facts = folder_facts(folder)
    except OSError as error:
        raise field_error(
            "path", f"A file in the folder cannot be read ({error.strerror}): change its permissions."
        ) from error
    if not facts.digest:
        raise field_error(
            "path",
            f"The folder has {size_words(facts.size_bytes)}, but the code of a model may have at most "
            f"{size_words(HASHED_BYTES)}. Move data and weights elsewhere.",
        )


@contextmanager
def _copied(folder: Path, label: str) -> Iterator[Path]:
    copy = new_upload_folder(site.TIDEPOOL_MODEL_ROOTS, label)
    try:
        if folder.is_file():
            copy.mkdir(parents=True)
            shutil.copy2(folder, copy)
        else:
            # Links are copied as links: following them could copy any file of the server.
            shutil.copytree(folder, copy, symlinks=True, ignore=_IGNORED)
        yield copy
    except BaseException as error:
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, OSError):
            sentence = f"The files cannot be copied ({error.strerror or error})."
            raise if_full(error) or field_error("path", sentence) from error
        raise


def _inspected(path: Path, folder: Path, entry_point: str, compat: list[str] | None, *, digest: str = "") -> _Code:
    facts = inspect_code(folder, entry_point)
    columns = {
        "path": str(path),
        "copy": str(folder),
        "entry_point": entry_point,
        "digest": digest or folder_facts(folder).digest,
        "compat": facts.compat if compat is None else sorted(set(compat)),
        "folder_arguments": facts.folder_arguments,
        "script": facts.declared.to_json(),
    }
    return _Code(columns, facts.engine, facts.warning)


def _drop_unused(folders: list[Path]) -> None:
    """Remove copies that no row refers to. Call it after the rows are deleted and committed."""
    ours = site.TIDEPOOL_MODEL_ROOTS[0] / "uploads"
    for folder in folders:
        kept = {"copy": str(folder)}
        rows = (RegisteredModelVersion.objects.filter(**kept), ModelTemplate.objects.filter(**kept))
        if folder.parent == ours and not any(named.exists() for named in rows):
            shutil.rmtree(folder, ignore_errors=True)


def _refuse_others(user: User, row: ModelTemplate | RegisteredModel, what: str) -> None:
    if not may_edit(user, row):
        raise NotAllowed(
            f"The {what} {row.name} belongs to {row.owner.get_username()}: ask the owner or an administrator."
        )


def _check_choice(name: str, given: list[str], choices: list[str]) -> None:
    if not set(given) <= set(choices):
        raise field_error(name, f"The {name} must be {' or '.join(choices)}.")
