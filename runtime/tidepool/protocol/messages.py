"""Messages between the control plane, executors, shims, coordinators and ranks."""

from typing import Annotated, Any, Literal

import msgspec

from tidepool.collective_calls import CollectiveCall
from tidepool.protocol.codec import PROTOCOL_VERSION, Bytes, Count, Figure, Name, Seconds
from tidepool.protocol.defaults import LINGER_SECONDS
from tidepool.protocol.environments import EnvironmentState, WantedEnvironment
from tidepool.protocol.host_facts import HostFacts
from tidepool.protocol.measures import AdaptedBatch, ProcessUse, SpentTime, StepTimes
from tidepool.protocol.recordings import RecordingRequest

__all__ = [
    "Cause",
    "CoordinatorMessage",
    "DesiredJob",
    "DesiredMembership",
    "DeviceReading",
    "GenerationPlan",
    "Join",
    "JournalEntry",
    "LaunchSpec",
    "Member",
    "MemberMessage",
    "PlanMember",
    "RankStatus",
    "Report",
    "Restoration",
    "Retire",
    "ShimStatus",
    "Sync",
    "UnusableCheckpoint",
    "WrittenCheckpoint",
    "host_of",
]


# --- control plane -> executor ---------------------------------------------------------------------------------------


class Member(msgspec.Struct, frozen=True):
    """A place in a job's target: the slot `slot` of the host `host`."""

    host: str
    slot: int


class LaunchSpec(msgspec.Struct, frozen=True):
    """The run of a job's script. Fixed for one attempt; holds no secret."""

    #: `results/<user>/batchworkdir/<job>/attempt-<n>`: logs, journals, metrics, checkpoints and models go here.
    folder: str
    #: Working folder of the ranks: `results/<user>/batchworkdir/<job>/_submitted_code/<model>`.
    code_folder: str
    #: The script, relative to `code_folder`.
    entry_point: str
    #: Arguments of the script: its `sys.argv[1:]`.
    arguments: list[str]
    data_dir: str
    #: Added to a rank's environment over the executor's allow-list.
    environment: dict[str, str]
    #: Names of folders under `runtime/compat/` put on the rank's path, such as "wmla".
    compat: list[str]
    #: Limits and seeds of the session; see `tidepool.env`.
    min_slots: int
    max_slots: int
    #: Effective batch size; None: the positional batch size x min(engines_number, max_slots) decides at the start.
    effective_batch_size: int | None
    seed: int
    exactness: Literal["sum", "bitwise"]
    #: Published checkpoints of the job's earlier attempts, newest first: the first usable one is continued from.
    checkpoints: list[str] = []
    #: Another job's checkpoint, for when none of those is usable; it must be usable. None: start from nothing.
    initial_checkpoint: str | None = None
    #: ... or weights to begin with, at step 0: a file for `torch.load`, or a checkpoint's folder.
    initial_weights: str | None = None
    #: Most seconds between two checkpoints; 0 for none at all, None: the script decides.
    checkpoint_seconds: float | None = None
    #: Number of checkpoints that an attempt keeps; None: the script decides.
    checkpoints_kept: int | None = None
    #: Seconds of silence of a rank, and without a step (None: STALL_SECONDS), after which ranks are killed.
    stuck_seconds: float = 60.0
    stall_seconds: float | None = None
    #: Seconds after its start at which a rank of an elastic script is killed unless it is ready to train.
    launch_seconds: float = 1800.0
    #: Seconds without work after which a rank ends whose script has ended, although a thread or process of it runs.
    linger_seconds: float = LINGER_SECONDS
    #: Parts of each step in `bitwise`, fixed for the job; None in `sum`.
    virtual_ranks: int | None = None
    #: elastic: a script with a session. fixed, single: one without, in a process for each slot or for all of one host.
    engine: Literal["elastic", "fixed", "single"] = "elastic"
    #: off: a session does not adapt the batch, whatever its script asks for.
    adaptive: Literal["script", "off"] = "script"
    #: off: MLflow's autologging is not turned on.
    autolog: Literal["on", "off"] = "on"
    #: Cores and GiB of memory of the host that each of its GPUs comes with; None: the share of a slot.
    cpus_per_gpu: int | None = None
    memory_gib_per_gpu: int | None = None
    #: Kind of GPU -> samples of a micro-batch that fit its memory at most, of a batch that adapts: more did not.
    micro_batch_limits: dict[str, int] = {}
    #: Measure `initial_weights` on this split and end, instead of training; "": train.
    validate: Literal["", "validation", "testing"] = ""
    #: Settings chosen in the model's form, by name: for scripts that ask `pth_parameter_mgr`.
    settings: dict[str, Any] = {}
    #: Name of the job's owner, for the titles of its ranks.
    owner: str = ""
    #: Argument by which the script wants its LOCAL_RANK, as `torch.distributed.launch` passes it, such as `local_rank`.
    local_rank_argument: str = ""
    #: One requirement (PEP 508) per line, beside what the cluster has.
    requirements: str = ""
    #: Folders that links in `data_dir` lead to.
    data_folders: list[str] = []
    #: Seconds of silence after which the control plane has another host lead.
    lease_seconds: float = 30.0


