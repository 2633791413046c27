"""Search algorithms that users install: who may use them, and their installation as a model's code.

The code is an ordinary model, so its files, its readers and its requirements are those of models. A training of the
study's owner runs it (`studies.control.plugin_calls`), never a process of the site.
"""

import io
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from tidepool.search_plugin import COMPAT, OPTIMIZER_FILE, RUNNER_FILE, RUNNER_SOURCE

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, field_error
from core.file_sources import Source, Upload
from core.roles import Asking, may_edit
from core.text import checked_name, is_storable, plural
from core.visibility import readable
from models_registry.actions import ModelRegistration, delete_model, register
from models_registry.code_inspection import inspect_code
from models_registry.models import RegisteredModel, RegisteredModelVersion
from studies.models import SearchPlugin, Study

__all__ = ["LOG_LEVELS", "PluginRequest", "delete_plugin", "find_plugin", "install_plugin", "plugins"]

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: Largest length of a name: the model of the code has a longer one.
_MAX_NAME = 100
_KIND = "search plug-in"
_OPEN = (Study.State.RUNNING, Study.State.PAUSED)


@dataclass(frozen=True)
class PluginRequest:
    name: str
    #: Archive with `optimizer.py` at its top.
    upload: Upload
    log_level: str = "INFO"
    asked: Mapping[str, Any] = field(default_factory=dict)


def plugins(user: Asking) -> QuerySet[SearchPlugin]:
    """Return the plug-ins that the user may use: those whose code the user may read."""
    models = readable(RegisteredModel.objects.all(), user)
    return SearchPlugin.objects.filter(code__model__in=models).select_related("owner", "code__model").order_by("name")


def find_plugin(user: Asking, name: str) -> SearchPlugin | None:
    """Return the plug-in with this name in any case, or None if there is none that the user may use."""
    return plugins(user).filter(name__iexact=name).first() if is_storable(name) else None


def install_plugin(owner: User, given: PluginRequest) -> SearchPlugin:
    """Install a search algorithm under a new name. Raises UserError with what is wrong with it."""
    name = checked_name(given.name, limit=_MAX_NAME)
    if given.log_level not in LOG_LEVELS:
        raise field_error("logLevel", f"The log level must be one of {', '.join(LOG_LEVELS)}.")
    _refuse_taken(name)
    folder: Path | None = None
    try:
        with transaction.atomic():
            code = register(owner, _registration(owner, name, given.upload))
            folder = code.folder
            _check_code(folder)
            plugin = SearchPlugin.objects.create(
                name=name, owner=owner, code=code, log_level=given.log_level, asked=dict(given.asked)
            )
            audit(owner, "installed", kind=_KIND, key=plugin.pk, name=name, after={"model": code.model.name})
    except BaseException as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, IntegrityError):  # another request has installed it meanwhile
            _refuse_taken(name)
        raise
    return plugin


@transaction.atomic
def delete_plugin(user: User, plugin: SearchPlugin) -> None:
    """Delete the plug-in, and its code unless trainings have run it. Refused while a study uses it."""
    if not may_edit(user, plugin):
        owner = plugin.owner.get_username()
        raise NotAllowed(f"The search algorithm {plugin.name} belongs to {owner}: ask the owner or an administrator.")
    if count := Study.objects.filter(plugin=plugin, state__in=_OPEN).count():
        studies = plural(count, "{count} study uses", "{count} studies use")
        raise Conflict(f"{studies} the search algorithm {plugin.name}: stop that first.", code="in_use")
    number, model = plugin.pk, plugin.code.model
    plugin.delete()
    audit(user, "deleted", kind=_KIND, key=number, name=plugin.name, before={"owner": plugin.owner.get_username()})
    if model.versions.count() == 1:
        with suppress(Conflict):  # trainings have run the code, and keep it
            delete_model(model, user)


def _refuse_taken(name: str) -> None:
    if SearchPlugin.objects.filter(name__iexact=name).exists():
        raise Conflict(f"There is a search algorithm {name}: delete it first, or choose another name.")


def _registration(owner: User, name: str, upload: Upload) -> ModelRegistration:
    return ModelRegistration(
        name=_model_name(owner, name),
        source=Source(upload=upload, more=[Upload(RUNNER_FILE, io.BytesIO(RUNNER_SOURCE.encode()))]),
        entry_point=RUNNER_FILE,
        engine=RegisteredModelVersion.Engine.SINGLE,
        compat=[COMPAT],
        description="A search algorithm: studies ask it for the values of their trials.",
    )


def _model_name(owner: User, name: str) -> str:
    """Return the name of the code's model, with the owner's name if somebody else has a model of that name."""
    wanted = f"{name}-optimizer"
    is_foreign = RegisteredModel.objects.filter(name=wanted).exclude(owner=owner).exists()
    return f"{wanted}-{owner.get_username()}" if is_foreign else wanted


def _check_code(folder: Path) -> None:
    if not (folder / OPTIMIZER_FILE).is_file():
        raise field_error(
            "file",
            f"The archive has no {OPTIMIZER_FILE} at its top: pack the files themselves, not the folder around them.",
        )
    if warning := inspect_code(folder, OPTIMIZER_FILE).warning:
        raise field_error("file", warning)
