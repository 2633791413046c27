"""Journal entries, one class per kind: written by shims, executors and coordinators, read by them and jobs/control.

On disk an entry is `{"number": 3, "kind": "rank_joined", "data": {...}}`; `kind` is the tag of its class. Records of
`metrics.jsonl` are bare: a line is the data of a `StepRecord`, and every other key of it is a metric.
"""

from typing import Annotated, Any, Literal

import msgspec

from tidepool.protocol.codec import Bytes, Count, Figure, Name, Seconds, from_json, to_json
from tidepool.protocol.measures import AdaptedBatch, RankTime, StepTimes
from tidepool.protocol.messages import Cause, PlanMember, UnusableCheckpoint

__all__ = [
    "ActiveMember",
    "AttemptFailed",
    "CheckpointFailed",
    "CheckpointPublished",
    "Entry",
    "EnvironmentBuilding",
    "EnvironmentChanged",
    "EnvironmentFailed",
    "EnvironmentUsed",
    "Finished",
    "GenerationAbandoned",
    "GenerationActive",
    "GenerationPlanned",
    "GrowthGivenUp",
    "Halted",
    "HeldStill",
    "LeadTaken",
    "Lost",
    "NoProgress",
    "ObservedStep",
    "ProfileRefused",
    "Profiled",
    "RankExited",
    "RankFailed",
    "RankGrouped",
    "RankJoined",
    "RankLingers",
    "RankStarted",
    "RankStuck",
    "RecordedStep",
    "Restored",
    "SecretsFailed",
    "StepRecord",
    "TimeSpent",
    "entry_from_json",
    "entry_to_json",
]


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all entries."""

    #: Unix seconds, by the writer's clock.
    at: Seconds


# --- shim (`journal/shim.<host>.jsonl`) ------------------------------------------------------------------------------


class RankStarted(Entry, frozen=True, tag="rank_started"):
    member_id: Name
    slot: Count
    pid: Count
    started_at: Seconds


class RankGrouped(Entry, frozen=True, tag="rank_grouped"):
    """The script of a fixed rank has formed a process group."""

    member_id: Name
    slot: Count


class RankLingers(Entry, frozen=True, tag="rank_lingers"):
    """The rank's script has ended, and a thread, a process or an exit function of it still runs."""

    member_id: Name
    slot: Count


class RankExited(Entry, frozen=True, tag="rank_exited"):
    member_id: Name
    slot: Count
    pid: Count
    code: int | None = None
    signal: int | None = None
    #: The script's doing, and not the machine's; None: an exit code other than 0 says so.
    by_script: bool | None = None
    error: dict[str, Any] | None = None
    #: Whether the shim had asked the rank to end.
    stopped: bool = False
    #: Last step that the attempt had recorded when the rank ended; `metrics.jsonl` may be stored later. None: no step.
    step: Count | None = None


# --- executor, in the shim's journal, before there is a shim ----------------------------------------------------------


class EnvironmentBuilding(Entry, frozen=True, tag="environment_building"):
    #: One requirement per line.
    requirements: str


class EnvironmentFailed(Entry, frozen=True, tag="environment_failed"):
    """Installation of the job's requirements failed; it is not tried again."""

    #: Last line of the installer's output.
    why: str


class SecretsFailed(Entry, frozen=True, tag="secrets_failed"):
    """The secrets that the job's script gets cannot be given to it; it is not tried again."""

    #: Sentence with the cause and the remedy.
    why: str


#: Name or version of a distribution.
_Version = Annotated[str, msgspec.Meta(max_length=200)]


