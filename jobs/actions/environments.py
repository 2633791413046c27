"""Named environments: create, change and delete them, and find the one that a training uses."""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from tidepool.requirement_files import LOCK_FILE, PROJECT_FILES

from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Seen
from core.errors import existing, name_taken
from core.roles import require_cluster_admin
from core.text import by_reference, is_storable
from jobs.actions.project_files import lines_of_project
from jobs.actions.requirement_lines import Read, RequirementsError, read_lines, read_requirements
from jobs.actions.submission_checks import Problems, Submitted
from jobs.models import DefaultEnvironment, InstanceGroup, NamedEnvironment
from jobs.models.environments import MOST_PATH
from jobs.queries.environments import usable_environments
from jobs.queries.programs import has_conda, runs_images
from workers.executor.environments.engines import ENGINE_NAMES
from workers.executor.environments.requirements import FOLDER_OPTION, conda_in, image_in, installed

__all__ = [
    "EnvironmentSpec",
    "change_environment",
    "create_environment",
    "default_environment",
    "delete_environment",
    "environment_values",
    "find_environment",
]

_KIND: Final = "environment"
_MOST_CHARACTERS: Final = 1024 * 1024
_MOST_NOTES: Final = 1000
_MOST_SHOWN: Final = 100


@dataclass(frozen=True)
class EnvironmentSpec:
    """A named environment as an administrator writes it. Groups are names."""

    name: str
    #: Requirements in pip's format, or the text of `pyproject.toml` where `lock` is given.
    source: str = ""
    #: Text of `uv.lock`; "": the requirements are not locked.
    lock: str = ""
    #: Path of a virtual or conda environment on the hosts, instead of a source; "": there is none.
    folder: str = ""
    #: Instance groups whose trainings may use it. Empty: every group.
    groups: Sequence[str] = ()
    #: Instance groups whose trainings get it if they choose none and require nothing.
    default_of: Sequence[str] = ()
    notes: str = ""


@dataclass(frozen=True)
class _Checked:
    columns: Mapping[str, Any]
    groups: list[InstanceGroup]
    default_of: list[InstanceGroup]


def create_environment(spec: EnvironmentSpec, actor: User) -> NamedEnvironment:
    """Create a named environment. Raises UserError with a sentence for each invalid field."""
    require_cluster_admin(actor)
    checked = _checked(spec)
    with transaction.atomic():
        try:
            with transaction.atomic():
                row = NamedEnvironment.objects.create(**checked.columns)
        except IntegrityError:
            raise name_taken("Environment", spec.name) from None
        _link(row, checked)
        audit(actor, "created", **_about(row), after=environment_values(row))
    return row


@transaction.atomic
def change_environment(
    environment_id: int, given: Mapping[str, Any], actor: User, seen: Seen = UNSEEN
) -> NamedEnvironment:
    """Change the given fields of `EnvironmentSpec`. Trainings that were submitted before keep what they began with."""
    require_cluster_admin(actor)
    row = _lock(environment_id)
    before = environment_values(row)
    wanted = seen.merged(given, before, lambda: authors_of(_KIND, row.pk))
    spec = EnvironmentSpec(**{each.name: wanted.get(each.name, before[each.name]) for each in fields(EnvironmentSpec)})
    checked = _checked(spec)
    for column, value in checked.columns.items():
        setattr(row, column, value)
    try:
        with transaction.atomic():
            row.save(update_fields=[*checked.columns, "changed_at"])
    except IntegrityError:
        raise name_taken("Environment", spec.name) from None
    _link(row, checked)
    audit(actor, "changed", **_about(row), before=before, after=environment_values(row))
    return row


@transaction.atomic
def delete_environment(environment_id: int, actor: User) -> None:
    """Delete a named environment. Trainings that were submitted with it keep its requirements."""
    require_cluster_admin(actor)
    row = _lock(environment_id)
    audit(actor, "deleted", **_about(row), before=environment_values(row))
    row.delete()


def find_environment(problems: Problems, given: Submitted, group: InstanceGroup | None) -> NamedEnvironment | None:
    """Return the environment that a training chooses, if the trainings of its group may use it."""
    name = given.named_environment
    if not isinstance(name, str) or not is_storable(name):
        problems.add("named_environment", "Give the name of an environment as text.")
        return None
    row = by_reference(NamedEnvironment.objects.all(), name)
    if row is None:
        known = usable_environments([group] if group else [])
        names = ", ".join(each.name for each in known[:20])
        problems.add(
            "named_environment",
            f"Environment {name[:_MOST_SHOWN]!r} not found: "
            + (f"choose one of {names}." if names else "there is none that this training may use; choose none."),
        )
        return None
    allowed = list(row.groups.all())
    if group is not None and allowed and group not in allowed:
        problems.add(
            "named_environment",
            f"Environment {row.name!r} is not for trainings of {group.name}: choose another one, or submit to an "
            "instance group that may use it.",
        )
        return None
    return row


def default_environment(group: InstanceGroup | None) -> NamedEnvironment | None:
    """Return the environment of the group's trainings that choose none and require nothing."""
    if group is None:
        return None
    default = DefaultEnvironment.objects.select_related("environment").filter(group=group).first()
    return default.environment if default else None