class DesiredJob(msgspec.Struct, frozen=True):
    """The desired state of one job on one host. A job that runs there but is absent from `Sync` must be stopped."""

    job: int
    attempt: int
    #: Raised with each change of the job's target; shims and coordinators drop an older one than they have.
    target_revision: int
    #: Slots of this host that must have a rank: start missing ones. Under the engine `single`, one rank holds them all.
    wanted: list[int]
    #: Slots of this host whose rank leaves at the next switch: never start one, do not end it either.
    vacating: list[int]
    #: This host runs the job's coordinator.
    lead: bool
    #: The whole target over all hosts, in rank order for new ranks. Only the coordinator uses it.
    members: list[Member]
    launch: LaunchSpec
    #: End every process of the job here: SIGTERM, `grace_seconds`, SIGKILL to all descendants.
    stop: bool = False
    grace_seconds: float = 10.0
    #: Whether the training must stop after a step, with a checkpoint of it. `members` are the present ones.
    halt: bool = False
    #: Pattern by which the owner has a plain script's logs read, and its revision; "": the usual formats.
    log_pattern: str = ""
    log_pattern_revision: int = 0
    #: Raised whenever another host is to lead; see `tidepool.fence`.
    lead_number: int = 0
    #: Secret by which the attempt's processes know each other, see `tidepool.handshake`; "": they began without one.
    secret: str = ""
    #: Number of the newest request for the stacks of all ranks, see `tidepool.stacks`; 0: there was none.
    stacks: int = 0
    #: Newest request for a recording of a rank, see `tidepool.recordings`; None: there was none.
    recording: RecordingRequest | None = None
    #: Secrets of users that the script gets, encrypted for this host, and a sentence on why it cannot have them, or "".
    user_secrets: str = ""
    user_secrets_problem: str = ""
    #: Number of the owner among the users of the site, from 1 on; 0: a former release sends none.
    owner_number: int = 0
    #: Level of isolation that the job's group demands, as in `HostFacts.isolation`: none of the job's processes starts
    #: at a lower one. "": any will do.
    least_isolation: str = ""


class Sync(msgspec.Struct, frozen=True):
    host: str
    #: Raised by the control plane with each change of the host's desired state. An executor drops a lower one.
    revision: int
    #: Unix seconds of the control plane, for people: no two machines' clocks are compared.
    sent_at: float
    jobs: list[DesiredJob]
    #: Journal name -> number of its last entry that the control plane has stored.
    acknowledged: dict[str, int] = {}
    #: `Report.at` of the newest report taken: a host drops a desired state that its own clock finds too old by that.
    echo: float | None = None
    environments: list[WantedEnvironment] = []
    #: Number of hosts that report; 0: not told. The more there are, the less often each tells its steps, and the more
    #: reports wait as usual.
    hosts: Count = 0
    version: Literal[1] = PROTOCOL_VERSION


# --- executor -> shim, coordinator (JSON lines on their unix sockets) ----------------------------------------------


class DesiredMembership(msgspec.Struct, frozen=True):
    """The job's target, from the lead executor to the coordinator. Idempotent."""

    job: int
    attempt: int
    target_revision: int
    members: list[Member]
    stop: bool = False
    halt: bool = False
    #: Number under which this coordinator leads; see `tidepool.fence`.
    lead_number: int = 0
    #: Monotonic time of this machine at which the control plane was last in reach; None: not known.
    heard_at: float | None = None
    #: Number of the last entry of the coordinator's journal that the control plane has stored.
    acknowledged: int = 0
    #: See `DesiredJob.secret`.
    secret: str = ""
    version: Literal[1] = PROTOCOL_VERSION


#: Cause of a generation. halt: no members; all ranks leave together once the state is saved.
Cause = Literal["start", "resize", "failure", "halt"]


# --- coordinator <-> rank (JSON lines over TCP) ----------------------------------------------------------------------


