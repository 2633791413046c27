"""Instance groups: administrators make them."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from jobs.actions.checks import MAX_PRIORITY
from jobs.models import InstanceGroup
from webapp.lib.errors import Conflict, field_error
from webapp.lib.names import checked_name
from workers.models import ResourceGroup
from workers.queries import find_resource_group

__all__ = ["InstanceGroupSpec", "create_instance_group"]


@dataclass(frozen=True)
class InstanceGroupSpec:
    name: str
    #: Id or name of the group of GPUs that its jobs may use.
    resource_group: int | str
    policy: str = InstanceGroup.Policy.FAIRSHARE
    preemption: bool = False
    default_priority: int = 5000


def create_instance_group(spec: InstanceGroupSpec) -> InstanceGroup:
    name = checked_name(spec.name, limit=64)
    if spec.policy not in InstanceGroup.Policy.values:
        raise field_error("policy", f"There is no such policy: use {', '.join(InstanceGroup.Policy.values)}.")
    if not 1 <= spec.default_priority <= MAX_PRIORITY:
        raise field_error("default_priority", f"The priority must be a whole number from 1 to {MAX_PRIORITY}.")
    resource_group = find_resource_group(spec.resource_group)
    if resource_group is None or resource_group.kind != ResourceGroup.Kind.GPU:
        raise field_error("resource_group", "There is no resource group of GPUs with this name: pick one of the list.")
    with transaction.atomic():
        group, is_new = InstanceGroup.objects.get_or_create(
            name=name,
            defaults={
                "resource_group": resource_group,
                "policy": spec.policy,
                "preemption": spec.preemption,
                "default_priority": spec.default_priority,
            },
        )
    if not is_new:
        raise Conflict(f"There is an instance group {name!r} already.", fields={"name": ["This name is taken."]})
    return group
