"""Registers models: the only writer of this app's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from models_registry.code import COMPAT_MODULES, checked_entry_point, inspect_code
from models_registry.models import RegisteredModel, RegisteredModelVersion
from webapp.lib.errors import field_error
from webapp.lib.folders import folder_facts
from webapp.lib.names import checked_name
from webapp.lib.ownership import refuse_foreign
from webapp.lib.parameters import Scalar, checked_parameters
from webapp.lib.sources import Source, obtained

__all__ = ["ModelRegistration", "register"]


@dataclass(frozen=True)
class ModelRegistration:
    name: str
    source: Source
    entry_point: str
    framework: str = RegisteredModelVersion.Framework.PYTORCH
    engine: str = RegisteredModelVersion.Engine.ELASTIC
    #: Name of the dataset proposed when training; empty: none.
    default_dataset: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: None: told from what the code imports.
    compat: list[str] | None = None
    description: str = ""


def register(owner: User, registration: ModelRegistration) -> RegisteredModelVersion:
    """A new model, or the next version of one that belongs to `owner`."""
    name = checked_name(registration.name)
    parameters = checked_parameters(registration.parameters)
    _check_choices(registration)
    if registration.default_dataset:
        checked_name(registration.default_dataset, field="dataset")
    refuse_foreign(owner, RegisteredModel.objects.filter(name=name).first(), "model")
    with obtained(registration.source, settings.TIDEPOOL_MODEL_ROOTS, label=name, single=(".py",)) as folder:
        return _store(owner, registration, name, _version(registration, folder, parameters))


def _version(registration: ModelRegistration, folder: Path, parameters: dict[str, Scalar]) -> RegisteredModelVersion:
    """The version's row, not stored yet."""
    if not folder.is_dir():
        raise field_error("path", "The path is a file: name the folder that holds the model's code.")
    entry_point = checked_entry_point(folder, registration.entry_point)
    compat = registration.compat
    return RegisteredModelVersion(
        framework=registration.framework,
        engine=registration.engine,
        path=str(folder),
        entry_point=entry_point,
        digest=folder_facts(folder).digest,
        parameters=parameters,
        compat=inspect_code(folder, entry_point).compat if compat is None else sorted(set(compat)),
        default_dataset=registration.default_dataset,
    )


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


def _check_choices(registration: ModelRegistration) -> None:
    known: list[tuple[str, list[str], list[str]]] = [
        ("framework", [registration.framework], RegisteredModelVersion.Framework.values),
        ("engine", [registration.engine], RegisteredModelVersion.Engine.values),
        ("compat", registration.compat or [], sorted(COMPAT_MODULES)),
    ]
    for name, given, choices in known:
        if not set(given) <= set(choices):
            raise field_error(name, f"There is no such {name}: use {' or '.join(choices)}.")
