"""Members and administrators of instance groups that follow the groups of an organization's provider."""

import logging
from typing import Any

from django.contrib.auth.models import User

from accounts.organization.arrivals import ACTOR
from accounts.organization.group_table import Grants
from core.audit.entries import audit
from core.live import publish
from jobs.control.dispatch import wake_scheduler
from jobs.models import InstanceGroup
from jobs.queries.group_terms import terms_of
from jobs.topics import GROUPS

__all__ = ["follow_provider"]

logger = logging.getLogger(__name__)


def follow_provider(user: User, grants: Grants, managed: frozenset[str]) -> None:
    """Make the user a member and administrator of exactly those of the managed groups that the grants name.

    The last member of a group stays one, because a group without members is open to everybody.
    """
    groups = InstanceGroup.objects.select_related("resource_group").select_for_update(of=("self",))
    found = {group.name: group for group in groups.filter(name__in=managed).order_by("pk")}
    for name in sorted(managed - found.keys()):
        logger.warning("TIDEPOOL_LOGIN_GROUPS_FILE names the instance group %s, which does not exist", name)
    for name, group in found.items():
        before = terms_of(group)
        _set(group.admins, user, name in grants.administers)
        if name in grants.member_of or group.members.exclude(pk=user.pk).exists():
            _set(group.members, user, name in grants.member_of)
        if (after := terms_of(group)) != before:
            _record(group, before, after)


def _set(users: Any, user: User, is_one: bool) -> None:
    if is_one:
        users.add(user)
    else:
        users.remove(user)


def _record(group: InstanceGroup, before: dict[str, Any], after: dict[str, Any]) -> None:
    group.revision += 1
    group.save(update_fields=["revision"])
    audit(ACTOR, "changed", kind="instance group", key=group.pk, name=group.name, before=before, after=after)
    publish(GROUPS, "state", {str(group.pk): group.revision})
    wake_scheduler()