class PlanMember(msgspec.Struct, frozen=True):
    """One rank of a generation; its place in `GenerationPlan.members` is its rank number."""

    member_id: Name
    host: Name
    slot: Count
    #: True if the member has the training's state; the others receive it from a holder at the switch.
    holder: bool


class GenerationPlan(msgspec.Struct, frozen=True):
    """One membership of the process group. Written once and never changed: a correction is the next generation."""

    generation: int
    members: list[PlanMember]
    #: Address where the members meet: the coordinator's store; for a gang, the one that rank 0 shall open.
    store_address: str
    store_port: int
    target_revision: int
    cause: Cause


class Join(msgspec.Struct, frozen=True):
    """A rank's first line on each connection to its coordinator."""

    job: int
    attempt: int
    member_id: str
    host: str
    slot: int
    pid: int
    #: The generation that it trains in, 0 before its first one.
    generation: int
    ready: bool
    #: Revision of the desired state that it was started for: a coordinator that knows only older ones keeps the rank.
    target_revision: int = 0
    #: For a script that knows nothing of us. A session in a single process joins again, for itself.
    gang: bool = False
    #: Number of the newest lead that it has heard of; None: a rank of an earlier release, which knows of none.
    lead_number: int | None = None
    version: Literal[1] = PROTOCOL_VERSION


class Retire(msgspec.Struct, frozen=True):
    """Request of a new coordinator to one that still runs on a lost executor's host: end, the new one takes over."""

    job: int
    attempt: int
    retire: Literal[True]
    version: Literal[1] = PROTOCOL_VERSION


class WrittenCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint on the disk that is not published yet."""

    size_bytes: int
    sha256: str
    #: Number of them to keep; None: neither the job nor its script says one.
    kept: int | None = None
    #: The generation that was to halt with it; None: training continues.
    halt: int | None = None


class UnusableCheckpoint(msgspec.Struct, frozen=True):
    path: str
    why: str


class Restoration(msgspec.Struct, frozen=True):
    #: Path of a checkpoint; "": training starts from nothing.
    used: str
    unusable: list[UnusableCheckpoint]


class MemberMessage(msgspec.Struct, frozen=True):
    """A rank to its coordinator.

    ready: could join. prepared: has built the group of `generation` (or has noted that it leaves with it).
    unprepared: could not. switched: trains in `generation` from now on. left: is about to exit, as planned.
    broken: a collective of `generation` failed. trained: the loop over all epochs is over, and the script goes on.
    finished: the script has ended. Of rank 0, both say that the weights are written.
    checkpoint: one of `step` is on the disk, aside. checkpoint_failed: it could not be written. restored: what the
    attempt continues from. alive: where its training thread is, about once a second. profile: how steps and batch are.
    """

    kind: Literal[
        "ready",
        "prepared",
        "unprepared",
        "switched",
        "left",
        "broken",
        "trained",
        "finished",
        "checkpoint",
        "checkpoint_failed",
        "restored",
        "alive",
        "profile",
    ]
    generation: int = 0
    step: int = 0
    epoch: int = 0
    #: Milliseconds that training stood still at the boundary (switched only).
    pause_ms: float = 0.0
    #: Alive, trained and finished only: collectives completed; the latter two: digest of the weights, if known.
    operation: int = 0
    digest: str = ""
    #: Alive only: how long it has waited for other ranks (None: it does not), a median step, its call, its time.
    waits_seconds: float | None = None
    step_seconds: float = 0.0
    call: CollectiveCall | None = None
    spent: SpentTime | None = None
    #: Ready in a gang only: address and port where the others can meet this rank.
    meeting: tuple[str, int] | None = None
    #: Why it is unprepared, why the checkpoint failed, or why there is no profile.
    error: str = ""
    #: Checkpoint only.
    written: WrittenCheckpoint | None = None
    #: Restored only.
    restoration: Restoration | None = None
    #: Profile only: samples of a step, of a rank's micro-batch at most (0: the whole step), and changes since the last.
    batch_size: int = 0
    most_micro_batch: int = 0
    times: list[StepTimes] = []
    #: ... and the batch of an adaptive training.
    adapted: AdaptedBatch | None = None


class CoordinatorMessage(msgspec.Struct, frozen=True):
    """A coordinator to a rank.

    prepare: build the group of `plan` in the background. commit: switch to `generation` at the next step boundary;
    to a rank of a gang: run the script, in its place of `plan`.
    abandon: forget `generation`. recover: members died, go on in `plan` now. stop: exit, you are not needed.
    finished: the training is complete. fenced: you belong to a past that is over, end at once.
    checkpointed: the newest one is of `step`, published `age` seconds ago. checkpoint_refused: that of `step` is not.
    lead: follow me. hold: no plan is made as long as most hosts and the control plane are out of reach.
    """

    kind: Literal[
        "prepare",
        "commit",
        "abandon",
        "recover",
        "stop",
        "finished",
        "fenced",
        "checkpointed",
        "checkpoint_refused",
        "lead",
        "hold",
    ]
    generation: int = 0
    plan: GenerationPlan | None = None
    step: int = 0
    age: float = 0.0
    #: Number under which the sender leads; see `tidepool.fence`.
    lead_number: int = 0


# --- executor -> control plane ---------------------------------------------------------------------------------------


class RankStatus(msgspec.Struct, frozen=True):
    """A live process in a slot. A slot without one is empty: its claim may be released once it is vacating.

    A process that holds several slots has one status for each.
    """

    job: Count
    attempt: Count
    slot: Count
    #: Rank id, never reused within an attempt: `<host>.<slot>.<n>`.
    member_id: Name
    pid: Count
    #: Unix seconds of the process's start, from /proc: the same figure as `psutil.Process.create_time()`.
    started_at: Seconds
    state: Literal["LAUNCHING", "RUNNING", "STOPPING"]


class ShimStatus(msgspec.Struct, frozen=True):
    """A shim to the executor: when it connects, after each desired state and on each change."""

    job: int
    attempt: int
    pid: int
    started_at: float
    #: Revision of the newest desired state; 0 before the first.
    target_revision: int
    stopping: bool
    ranks: list[RankStatus]
    version: Literal[1] = PROTOCOL_VERSION


class DeviceReading(msgspec.Struct, frozen=True):
    """One reading of one slot's device. None: the hardware does not tell."""

    slot: Count
    #: GPU model as NVML names it, or "virtual GPU (CPU)".
    model: str
    virtual: bool
    #: 0..100. For a virtual GPU: CPU time of the rank in it over wall time, capped at 100.
    utilisation_percent: Figure | None
    memory_used_bytes: Bytes | None
    memory_total_bytes: Bytes | None
    temperature_celsius: Figure | None = None
    power_watts: Figure | None = None
    uuid: str | None = None
    #: Time in which the processes in the slot ran on a processor or waited for one, in percent of one processor.
    processor_percent: Figure | None = None
    #: Why nothing may run on the device; "": it is well.
    fault: Annotated[str, msgspec.Meta(max_length=300)] = ""
    #: Part of the slot in the use of the host by the rank in it; None: there is no rank, or it is not known yet.
    processes: ProcessUse | None = None


