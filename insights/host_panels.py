"""Contents of the hosts' page: hosts, their GPUs with their holders, and the question before an action."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from operator import mul
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Sum
from django.utils import timezone
from tidepool.units import cores_words, size_words

from core.text import plural
from insights.cluster import STATUSES, slots_of_hosts, some_slots
from jobs.control.snapshots import former_hosts, snapshot
from jobs.gpu_time import DAY, HOUR, to_ms
from jobs.models import HostEnvironment, Job
from jobs.words import gpus
from scheduling.preview import Move, moves, without_host
from usage.usage_query import ReportQuery
from usage.usage_window import Window
from workers.actions import refuse_removal
from workers.broker_users import shares_broker
from workers.models import Host, ResourceGroup, Slot
from workers.queries import slots

__all__ = [
    "HostDay",
    "HostPanel",
    "HostQuestion",
    "HourBar",
    "SlotRow",
    "host_panels",
    "idle_slots",
    "last_day",
    "move_sentences",
    "question",
    "ready_environments",
    "share_words",
]

#: Highest number of trainings that are named; further ones are only counted.
_MOST_NAMED = 12
#: Highest number of idle GPUs that are listed.
_MOST_IDLE = 60


@dataclass(frozen=True)
class SlotRow:
    slot: Slot
    #: Entry of the slot in `slots_of_hosts`: its holder, as far as the viewer may know, status and idle time.
    use: dict[str, Any]

    @property
    def words(self) -> str:
        return STATUSES[self.use["status"]]


@dataclass(frozen=True)
class HourBar:
    """Mean number of a host's GPUs that trainings held during an hour of its last day."""

    hours_ago: int
    gpus: float
    #: Percentage of all GPUs of the host.
    percent: float


@dataclass(frozen=True)
class HostDay:
    #: Bars of 24 hours, the oldest first; the last hour is still running.
    bars: list[HourBar]
    #: Mean number of GPUs that trainings held over the whole day.
    gpus: float


@dataclass(frozen=True)
class HostPanel:
    host: Host
    rows: list[SlotRow]
    day: HostDay
    #: Phrase about the environments that the host has ready; "": it has none.
    environments: str
    #: Phrase about the cores and memory that a GPU stands for; "": its executor does not tell.
    share: str = ""
    #: Whether a notice names a moment that is over.
    is_gone: bool = False
    #: Whether the host uses the broker with a password that others use, too.
    shares_broker: bool = False
    #: Whether it gets no training because its release cannot join those that run.
    is_former: bool = False


@dataclass(frozen=True)
class HostQuestion:
    """Texts of the dialog (`ask.js`) before an action on a host."""

    title: str
    lost: str
    hint: str
    yes: str
    danger: bool


def host_panels(user: User, of_hosts: Sequence[Host]) -> list[HostPanel]:
    """Return the panels of these hosts, which have their slots and newest readings."""
    uses = {slot["key"]: slot for host in slots_of_hosts(user, of_hosts) for slot in host["slots"]}
    panels, now = [], timezone.now()
    former = former_hosts(of_hosts)
    days, environments = last_day(of_hosts, now), ready_environments()
    for host in of_hosts:
        slots = [(slot, uses.get(f"{host.name}:{slot.index}")) for slot in host.slots.all()]
        # A GPU that the host has lost has no use.
        rows = [SlotRow(slot, use) for slot, use in slots if use]
        is_gone = host.leaving_at is not None and host.leaving_at <= now
        found_there = environments.get(host.pk, "")
        share = " · ".join(filter(None, (share_words(host), limit_words(host))))
        panels.append(
            HostPanel(
                *(host, rows, days[host.name], found_there, share),
                *(is_gone, shares_broker(host), host.name in former),
            )
        )
    return panels


def share_words(host: Host) -> str:
    """Return the phrase about the cores and memory that each GPU of a host stands for; "": they are not known."""
    if (share := host.share) is None:
        return ""
    reserved = [cores_words(host.reserved_cores)] if host.reserved_cores else []
    reserved += [size_words(host.reserved_memory_bytes)] if host.reserved_memory_bytes else []
    beside = f" beside {' and '.join(reserved)} that are reserved" if reserved else ""
    return f"share of each GPU: {cores_words(share.cores)} and {size_words(share.memory)}{beside}"


def limit_words(host: Host) -> str:
    """Return the phrase about what a training may use for each GPU; "": the host sets no limit."""
    limits = [cores_words(host.slot_cores)] if host.slot_cores is not None else []
    limits += [size_words(host.slot_memory_bytes)] if host.slot_memory_bytes is not None else []
    limits += [f"{host.slot_processes:,} processes"] if host.slot_processes is not None else []
    return f"limit of a training for each: {', '.join(limits)}" if limits else ""


