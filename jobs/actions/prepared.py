"""Environments on hosts: prepared before a training wants them, built again, kept and given up."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from core.audit.entries import audit
from core.errors import Conflict, UserError
from core.roles import require_cluster_admin
from core.text import plural, shown_text
from jobs.control.environments import forget, prepare
from jobs.models import NamedEnvironment, RequiredEnvironment
from jobs.queries.prepared import find_prepared, title_of
from workers.group_rules import offer_of
from workers.models import Host, ResourceGroup
from workers.queries import find_resource_group

__all__ = ["build_again", "build_ahead", "forget_environment", "keep_environment", "log_of"]

_KIND: Final = "environment on hosts"


def log_of(environment: RequiredEnvironment, host: str) -> Path:
    """Return the file with the output of a build that no training has asked for."""
    return Path(settings.TIDEPOOL_HOME) / "environments" / f"{environment.key[:16]}@{host}.log"


@transaction.atomic
def build_ahead(named: NamedEnvironment, actor: User, resource_group: str = "") -> None:
    """Have hosts prepare a named environment. resource_group: whose hosts; "": all hosts."""
    require_cluster_admin(actor)
    hosts = _hosts(resource_group)
    _prepare(named.required, hosts)
    where = {"hosts": sorted(host.name for host in hosts)}
    audit(actor, "had prepared", kind=_KIND, key=named.required_id, name=named.name, after=where)


@transaction.atomic
def build_again(pk: int, actor: User) -> RequiredEnvironment:
    """Have all hosts that have the environment build it from nothing. Raises Conflict while trainings use it."""
    row = _unused(pk, actor, "built again")
    there = [one for one in row.hosts.all() if one.host.prepares and one.host.state != Host.State.OFFLINE]
    for one in there:  # the hosts agree on versions anew
        (Path(settings.TIDEPOOL_HOME) / "environments" / f"{one.digest}.txt").unlink(missing_ok=True)
    _prepare(row, [one.host for one in there], is_fresh=True)
    audit(actor, "had built again", **_about(row))
    return row


@transaction.atomic
def keep_environment(pk: int, actor: User, *, is_pinned: bool) -> RequiredEnvironment:
    """Keep the environment on the hosts although no training uses it, or not any longer."""
    require_cluster_admin(actor)
    row = find_prepared(pk)
    before, row.is_pinned = {"kept": row.is_pinned}, is_pinned
    row.save(update_fields=["is_pinned"])
    audit(actor, "changed", **_about(row), before=before, after={"kept": is_pinned})
    return row


@transaction.atomic
def forget_environment(pk: int, actor: User) -> None:
    """Have the environment removed from all hosts. Raises Conflict while trainings use it, or if it has a name."""
    row = _unused(pk, actor, "removed")
    if row.names.exists():
        raise Conflict(f"It is the environment {title_of(row)}, which trainings can choose: delete that first.")
    audit(actor, "removed", **_about(row))
    forget(RequiredEnvironment.objects.filter(pk=row.pk))


def _unused(pk: int, actor: User, verb: str) -> RequiredEnvironment:
    require_cluster_admin(actor)
    row = find_prepared(pk)
    active: int = row.active  # type: ignore[attr-defined]  # annotated
    if active:
        use = plural(
            active, "{count} waiting or running training uses it", "{count} waiting or running trainings use it"
        )
        raise Conflict(f"{use}: it can be {verb} afterwards.")
    return row


def _prepare(row: RequiredEnvironment, hosts: Collection[Host], *, is_fresh: bool = False) -> None:
    prepare(row, {host: str(log_of(row, host.name)) for host in hosts}, is_fresh=is_fresh)


def _hosts(resource_group: str) -> list[Host]:
    """Return hosts that can prepare environments. Raises UserError if there are none."""
    rows = Host.objects.filter(prepares=True, removed_at=None).exclude(state=Host.State.OFFLINE)
    if resource_group:
        group = find_resource_group(resource_group)
        if group is None or group.kind != ResourceGroup.Kind.GPU:
            sentence = (
                f"There is no resource group of GPUs named {shown_text(resource_group)}: look at Resource groups."
            )
            raise UserError(sentence, fields={"resource_group": [sentence]})
        offered = offer_of(group).slots(rows)
        rows = rows.filter(name__in=[name for name, count in offered.items() if count])
    if not (hosts := list(rows)):
        raise Conflict("No host that is in service can prepare it: start a host, or name another resource group.")
    return hosts


def _about(row: RequiredEnvironment) -> dict[str, Any]:
    return {"kind": _KIND, "key": row.pk, "name": title_of(row)}