class JournalEntry(msgspec.Struct, frozen=True):
    #: `<job>.<attempt>.` and `shim.<host>`, `host.<host>`, `coordinator`, `metrics`, `recorded` or `observed`.
    journal: str
    #: Position in the journal, from 1.
    number: Count
    #: Name of a class of `entries.py`; of metrics: step.
    kind: Name
    data: dict[str, Any]


class Report(msgspec.Struct, frozen=True):
    host: Name
    #: Changes with each start of the executor.
    boot: Annotated[str, msgspec.Meta(max_length=64)]
    #: Unix seconds by the executor's own clock, which does not jump: orders its reports.
    at: Seconds
    #: The newest `Sync.revision` that the executor has carried out.
    applied_revision: Bytes
    facts: HostFacts
    devices: Annotated[list[DeviceReading], msgspec.Meta(max_length=1024)]
    ranks: list[RankStatus]
    entries: list[JournalEntry]
    #: The executor is leaving on purpose (drained and stopped).
    leaving: bool = False
    #: Time at which the machine will be gone, by the clock of `at`, and where that was said; None: nobody said so.
    leaving_at: Seconds | None = None
    leaving_why: Annotated[str, msgspec.Meta(max_length=200)] = ""
    #: Unix seconds by the host's clock, which people may set.
    clock: Seconds | None = None
    #: Seconds by which `at` is behind the control plane's clock at least, by the times in its desired states.
    least_behind: float | None = None
    #: States of all wanted environments, told on each change, and now and then; None: as told before.
    environments: Annotated[list[EnvironmentState], msgspec.Meta(max_length=10_000)] | None = None
    version: Literal[1] = PROTOCOL_VERSION


def host_of(member_id: str) -> str:
    """Return the host of the rank `<host>.<slot>.<n>`."""
    return member_id.rsplit(".", 2)[0]
