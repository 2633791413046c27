"""Secrets: add, replace and delete them, and find those that a training gets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, field_error
from core.sealing import seal
from core.text import by_reference, is_storable, plural
from jobs.actions.submission_checks import VARIABLE_NAME, InvalidSubmission, Problems, Submitted, is_own_variable, shown
from jobs.models import InstanceGroup, Job, Secret, SecretUse
from jobs.queries.secrets import administered_groups, find_visible_secret, may_change_secret, unfinished_with

__all__ = ["SecretSpec", "add_secret", "delete_secret", "find_secrets", "replace_secret", "store_uses"]

_KIND: Final = "secret"
#: Limits of a value: shorter ones cannot be masked in logs without masking ordinary words.
_LEAST_CHARACTERS: Final = 8
_MOST_BYTES: Final = 32 * 1024
#: Largest number of secrets of a training, of a user and of a group.
_MOST_OF_JOB: Final = 20
_MOST_OF_OWNER: Final = 200
_MOST_SHOWN: Final = 10
#: Variables by which programs find and load what they run.
_NOT_SHADOWED: Final = frozenset(
    {"PATH", "HOME", "USER", "SHELL", "TMPDIR", "LANG", "VIRTUAL_ENV", "BASH_ENV", "ENV", "IFS", "PWD"}
)
_NOT_SHADOWED_PREFIXES: Final = ("PYTHON", "CUDA_", "NCCL_", "GLOO_", "TORCH_", "OMP_")


@dataclass(frozen=True)
class SecretSpec:
    """A secret as a user enters it."""

    name: str
    value: str = field(repr=False)
    #: Instance group by id or name; None: it is the user's own.
    instance_group: int | str | None = None
    #: Whether trainings get the path of a file with the value.
    is_file: bool = False


def add_secret(spec: SecretSpec, actor: User) -> Secret:
    """Store a secret. Raises UserError with a sentence for each invalid field."""
    problems = Problems()
    _check_name(problems, spec.name)
    _check_value(problems, spec.value)
    group = _found_group(problems, spec.instance_group, actor)
    problems.raise_if_any()
    row = Secret(owner=None if group else actor, group=group, name=spec.name, is_file=spec.is_file)
    row.sealed = seal(spec.value, row.row_name)
    row.changed_at = timezone.now()
    with transaction.atomic():
        if Secret.objects.filter(owner=row.owner, group=group).count() >= _MOST_OF_OWNER:
            raise Conflict(f"There are {_MOST_OF_OWNER} secrets already: delete some that no training needs.")
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            whose = f"{group.name} has" if group else "You have"
            raise field_error("name", f"{whose} a secret {spec.name} already: replace its value.") from None
        audit(actor, "added", **_about(row), after=_facts(row))
    return row


def replace_secret(secret_id: int, value: str, actor: User) -> Secret:
    """Replace the value. Trainings get the new one at their next start."""
    problems = Problems()
    _check_value(problems, value)
    problems.raise_if_any()
    with transaction.atomic():
        row = _lock(secret_id, actor)
        row.sealed = seal(value, row.row_name)
        row.changed_at = timezone.now()
        row.save(update_fields=["sealed", "changed_at"])
        audit(actor, "replaced", **_about(row))
    return row


@transaction.atomic
def delete_secret(secret_id: int, actor: User) -> None:
    """Delete a secret. Raises Conflict while trainings wait or run that get it."""
    row = _lock(secret_id, actor)
    numbers = list(unfinished_with(row).values_list("pk", flat=True))
    if numbers:
        shown = ", ".join(map(str, numbers[:_MOST_SHOWN])) + (" and others" if len(numbers) > _MOST_SHOWN else "")
        trainings = plural(len(numbers), "Training {n}", "Trainings {n}", n=shown)
        raise Conflict(
            f"{trainings} would start without {row.name}: wait for the end, cancel, or replace the value, which "
            "trainings get at their next start."
        )
    audit(actor, "deleted", **_about(row), before=_facts(row))
    row.delete()


def find_secrets(
    problems: Problems, given: Submitted, owner: User, group: InstanceGroup | None
) -> tuple[str, list[Secret]]:
    """Return the names of the secrets that a training gets, separated by spaces, and their rows.

    A name means the owner's secret, or else the instance group's.
    """
    if not isinstance(given.secrets, str):
        problems.add("secrets", "Give the names of secrets as text, separated by spaces.")
        return "", []
    names = list(dict.fromkeys(given.secrets.split()))
    if len(names) > _MOST_OF_JOB:
        problems.add("secrets", f"A training can have at most {_MOST_OF_JOB} secrets, not {len(names)}: remove some.")
        return "", []
    mine = {row.name: row for row in Secret.objects.filter(owner=owner, name__in=filter(is_storable, names))}
    shared = {row.name: row for row in Secret.objects.filter(group=group, name__in=mine.keys() ^ set(names))}
    found = (shared if group else {}) | mine
    for name in names:
        if name not in found:
            whose = f"Neither you nor {group.name} have" if group else "You have"
            missing = f"{whose} {'a' if group else 'no'} secret {shown(name)}"
            problems.add("secrets", f"{missing}: add it on the page Secrets, or correct the name.")
        elif isinstance(given.environment, dict) and name in given.environment:
            problems.add("secrets", f"{name} is also an environment variable of the training: remove one of them.")
    return " ".join(names), [found[name] for name in names if name in found]


def store_uses(job: Job, secrets: Sequence[Secret]) -> None:
    """Note the secrets that a new job gets. Raises InvalidSubmission if one was deleted in the meantime."""
    wanted = [secret.pk for secret in secrets]
    there = set(Secret.objects.select_for_update().filter(pk__in=wanted).values_list("pk", flat=True))
    if missing := [secret.name for secret in secrets if secret.pk not in there]:
        raise InvalidSubmission({"secrets": [f"{', '.join(missing)} was deleted just now: add it again."]})
    SecretUse.objects.bulk_create(SecretUse(job=job, secret_id=number) for number in wanted)


# --- checks ---------------------------------------------------------------------------------------------------------


def _check_name(problems: Problems, name: Any) -> None:
    if not isinstance(name, str) or not VARIABLE_NAME.fullmatch(name):
        problems.add(
            "name", "The name is that of an environment variable, such as HF_TOKEN: use letters, digits and '_'."
        )
    elif is_own_variable(name) or name in _NOT_SHADOWED or name.startswith(_NOT_SHADOWED_PREFIXES):
        problems.add("name", f"{name} has a meaning for programs that every training runs: choose another name.")


def _check_value(problems: Problems, value: Any) -> None:
    if not isinstance(value, str) or len(value.strip()) < _LEAST_CHARACTERS:
        problems.add(
            "value", f"Give at least {_LEAST_CHARACTERS} characters: a shorter value cannot be masked in logs."
        )
    elif not is_storable(value) or len(value.encode()) > _MOST_BYTES:
        problems.add("value", f"Give at most {_MOST_BYTES // 1024} KiB of text without NUL characters.")


def _found_group(problems: Problems, reference: int | str | None, actor: User) -> InstanceGroup | None:
    if reference in (None, ""):
        return None
    group = by_reference(administered_groups(actor), reference)
    if group is None:
        problems.add("instance_group", "You administer no such instance group: leave it empty for a secret of yours.")
    return group


def _lock(secret_id: int, actor: User) -> Secret:
    find_visible_secret(actor, secret_id)
    row = Secret.objects.select_for_update(of=("self",)).select_related("group", "owner").get(pk=secret_id)
    if not may_change_secret(actor, row):
        whose = row.group.name if row.group else "this user"
        raise NotAllowed(f"Only an administrator of {whose} may change this secret: ask one.")
    return row


def _about(row: Secret) -> dict[str, Any]:
    whose = row.group.name if row.group else row.owner.get_username() if row.owner else ""
    return {"kind": _KIND, "key": row.pk, "name": f"{row.name} of {whose}"}


def _facts(row: Secret) -> dict[str, Any]:
    """Return what the audit says of a secret: nothing of its value."""
    return {"given_as": "file" if row.is_file else "variable", "instance_group": row.group.name if row.group else None}