def ready_environments() -> dict[int, str]:
    """Return host -> a phrase about the environments that it has ready, and the memory of their processes."""
    ready = HostEnvironment.objects.filter(state=HostEnvironment.State.READY).exclude(digest="").order_by()
    counted = ready.values("host").annotate(
        count=Count("digest", distinct=True), warm=Count("memory_bytes"), memory=Sum("memory_bytes")
    )
    found = {}
    for host, count, warm, memory in counted.values_list("host", "count", "warm", "memory"):
        found[host] = plural(count, "{count} environment ready", "{count} environments ready")
        if warm:
            processes = plural(warm, "whose process takes", "whose {count} processes take")
            found[host] += f", {processes} {size_words(memory)}"
    return found


def last_day(of_hosts: Iterable[Host], now: datetime) -> dict[str, HostDay]:
    """Return the use of each host, by name, in the present hour and the 23 before it."""
    until = to_ms(now)
    start = until // HOUR * HOUR - DAY + HOUR
    counts: dict[int | str, int] = {host.name: host.ngpus for host in of_hosts}
    timeline = Window.read(ReportQuery(start, until, "host", HOUR, ""), until).timeline(dict.fromkeys(counts, ""))
    lengths = [(end - begin) / (until - start) for begin, end in pairwise(timeline.edges)]
    return {
        str(band.key): HostDay(_bars(band.gpus, counts[band.key]), sum(map(mul, band.gpus, lengths)))
        for band in timeline.bands
        if band.key is not None
    }


def _bars(held: Sequence[float], count: int) -> list[HourBar]:
    last = len(held) - 1
    return [
        HourBar(last - place, mean, min(100.0, 100 * mean / count) if count else 0.0) for place, mean in enumerate(held)
    ]


def idle_slots(user: User, idle: Sequence[int]) -> list[SlotRow]:
    """Return the first of these slots that are held and idle, the longest first."""
    found = slots().filter(pk__in=idle[:_MOST_IDLE])
    by_key = {str(slot): slot for slot in found}
    rows = [SlotRow(by_key[use["key"]], use) for host in some_slots(user, found) for use in host["slots"]]
    return sorted((row for row in rows if row.use["status"] == "idle"), key=lambda row: row.use["idle_since"])


def question(host: Host, verb: str) -> HostQuestion:
    """Return the question before `verb` is done to the host. Raises Conflict if it cannot be done."""
    title, hint = f"{verb.capitalize()} {host.name}?", ""
    if verb == "drain":
        after = without_host(snapshot(timezone.now()), host.name)
        found = moves(after, {slot.ref for slot in after.slots if slot.ref.host == host.name})
        effects = move_sentences(found) or ["No training holds a GPU of this host now."]
        lost = " ".join(["No further training starts on its GPUs.", *effects])
        hint = "Nothing is lost, and you can return the host to service at any time."
    elif verb == "remove":
        refuse_removal(host)
        back = _return_words(host)
        lost = f"The host leaves all lists, and its GPUs the pool. Its history is kept. It comes back {back}."
        groups = ResourceGroup.objects.filter(hosts=host).order_by("name").values_list("name", flat=True)
        hint = f"The host stays a member of {', '.join(groups)}." if groups else ""
    else:
        title = f"Return {host.name} to service?"
        lost = "Its GPUs are offered again at once, and trainings can grow onto them."
    return HostQuestion(title, lost, hint, f"{verb.capitalize()} {host.name}", danger=verb == "remove")


def _return_words(host: Host) -> str:
    """Return the end of a sentence on when a removed host comes back."""
    if host.own_broker_user:
        return "when it is restored, or joins again with a new token: until then, the broker does not let it in"
    if host.state == Host.State.DRAINING:
        return "when its executor is started again"
    return "as soon as its executor reports again"


def move_sentences(moves: Collection[Move]) -> list[str]:
    """Return a sentence for each training that must leave slots; trainings that stop come first."""
    names = dict(Job.objects.filter(pk__in=[move.job for move in moves]).values_list("pk", "name"))
    ordered = sorted(moves, key=lambda move: (move.target > 0, -move.held))
    sentences = [_move_sentence(move, names.get(move.job, f"Training {move.job}")) for move in ordered[:_MOST_NAMED]]
    if rest := len(ordered) - len(sentences):
        sentences.append(plural(rest, "{count} more training.", "{count} more trainings."))
    return sentences


def _move_sentence(move: Move, name: str) -> str:
    if not move.target:
        return f"“{name}” stops with a checkpoint, releases {gpus(move.held)}, and continues when other GPUs are free."
    if move.kept and not move.elastic:
        return f"“{name}” finishes on its {gpus(move.held)}, because its size is fixed."
    if move.kept:
        return f"“{name}” keeps its {gpus(move.held)} until it ends, because its minimum fits nowhere else."
    return f"“{name}” leaves {gpus(move.held)} after a step, and continues with {move.target}."
