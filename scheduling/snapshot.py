"""The scheduler's whole input. `msgspec.json` writes and reads it, so that a surprise in production becomes a test."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tidepool.goodput.model import Bounds, NoiseScale, ThroughputParameters

__all__ = ["Aim", "GroupView", "JobView", "ProfileView", "SlotRef", "SlotView", "Snapshot", "limit_of"]

PolicyName = Literal["fifo", "priority", "fairshare", "goodput"]
#: Aim of policy goodput; see `scheduling.policies.goodput`.
Aim = Literal["soon", "even", "used"]


class SlotRef(NamedTuple):
    """A slot by name: device `index` of host `host`. A tuple, because plans sort and hash very many of them."""

    host: str
    #: Hides the tuple's method of that name, which nobody needs here.
    index: int  # type: ignore[assignment]


@dataclass(slots=True)
class SlotView:
    ref: SlotRef
    #: Names of the resource groups that offer this slot.
    resource_groups: tuple[str, ...]
    #: False: nothing new may be claimed here, and who holds it moves off as far as possible: the host is draining or
    #: offline, or lost and the slot not kept by a job.
    claimable: bool
    #: Id of the job whose open claim holds the slot, or None when it is free.
    held_by: int | None = None
    #: The holder has been told to give it back and still has a process in it.
    vacating: bool = False
    #: Kind of GPU; "" where nobody said.
    device: str = ""


def limit_of(quota: int | None, weight: int, *, borrows: bool) -> int | None:
    """The most that an instance group ever has, even alone. None: all that others leave."""
    if not weight:
        return quota or 0
    return None if borrows else quota


@dataclass(frozen=True)
class GroupView:
    """An instance group: the tenant whose policy decides among its jobs."""

    name: str
    #: The resource group whose slots its jobs may use.
    resource_group: str
    policy: PolicyName
    preemption: bool
    #: GPUs that it owns; None: no quota.
    quota: int | None = None
    #: Weight of the group's part of what is over the quotas. 0: it lives on its quota alone.
    weight: int = 1
    #: May use more than its quota.
    borrows: bool = True
    #: Others may use what it leaves of its quota.
    lends: bool = True
    #: Seconds for which a job may keep what another group takes back.
    reclaim_grace_seconds: int = 0
    #: No job of it is stopped before it has run this long; it may be shrunk at any time.
    minimum_run_seconds: int = 0
    #: False: nothing that waits in it starts.
    started: bool = True
    #: Under policy goodput.
    aim: Aim = "soon"
    #: Unix seconds: when its targets under policy goodput were decided, if nothing has happened since that they depend
    #: on. They are kept until ten seconds later. None: decide anew. See `scheduling.policies.target_hold`.
    shared_at: float | None = None

    @property
    def keeps_quota(self) -> bool:
        """True if the rest of its quota stays free. A stopped group lends it in any case: nothing could start there."""
        return self.started and not self.lends

    @property
    def limit(self) -> int | None:
        """See `limit_of`."""
        return limit_of(self.quota, self.weight, borrows=self.borrows)


@dataclass(frozen=True)
class ProfileView:
    """Measures of a job by its ranks, or of its model."""

    bounds: Bounds
    #: Parameters of the throughput model by kind of GPU.
    parameters: dict[str, ThroughputParameters] = field(default_factory=dict)
    noise: NoiseScale | None = None
    #: The largest size that was measured.
    largest_ranks: int = 1
    #: Steps at the job's own batch size that it still has to do. None: nobody knows.
    remaining_steps: float | None = None
    #: Seconds that its ranks stand still when its size changes, and seconds from start to ready of a new rank.
    pause_seconds: float = 1.0
    start_seconds: float = 0.0
    #: Number of measured points, for sentences; and the number of this profile among the job's.
    points: int = 0
    revision: int = 0


@dataclass(frozen=True)
class JobView:
    id: int
    #: For sentences only; never decides anything.
    name: str
    group: str
    state: Literal["PENDING", "STARTING", "RUNNING"]
    priority: int
    #: Unix seconds.
    submitted_at: float
    min_slots: int
    max_slots: int
    #: False: needs exactly max_slots from start to end.
    elastic: bool = True
    #: For sentences only: a job is named to its own owner, and is "another user's training" to everybody else.
    owner: int | None = None
    #: Unix seconds: since when it has held slots without being stopped. None: it waits, or nothing hangs on it.
    started_at: float | None = None
    #: Seconds that it holds slots at the most from a start on, by its limit or by forecast. None: nobody knows.
    lasts: float | None = None
    #: Unix seconds: until when it holds slots at the most, if it holds any. None: nobody knows.
    ends_at: float | None = None
    #: The job before it in line that waits, for which it is stopped: it was started on slots reserved for that one.
    backfilled_for: int | None = None
    #: True if a reservation on more than its group's part started it: what it needs counts as the group's to its end.
    over_quota: bool = False
    #: Unix seconds: since when it has computed what is in no checkpoint, on average over the slots that it holds. None:
    #: it would lose nothing. Decides only who is stopped where somebody has to be, so equal snapshots may differ in it.
    unsaved_since: float | None = field(default=None, compare=False)
    #: False: stopped, it begins from nothing; a script of fixed size that has not shown that it can be resumed.
    continues: bool = field(default=True, compare=False)
    #: Slots that it shall have by the plan before. None: nobody says so.
    target: int | None = None
    #: The kind of GPU of these, where there are several. None: nobody says so.
    target_kind: str | None = None
    #: GPU-seconds that it has used so far. Counted by us, not by the job.
    gpu_seconds: float = 0.0
    profile: ProfileView | None = None
    #: All its slots have to be on one host. Only of jobs that are not elastic.
    one_host: bool = False

    def loses(self, slots: int, at: float) -> float:
        """GPU-seconds of work that are lost if it is stopped now, of `slots` slots that it holds."""
        return 0.0 if self.unsaved_since is None else slots * max(0.0, at - self.unsaved_since)


@dataclass(frozen=True)
class Snapshot:
    #: Unix seconds: the only clock that the scheduler knows.
    at: float
    groups: tuple[GroupView, ...] = ()
    #: Slots in order of (host, index).
    slots: tuple[SlotView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    #: Number of the cycle that reads it, for the log.
    cycle: int = field(default=0, compare=False)
