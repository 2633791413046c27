"""Contents of the form of a resource group: members, totals, overlaps, and trainings that would have to move."""

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from insights.host_panels import move_sentences
from jobs.control.snapshots import snapshot
from jobs.models import InstanceGroup
from jobs.queries.groups import visible_groups
from jobs.words import gpus
from scheduling.preview import lost_slots, moves
from workers.group_members import Member, members, overlaps, totals
from workers.group_rules import Offer, offer_of
from workers.models import Host, ResourceGroup
from workers.queries import device_models, held_indexes, listed_hosts, resource_groups

__all__ = ["GroupLine", "group_lines", "member_rows", "moved_trainings", "preview", "users_of"]

_MOST_HOSTS = 6


@dataclass(frozen=True)
class GroupLine:
    group: ResourceGroup
    hosts: int
    slots: int
    #: Instance groups that use it and that the viewer may see.
    users: list[InstanceGroup]


def group_lines(user: User) -> list[GroupLine]:
    every_host = list(Host.objects.all())
    users = users_of(user)
    lines = []
    for group in resource_groups().order_by("name"):
        offered = offer_of(group).slots(every_host)
        lines.append(GroupLine(group, len(offered), sum(offered.values()), users[group.pk]))
    return lines


def users_of(user: User) -> dict[int, list[InstanceGroup]]:
    """Return the instance groups that use a resource group and that the user may see, in order of name, by its id."""
    found: dict[int, list[InstanceGroup]] = defaultdict(list)
    for group in visible_groups(user).order_by("name"):
        found[group.resource_group_id].append(group)
    return found


def member_rows(offer: Offer, group: ResourceGroup | None) -> list[Member]:
    return members(offer, listed_hosts(group), held_indexes(), device_models())


def preview(offer: Offer, group: ResourceGroup | None, *, with_overlaps: bool) -> dict[str, Any]:
    """Return the JSON of the preview. group: the group that would get this offer; None: a new one."""
    rows = member_rows(offer, group)
    answer: dict[str, Any] = {
        "hosts": {
            row.host.name: {"member": row.is_member, "slots": row.slots, "free": row.free, "problem": row.problem}
            for row in rows
        },
        "totals": asdict(totals(rows)),
        "moves": moved_trainings(group, offer) if group else [],
    }
    if with_overlaps:
        answer["overlaps"] = _overlap_sentences(offer, group)
    return answer


def moved_trainings(group: ResourceGroup, offer: Offer) -> list[str]:
    """Return a sentence for each training that would have to leave GPUs if the group had this offer."""
    if group.kind != ResourceGroup.Kind.GPU:
        return []
    now = timezone.now()
    before, after = snapshot(now), snapshot(now, instead={group.pk: offer})
    return move_sentences(moves(after, lost_slots(before, after, group.name)))


def _overlap_sentences(offer: Offer, group: ResourceGroup | None) -> list[str]:
    others = [other for other in resource_groups() if group is None or other.pk != group.pk]
    sentences = []
    for overlap in overlaps(offer, others, list(Host.objects.filter(removed_at=None))):
        names, more = overlap.hosts[:_MOST_HOSTS], len(overlap.hosts) - _MOST_HOSTS
        where = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        what = gpus(overlap.slots) if offer.kind == ResourceGroup.Kind.GPU else f"{overlap.slots} CPU slots"
        sentences.append(f"{overlap.group} also offers {what} of these, on {where}.")
    return sentences
