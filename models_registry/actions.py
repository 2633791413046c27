"""Adds templates and registers models: the only writer of this app's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, field_error
from core.names import checked_name
from core.ownership import refuse_foreign
from core.parameters import Scalar, checked_parameters
from core.sources import Source
from models_registry.code import COMPAT_MODULES, inspect_code
from models_registry.keeping import Code, drop_unused, kept_code
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from models_registry.settings import checked_settings, told

__all__ = [
    "ModelRegistration",
    "TemplateAddition",
    "add_template",
    "delete_model",
    "delete_template",
    "register",
    "take_again",
]


@dataclass(frozen=True)
class TemplateAddition:
    name: str
    source: Source
    entry_point: str = "main.py"
    framework: str = ModelTemplate.Framework.PYTORCH
    description: str = ""


@dataclass(frozen=True)
class ModelRegistration:
    name: str
    #: Files; or what has been taken over already: a template, or another version.
    source: Source | ModelTemplate | RegisteredModelVersion
    #: Of files.
    entry_point: str = ""
    framework: str = RegisteredModelVersion.Framework.PYTORCH
    engine: str = RegisteredModelVersion.Engine.ELASTIC
    #: Name of the dataset proposed when training; empty: none.
    default_dataset: str = ""
    #: By names of `models_registry.settings`; each is given to the script if it asks for it.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Given to the script whatever it asks for, over the settings.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: None: told from what the code imports.
    compat: list[str] | None = None
    description: str = ""


def add_template(owner: User, addition: TemplateAddition) -> ModelTemplate:
    """A new template. A name is given once."""
    name = checked_name(addition.name)
    _check_choice("framework", [addition.framework], ModelTemplate.Framework.values)
    if ModelTemplate.objects.filter(name=name).exists():
        raise field_error("name", f"There is a template {name!r}: choose another name, or take its files again there.")
    with kept_code(addition.source, addition.entry_point, compat=None, label=name) as code:
        return ModelTemplate.objects.create(
            name=name,
            description=addition.description,
            framework=addition.framework,
            owner=owner,
            taken_at=timezone.now(),
            **asdict(code),
        )


def take_again(template: ModelTemplate, user: User) -> ModelTemplate:
    """Take the files over as they are at the template's path now. Models made of it before keep theirs."""
    _refuse_others(user, template, "template")
    source = Source(path=template.path)
    former = template.folder
    with kept_code(source, template.entry_point, compat=None, label=template.name) as code:
        values = {**asdict(code), "taken_at": timezone.now()}
        ModelTemplate.objects.filter(pk=template.pk).update(**values)
    drop_unused([former])
    template.refresh_from_db()
    return template


@transaction.atomic
def delete_template(template: ModelTemplate, user: User) -> None:
    _refuse_others(user, template, "template")
    folder, number = template.folder, template.pk
    try:
        template.delete()
    except ProtectedError as error:
        names = sorted(
            {str(row.model.name) for row in error.protected_objects if isinstance(row, RegisteredModelVersion)}
        )
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise Conflict(f"The template {template.name} stays: it is what {shown} was made of.") from error
    _record_deleted(user, number, template, "template")
    transaction.on_commit(partial(drop_unused, [folder]))


def register(owner: User, registration: ModelRegistration, *, reuse: bool = False) -> RegisteredModelVersion:
    """A new model, or the next version of one that belongs to `owner`.

    reuse: a version that has the same files and terms already is the one.
    """
    name = checked_name(registration.name)
    parameters = checked_parameters(registration.parameters)
    settings = checked_settings(registration.settings)
    _check_choice("framework", [registration.framework], RegisteredModelVersion.Framework.values)
    _check_choice("engine", [registration.engine], RegisteredModelVersion.Engine.values)
    _check_choice("compat", registration.compat or [], sorted(COMPAT_MODULES))
    if registration.default_dataset:
        checked_name(registration.default_dataset, field="dataset")
    refuse_foreign(owner, RegisteredModel.objects.filter(name=name).first(), "model")
    source = registration.source
    with kept_code(source, registration.entry_point, compat=registration.compat, label=name) as code:
        version = RegisteredModelVersion(
            framework=registration.framework,
            engine=registration.engine,
            template=_template(source),
            settings=settings,
            parameters=_with_settings(code, settings, parameters),
            default_dataset=registration.default_dataset,
            **asdict(code),
        )
        same = _same_as(version, name) if reuse else None
        if same is None:
            return _store(owner, registration, name, version)
    drop_unused([Path(version.copy)])
    return same


def _same_as(new: RegisteredModelVersion, name: str) -> RegisteredModelVersion | None:
    """The newest version of the model that is no other than this."""
    facts = ("digest", "entry_point", "engine", "framework", "compat", "settings", "parameters", "default_dataset")
    same = {fact: getattr(new, fact) for fact in facts}
    versions = RegisteredModelVersion.objects.filter(model__name=name, digest=new.digest).exclude(digest="")
    there = versions.select_related("model").order_by("-number")
    return next((row for row in there if {fact: getattr(row, fact) for fact in facts} == same), None)


@transaction.atomic
def delete_model(model: RegisteredModel, user: User) -> None:
    """Its versions too. Refused while trainings name one of them."""
    _refuse_others(user, model, "model")
    folders, number = [version.folder for version in model.versions.all()], model.pk
    try:
        model.delete()
    except ProtectedError as error:
        count = len(error.protected_objects)
        words = "1 training was" if count == 1 else f"{count} trainings were"
        raise Conflict(
            f"The model {model.name} stays: {words} started with it, and would lose what they ran."
        ) from error
    _record_deleted(user, number, model, "model")
    transaction.on_commit(partial(drop_unused, folders))


def _template(source: Source | ModelTemplate | RegisteredModelVersion) -> ModelTemplate | None:
    if isinstance(source, RegisteredModelVersion):
        return source.template
    return source if isinstance(source, ModelTemplate) else None


def _with_settings(code: Code, settings: dict[str, Scalar], parameters: dict[str, Scalar]) -> dict[str, Scalar]:
    if not settings:
        return parameters
    arguments = inspect_code(Path(code.copy), code.entry_point).arguments
    asked_for = {each.argument: each.given for each in told(settings, arguments) if each.argument}
    return {**asked_for, **parameters}


@transaction.atomic
def _store(
    owner: User, registration: ModelRegistration, name: str, version: RegisteredModelVersion
) -> RegisteredModelVersion:
    model, is_new = RegisteredModel.objects.select_for_update().get_or_create(
        name=name, defaults={"owner": owner, "description": registration.description}
    )
    if not is_new:
        refuse_foreign(owner, model, "model")
        model.description = registration.description
        model.save(update_fields=["description"])
    newest = model.versions.order_by("-number").first()
    version.model = model
    version.number = newest.number + 1 if newest else 1
    version.save(force_insert=True)
    return version


def _record_deleted(user: User, number: int, row: ModelTemplate | RegisteredModel, what: str) -> None:
    before = {"owner": row.owner.get_username()}
    audit(user, "deleted", kind=what, key=number, name=row.name, before=before)


def _refuse_others(user: User, row: ModelTemplate | RegisteredModel, what: str) -> None:
    if row.owner_id != user.pk and not user.is_staff:
        raise NotAllowed(f"The {what} {row.name} belongs to {row.owner.get_username()}: ask them, or an administrator.")


def _check_choice(name: str, given: list[str], choices: list[str]) -> None:
    if not set(given) <= set(choices):
        raise field_error(name, f"There is no such {name}: use {' or '.join(choices)}.")