class EnvironmentUsed(Entry, frozen=True, tag="environment_used"):
    """The software of the job's ranks on this host, written before the first of them starts."""

    python: _Version
    #: Platform, such as `linux-x86_64`.
    platform: _Version
    #: Version of CUDA that torch is built for, of its NCCL, and of the GPUs' driver; "": there is none.
    cuda: _Version
    nccl: _Version
    driver: _Version
    #: Version of each distribution that the ranks can import, by name.
    packages: Annotated[dict[_Version, _Version], msgspec.Meta(max_length=5000)]
    #: Address of each distribution that is not from an index, by name.
    origins: Annotated[dict[_Version, Annotated[str, msgspec.Meta(max_length=2000)]], msgspec.Meta(max_length=5000)]
    #: Digest of the contents of the folder that is the environment; "": none is.
    digest: _Version = ""


class EnvironmentChanged(Entry, frozen=True, tag="environment_changed"):
    """The folder that is the job's environment has changed on this host since its ranks were started."""

    folder: Annotated[str, msgspec.Meta(max_length=2000)]
    #: Digest of what it holds now; "": it cannot be read any more.
    digest: _Version
    #: Differences, such as "numpy 1.26.4 -> 2.1.0".
    changes: Annotated[list[Annotated[str, msgspec.Meta(max_length=2000)]], msgspec.Meta(max_length=20)]


# --- coordinator (`plans.jsonl`) -------------------------------------------------------------------------------------


class LeadTaken(Entry, frozen=True, tag="lead_taken"):
    """A coordinator leads from here on: what an older lead writes behind this counts for nothing."""

    host: Name


class HeldStill(Entry, frozen=True, tag="held_still"):
    """Most hosts and the control plane are out of reach: no step is made, the state is kept."""

    host: Name
    #: Hosts out of reach.
    gone: list[Name]


class RankJoined(Entry, frozen=True, tag="rank_joined"):
    member_id: Name
    host: Name
    slot: Count


class GenerationPlanned(Entry, frozen=True, tag="generation_planned"):
    generation: Count
    members: list[PlanMember]
    target_revision: Count
    cause: Cause


class ActiveMember(msgspec.Struct, frozen=True):
    member_id: Name
    rank: Count
    host: Name
    slot: Count


class GenerationActive(Entry, frozen=True, tag="generation_active"):
    """All members train in the generation, from the step boundary `step` on."""

    generation: Count
    world_size: Count
    step: Count
    #: Milliseconds that training stood still at the boundary.
    pause_ms: Figure
    target_revision: Count
    cause: Cause
    members: list[ActiveMember]


class GenerationAbandoned(Entry, frozen=True, tag="generation_abandoned"):
    generation: Count
    why: str


class RankStuck(Entry, frozen=True, tag="rank_stuck"):
    member_id: Name
    host: Name
    silent: bool
    seconds: Seconds
    why: str


class _Failure(Entry, frozen=True):
    member_id: Name
    slot: Count
    code: int | None
    signal: int | None
    by_script: bool
    error: dict[str, Any] | None
    host: Name
    #: Number of completed steps when it ended; None: it had not taken part in the training yet.
    step: Count | None
    #: Generation in which the other ranks continued; 0 before the rank took part.
    generation: Count
    #: Whether the rank had joined a training under way, less than two epochs before.
    newcomer: bool = False


class RankFailed(_Failure, frozen=True, tag="rank_failed"):
    """The script ended a rank; the others train on."""


class AttemptFailed(_Failure, frozen=True, tag="failed"):
    """The same error occurred again at the same step, so the attempt is given up."""


class GrowthGivenUp(_Failure, frozen=True, tag="growth_given_up"):
    """The same error ended two newcomers in one slot, so the slot gets no third one: the training keeps its size."""

    #: The ranks that train.
    members: list[ActiveMember] = []


class NoProgress(Entry, frozen=True, tag="no_progress"):
    text: str


class Restored(Entry, frozen=True, tag="restored"):
    """The state that the attempt continues from."""

    step: Count
    epoch: Count
    #: Path of a checkpoint; "": training starts from nothing.
    used: str
    unusable: list[UnusableCheckpoint]


