"""What the page of the hosts shows: machines, their GPUs, who holds them, and what is asked before one is drained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from jobs.control.snapshots import snapshot
from jobs.insight.cluster import STATUSES, cluster_live
from jobs.insight.host_messages import becomes
from jobs.models import Job
from scheduling.moves import moves, without_host
from workers.actions import refuse_removal
from workers.models import Host, ResourceGroup, Slot
from workers.queries import hosts

__all__ = ["HostPanel", "HostQuestion", "SlotRow", "host_panels", "idle_slots", "question", "removed_hosts"]


@dataclass(frozen=True)
class SlotRow:
    slot: Slot
    #: The slot's entry in `cluster_live`: who holds it, as far as the viewer may know, and since when it is idle.
    use: dict[str, Any]

    @property
    def words(self) -> str:
        return STATUSES[self.use["status"]]


@dataclass(frozen=True)
class HostPanel:
    host: Host
    rows: list[SlotRow]


@dataclass(frozen=True)
class HostQuestion:
    """In the words of the dialog (`ask.js`)."""

    title: str
    lost: str
    hint: str
    yes: str
    danger: bool


def host_panels(user: User) -> list[HostPanel]:
    uses = {slot["key"]: slot for host in cluster_live(user)["hosts"] for slot in host["slots"]}
    return [HostPanel(host, list(_rows(host, uses))) for host in hosts().order_by("name")]


def _rows(host: Host, uses: dict[str, dict[str, Any]]) -> Iterable[SlotRow]:
    for slot in host.slots.all():
        if use := uses.get(f"{host.name}:{slot.index}"):  # none of a GPU that it does not have any more
            yield SlotRow(slot, use)


def idle_slots(panels: Iterable[HostPanel]) -> list[SlotRow]:
    """Held, and idle for a while; the longest first."""
    rows = [row for panel in panels for row in panel.rows if row.use["status"] == "idle"]
    return sorted(rows, key=lambda row: row.use["idle_since"])


def removed_hosts() -> list[Host]:
    return list(Host.objects.exclude(removed_at=None).order_by("name"))


def question(host: Host, verb: str) -> HostQuestion:
    """What is asked before `verb` is done to the host; Conflict where it cannot be."""
    if verb == "drain":
        return _drain_question(host)
    if verb == "resume":
        lost = "Its GPUs are offered again at once, and trainings that want more grow onto them."
        return HostQuestion(f"Take {host.name} back into service?", lost, "", f"Resume {host.name}", danger=False)
    return _remove_question(host)


def _drain_question(host: Host) -> HostQuestion:
    after = without_host(snapshot(timezone.now()), host.name)
    found = moves(after, {slot.ref for slot in after.slots if slot.ref.host == host.name})
    names = dict(Job.objects.filter(pk__in=[move.job for move in found]).values_list("pk", "name"))
    told = becomes(found, names) or ["No training holds a GPU of it now."]
    lost = " ".join(["Nothing new starts on its GPUs.", *told])
    hint = "Nothing is lost, and it can be taken back into service at any time."
    return HostQuestion(f"Drain {host.name}?", lost, hint, f"Drain {host.name}", danger=False)


def _remove_question(host: Host) -> HostQuestion:
    refuse_removal(host)
    back = "when its executor is started again" if host.state == Host.State.DRAINING else "as soon as it reports again"
    lost = f"It goes from all lists and its GPUs from the pool; the history keeps what ran on it. It comes back {back}."
    groups = ResourceGroup.objects.filter(hosts=host).order_by("name").values_list("name", flat=True)
    hint = f"It stays a member of {', '.join(groups)}, for when it comes back." if groups else ""
    return HostQuestion(f"Remove {host.name}?", lost, hint, f"Remove {host.name}", danger=True)
