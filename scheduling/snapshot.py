"""Complete input of the scheduler. `msgspec.json` can dump it in production, and load it in a test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tidepool.goodput.model import Bounds, NoiseScale, ThroughputParameters

__all__ = [
    "Aim",
    "GroupView",
    "JobView",
    "KindRatio",
    "ProfileView",
    "Share",
    "SlotRef",
    "SlotView",
    "Snapshot",
    "limit_of",
]

PolicyName = Literal["fifo", "priority", "fairshare", "goodput"]
#: Aim of policy goodput; see `scheduling.policies.goodput`.
Aim = Literal["soon", "even", "used"]


#: Seconds of a start from which on a job is left alone until its ranks are ready.
LONG_RESTART_SECONDS = 30.0


class SlotRef(NamedTuple):
    """A slot by name: device `index` of host `host`. A tuple, because plans sort and hash very many of them."""

    host: str
    #: Hides the tuple's method of that name, which nobody needs here.
    index: int  # type: ignore[assignment]


class Share(NamedTuple):
    """Cores and memory of a host: what a slot stands for, or what a job asks for with each of its GPUs."""

    #: Number of processors; 0: a job that asks for no number.
    cores: float
    #: Bytes of memory; 0: a job that asks for no size.
    memory: int


@dataclass(slots=True)
class SlotView:
    ref: SlotRef
    #: Names of the resource groups that offer this slot.
    resource_groups: tuple[str, ...]
    #: False: the slot must not be claimed, and its holder moves off if possible. The host is draining or offline, or
    #: lost and no job keeps the slot.
    claimable: bool
    #: Id of the job whose open claim holds the slot, or None when it is free.
    held_by: int | None = None
    #: Whether the holder is to release the slot, but still has a process in it.
    vacating: bool = False
    #: GPU model; "": unknown.
    device: str = ""
    #: For sentences only: the state of a host that is out of service, such as "draining"; "": not known.
    out: str = ""


def limit_of(quota: int | None, weight: int, *, borrows: bool) -> int | None:
    """Return the maximum slots of an instance group, even without other groups; None: no limit."""
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
    #: Weight of the group's share of the slots beyond all quotas; 0: it only has its quota.
    weight: int = 1
    #: Whether it may use more than its quota.
    borrows: bool = True
    #: Whether other groups may use the free slots of its quota.
    lends: bool = True
    #: Resource group of which `resource_group` is the part whose hosts keep trainings apart as the group demands; "":
    #: it takes any host.
    part_of: str = ""
    #: Seconds for which a job may keep what another group takes back.
    reclaim_grace_seconds: int = 0
    #: Seconds for which a job runs before it may be stopped; it may be shrunk at any time.
    minimum_run_seconds: int = 0
    #: False: no waiting job of the group starts.
    started: bool = True
    #: Aim of policy goodput.
    aim: Aim = "soon"
    #: Weight of one GPU of each model in a fair share; other models count 1. Empty: models do not matter.
    gpu_weights: tuple[tuple[str, float], ...] = ()
    #: Time (Unix seconds) of the last decision about targets under policy goodput, if its inputs have not changed.
    #: Targets are kept for ten seconds. None: decide again. See `scheduling.policies.target_hold`.
    shared_at: float | None = None

    @property
    def keeps_quota(self) -> bool:
        """Whether free slots of its quota are not lent. A stopped group always lends: none of its jobs could start."""
        return self.started and not self.lends

    @property
    def weighs_kinds(self) -> bool:
        """Whether a fair share counts GPUs by their kind."""
        return self.policy == "fairshare" and bool(self.gpu_weights)

    def weight_of(self, kind: str) -> float:
        """Return what one GPU of this kind counts in a fair share."""
        return next((weight for name, weight in self.gpu_weights if name == kind), 1.0)

    @property
    def gives_way(self) -> bool:
        """Whether its elastic jobs may be stopped again for a job that they started before."""
        return self.preemption and self.policy in ("fairshare", "goodput") and not self.minimum_run_seconds

    @property
    def limit(self) -> int | None:
        """See `limit_of`."""
        return limit_of(self.quota, self.weight, borrows=self.borrows)


@dataclass(frozen=True)
class ProfileView:
    """Measurements of a job by its ranks, or of another job of its model."""

    bounds: Bounds
    #: Parameters of the throughput model by kind of GPU.
    parameters: dict[str, ThroughputParameters] = field(default_factory=dict)
    noise: NoiseScale | None = None
    #: Largest micro-batch of a rank on each kind of GPU, in samples. Kinds without an entry allow the largest of these.
    micro_batches: Mapping[str, int] = field(default_factory=dict)
    #: Largest measured number of ranks.
    largest_ranks: int = 1
    #: Remaining steps at the job's own batch size. None: unknown.
    remaining_steps: float | None = None
    #: Steps at the job's own batch size that it has done.
    done_steps: float = 0.0
    #: Pause of its ranks at a resize, in seconds.
    pause_seconds: float = 1.0
    #: Seconds from the start of a new rank until it is ready.
    start_seconds: float = 0.0
    #: Seconds that its ranks need for a start.
    restart_seconds: float = 0.0
    #: Number of measured points, for sentences.
    points: int = 0
    #: Number of this profile among the job's profiles.
    revision: int = 0


@dataclass(frozen=True)
class JobView:
    id: int
    #: Name, for sentences only.
    name: str
    group: str
    state: Literal["PENDING", "STARTING", "RUNNING"]
    priority: int
    #: Time of submission (Unix seconds).
    submitted_at: float
    min_slots: int
    max_slots: int
    #: False: needs exactly max_slots from start to end.
    elastic: bool = True
    #: Owner, for sentences only: other users read "another user's training" instead of the name.
    owner: int | None = None
    #: Time (Unix seconds) since which it has held slots without a stop. None: it waits, or the time is not needed.
    started_at: float | None = None
    #: Maximum seconds for which it holds slots after a start, by its limit or a forecast. None: unknown.
    lasts: float | None = None
    #: Latest end of holding slots (Unix seconds), if it holds any. None: unknown.
    ends_at: float | None = None
    #: Id of the waiting job before which it started, on slots that this one needs. An elastic job is stopped for it,
    #: where its group preempts.
    backfilled_for: int | None = None
    #: Whether a reservation beyond its group's share started it: its minimum counts as the group's until its end.
    over_quota: bool = False
    #: Time (Unix seconds) since which its work is in no checkpoint, averaged over its slots. None: a stop loses no
    #: work. Only the choice of jobs to stop depends on it, so equal snapshots may differ in it.
    unsaved_since: float | None = field(default=None, compare=False)
    #: False: after a stop, it starts from scratch: a fixed-size script that has not shown that it can be resumed.
    continues: bool = field(default=True, compare=False)
    #: Target of the previous plan. None: unknown.
    target: int | None = None
    #: GPU model of the previous target, if there are several. None: unknown.
    target_kind: str | None = None
    #: GPU-seconds that it has used so far. Counted by us, not by the job.
    gpu_seconds: float = 0.0
    #: Number of its changes of size or place and of its restarts so far, those of earlier attempts' sizes left out.
    changes: int = 0
    profile: ProfileView | None = None
    #: Whether `max_slots` is the size at which new ranks of it have failed repeatedly, below the maximum asked for.
    newcomers_fail: bool = False
    #: Whether `max_slots` is its minimum, below the maximum asked for, because it has used none of its slots.
    is_idle: bool = False
    #: All its slots have to be on one host. Only of jobs that are not elastic.
    one_host: bool = False
    #: Each of its hosts has to have the same number of its slots. Only of jobs that are not elastic.
    equal_hosts: bool = False
    #: Digest of its code; "": unknown. Trainings of equal code are taken to be sped up alike by other kinds of GPU.
    code: str = ""
    #: Number of the study whose jobs count as one job towards others of its group. None: it counts alone.
    bundle: int | None = None
    #: Order within the bundle: jobs of a higher rank are served first.
    bundle_rank: int = 0
    #: Cores and memory that it asks for with each of its GPUs; None: the share of a slot.
    wish: Share | None = None
    #: Slots that each of its GPUs counts as. More than 1 only within a cycle, where its numbers of slots count all of
    #: them; see `scheduling.host_shares`.
    per_gpu: int = 1
    #: Hosts that lack its environment, and those of them where it cannot be had.
    unprepared: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    #: Whether its results depend on the model of its GPUs: all are of `began_on`, the model on which it began; "": it
    #: has not begun. Written as in `scheduling.one_kind`.
    one_kind: bool = False
    began_on: str = ""
    #: Whether `max_slots` is the number of GPUs of that model, below the maximum asked for. Only within a cycle.
    kind_is_all: bool = False

    @property
    def is_restarting(self) -> bool:
        """Whether its ranks are in a start that takes so long that another change would waste it."""
        known = self.profile
        return self.state == "STARTING" and known is not None and known.restart_seconds > LONG_RESTART_SECONDS

    def loses(self, slots: int, at: float) -> float:
        """GPU-seconds of work that are lost if it is stopped now, of `slots` slots that it holds."""
        return 0.0 if self.unsaved_since is None else slots * max(0.0, at - self.unsaved_since)


@dataclass(frozen=True, slots=True)
class KindRatio:
    """Median of the goodput on one GPU of a kind over that on one of another, over trainings measured on both."""

    kind: str
    base: str
    ratio: float
    #: Number of these trainings, which run or are over.
    trainings: int
    #: Digest of their code; "": any.
    code: str = ""


@dataclass(frozen=True)
class Snapshot:
    #: Unix seconds: the only clock that the scheduler knows.
    at: float
    groups: tuple[GroupView, ...] = ()
    #: Slots in order of (host, index).
    slots: tuple[SlotView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    #: Remembered speeds of kinds of GPU relative to others: for any code, and for the codes of its jobs.
    ratios: tuple[KindRatio, ...] = ()
    #: Host -> share that each of its slots stands for, where it is known; empty unless jobs ask for more.
    shares: Mapping[str, Share] = field(default_factory=dict)
    #: Wishes of jobs that are not in `jobs` and still hold slots.
    ending: Mapping[int, Share] = field(default_factory=dict)
    #: Number of the cycle that reads it, for the log.
    cycle: int = field(default=0, compare=False)