class CheckpointPublished(Entry, frozen=True, tag="checkpoint"):
    step: Count
    epoch: Count
    #: Relative to the attempt's folder.
    path: str
    size_bytes: Bytes
    sha256: str


class CheckpointFailed(Entry, frozen=True, tag="checkpoint_failed"):
    step: Count
    epoch: Count
    error: str


class Profiled(Entry, frozen=True, tag="profile"):
    """New durations of steps, and the state of an adaptive batch."""

    step: Count
    #: Samples of a step, over all ranks.
    batch_size: Count
    times: list[StepTimes]
    #: Adapted batch; None: the batch does not adapt, or the report about it was implausible.
    adapted: AdaptedBatch | None = None
    #: Samples of a rank's micro-batch at most; 0: all that it has of a step is one.
    most_micro_batch: Count = 0


class ProfileRefused(Entry, frozen=True, tag="profile_refused"):
    """A report about steps is not believed, or the rank cannot measure them."""

    why: str


class TimeSpent(Entry, frozen=True, tag="time_spent"):
    """Time by cause of the ranks whose sums have changed since the entry before."""

    step: Count
    ranks: list[RankTime]


class Lost(Entry, frozen=True, tag="lost"):
    """Every rank that held the training's state has ended."""

    generation: Count


class Halted(Entry, frozen=True, tag="halted"):
    """All ranks stopped after `step`, whose checkpoint is published."""

    step: Count
    epoch: Count


class Finished(Entry, frozen=True, tag="finished"):
    """The training is complete and its weights are written."""

    step: Count
    epoch: Count


# --- rank 0 (`metrics.jsonl`) ----------------------------------------------------------------------------------------


class StepRecord(msgspec.Struct, frozen=True):
    """A completed step."""

    step: Count
    epoch: Count
    cursor: int
    samples: int
    world_size: Count
    generation: Count
    attempt: int
    at: Seconds
    #: Progress of the whole training, 0..1.
    progress: float | None = None
    #: Number of the lead under which it was made; see `tidepool.fence`.
    lead_number: Count = 0


# --- scripts without a session (`evaluation-metrics.txt`, see `tidepool.recorded_metrics`) --------------------------


class RecordedStep(msgspec.Struct, frozen=True):
    """A moment at which a script has recorded metrics, which are the other keys."""

    step: Count
    at: Seconds


# --- scripts that know nothing of us (what an executor has read of them, see `workers.executor.curves`) ---------------


class ObservedStep(msgspec.Struct, frozen=True):
    """One step as read from a source of a plain script."""

    step: Count
    at: Seconds
    kind: Literal["log", "csv", "json", "tensorboard", "library"]
    #: The stream of rank 0, or the file relative to the folder that it is in.
    where: Annotated[str, msgspec.Meta(max_length=200)]
    metrics: dict[str, float | None] = {}
    epoch: Count = 0
    #: Progress of the whole training according to the library or the log; None: unknown.
    progress: float | None = None
    #: Number of the pattern that the logs are read by.
    revision: Count = 0
    #: Number of curves beyond the limit, and whether parts of a source were passed over.
    left_out: Count = 0
    has_gaps: bool = False
    #: Whether the source states steps or epochs. If not, the step is the number of the point.
    counted: bool = True


_KINDS = [cls for base in (Entry, _Failure) for cls in base.__subclasses__() if cls is not _Failure]
_BY_KIND: dict[str, type[Entry]] = {str(cls.__struct_config__.tag): cls for cls in _KINDS}


def entry_to_json(entry: Entry) -> tuple[str, dict[str, Any]]:
    """Kind and data of an entry."""
    data = to_json(entry)
    return data.pop("kind"), data


def entry_from_json(kind: str, data: Any) -> Entry | None:
    """The entry of that kind; None if the kind is unknown here. Raises ProtocolError if `data` does not fit it."""
    cls = _BY_KIND.get(kind)
    return from_json(cls, data) if cls else None