# --- checks ---------------------------------------------------------------------------------------------------------


def _checked(spec: EnvironmentSpec) -> _Checked:
    problems = Problems()
    name = problems.checked_name(spec.name, limit=64)
    if name.isdecimal():
        problems.add("name", "Use a letter in the name: numbers are ids.")
    folder = _checked_folder(problems, spec)
    lines = f"{FOLDER_OPTION} {folder}" if spec.folder.strip() else _lines_of(problems, spec)
    notes = spec.notes.strip()
    if len(notes) > _MOST_NOTES or not is_storable(notes):
        problems.add("notes", f"Use at most {_MOST_NOTES} characters.")
    groups = _found_groups(problems, "groups", spec.groups)
    default_of = _found_groups(problems, "default_of", spec.default_of)
    for group in default_of:
        if groups and group not in groups:
            problems.add("default_of", f"{group.name} may not use the environment: add it to the groups that may.")
    problems.raise_if_any()
    kinds = NamedEnvironment.Kind
    kind = kinds.FOLDER if folder else kinds.LOCK if spec.lock else kinds.TEXT
    texts = {"source": "" if folder else spec.source, "lock": spec.lock, "folder": folder, "lines": lines}
    return _Checked({"name": name, "kind": kind, **texts, "notes": notes}, groups, default_of)


def _checked_folder(problems: Problems, spec: EnvironmentSpec) -> str:
    """Return the folder without what is redundant in its path. The hosts say whether they have it."""
    given = spec.folder.strip()
    if not given:
        return ""
    folder = posixpath.normpath(given)
    if not given.startswith("/") or ".." in given.split("/") or folder in ("/", "//") or not given.isprintable():
        problems.add("folder", "Give the whole path of a folder that the hosts have, such as /opt/envs/vision.")
    elif len(folder) > MOST_PATH:
        problems.add("folder", f"Use at most {MOST_PATH} characters.")
    if spec.source.strip() or spec.lock.strip():
        problems.add("folder", "A folder has all packages: give no requirements beside it.")
    return folder


def _lines_of(problems: Problems, spec: EnvironmentSpec) -> str:
    """Return the requirements as hosts get them."""
    field = "lock" if spec.lock else "source"
    if max(len(spec.source), len(spec.lock)) > _MOST_CHARACTERS or not is_storable(spec.source + spec.lock):
        problems.add(field, f"Give at most {_MOST_CHARACTERS:,} characters of text.")
        return ""
    try:
        found = _locked(spec) if spec.lock else read_requirements(spec.source, "", _no_file, installed())
    except RequirementsError as error:
        problems.add(field, str(error))
        return ""
    for each in found.unusable:
        problems.add(field, each.sentence)
    if conda_in(found.usable) and not has_conda(None):
        problems.add(field, "Lines with --conda need a host with micromamba, mamba or conda, and none reports one.")
    if image_in(found.usable) and not runs_images(None):
        problems.add(field, f"A container image needs a host with {ENGINE_NAMES}, and none reports one.")
    # The folder of each training has its own project, which is no part of an environment.
    lines = [line for line in found.usable if not line.startswith("-e ")]
    if not lines and not found.unusable:
        problems.add(field, "Give at least one requirement, such as timm>=1.0 or --python >=3.12, or a folder.")
    return "\n".join(lines)


def _locked(spec: EnvironmentSpec) -> Read:
    texts = {PROJECT_FILES[0]: spec.source, LOCK_FILE: spec.lock}
    with TemporaryDirectory(prefix="tidepool-environment-") as folder:
        for name, text in texts.items():
            Path(folder, name).write_text(text)
        lines = lines_of_project(Path(folder), ".", texts.get)
        return read_lines(lines or (), texts.get, installed())


def _no_file(name: str) -> str | None:
    """Return None: an environment is one text, and no file is beside it."""


def _found_groups(problems: Problems, field: str, names: Iterable[str]) -> list[InstanceGroup]:
    found = []
    for name in dict.fromkeys(names):
        group = by_reference(InstanceGroup.objects.all(), name)
        if group is None:
            problems.add(field, f"Instance group {name[:_MOST_SHOWN]!a} not found: check its name.")
        else:
            found.append(group)
    return found


def _lock(environment_id: int) -> NamedEnvironment:
    row = NamedEnvironment.objects.select_for_update().filter(pk=environment_id).first()
    return existing(row, f"environment {environment_id}")


def _link(row: NamedEnvironment, checked: _Checked) -> None:
    row.groups.set(checked.groups)
    row.default_of.exclude(group__in=checked.default_of).delete()
    for group in checked.default_of:
        DefaultEnvironment.objects.update_or_create(group=group, defaults={"environment": row})


def _about(row: NamedEnvironment) -> dict[str, Any]:
    return {"kind": _KIND, "key": row.pk, "name": row.name}


def environment_values(row: NamedEnvironment) -> dict[str, Any]:
    """Return the fields of `EnvironmentSpec`."""
    return {
        "name": row.name,
        "source": row.source,
        "lock": row.lock,
        "folder": row.folder,
        "groups": sorted(row.groups.values_list("name", flat=True)),
        "default_of": sorted(row.default_of.values_list("group__name", flat=True)),
        "notes": row.notes,
    }
