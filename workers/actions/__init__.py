"""Changes hosts and resource groups, mostly on an administrator's behalf: the only writers of these rows.

hosts.py             drain, resume, remove, restore; what the pool has of a host
resource_groups.py   create, change and delete groups
"""

from workers.actions.hosts import (
    drain_host,
    record_capacity,
    refuse_removal,
    remove_host,
    restore_host,
    resume_host,
    retire_host,
    write_host_states,
)
from workers.actions.resource_groups import (
    ResourceGroupSpec,
    change_resource_group,
    check_resource_group,
    create_resource_group,
    delete_resource_group,
    spec_of,
)

__all__ = [
    "ResourceGroupSpec",
    "change_resource_group",
    "check_resource_group",
    "create_resource_group",
    "delete_resource_group",
    "drain_host",
    "record_capacity",
    "refuse_removal",
    "remove_host",
    "restore_host",
    "resume_host",
    "retire_host",
    "spec_of",
    "write_host_states",
]
