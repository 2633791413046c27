"""The REST API's answer to why a training is slow. scripts/client-rows writes this file from the OpenAPI schema."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

__all__ = [
    "AdviceOutcome",
    "MemoryAt",
    "RankShare",
    "RankUse",
    "SharesAt",
    "SlowAdvice",
    "UseAt",
    "WhySlow",
]


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """`RankShareOutput` of the REST API."""

    #: Rank in the newest generation; null: not a member of it.
    rank: int | None = None
    member_id: str = ""
    host: str = ""
    attempt: int = 0
    #: Time since it has joined.
    seconds: float = 0.0
    steps: int = 0
    #: Part -> fraction of its time, 0 to 1.
    shares: Mapping[str, Any] = field(default_factory=dict)
    #: Fraction of the compared sums of gradients into which it came last, 0 to 1.
    last_in: float = 0.0
    #: Seconds for which the other ranks have waited for it, on average over them.
    caused_seconds: float = 0.0
    #: Number of compared sums.
    compared: int = 0
    #: Workers of its data loader; null: not known.
    workers: int | None = None
    #: Fraction of its time in data in which its processor was busy, 0 to 1; null: not known, as workers read.
    data_busy: float | None = None
    #: Reads of a tensor on its GPU by the script, such as item(), in each step.
    reads: float = 0.0
    #: Fraction of its time for which these reads have held it up, less what its GPU computed, 0 to 1.
    read_share: float = 0.0
    #: Line with the longest of these reads.
    read_place: str = ""
    #: Bytes that a step sums over all ranks; 0: not known.
    sum_bytes: int = 0
    #: Most memory that its tensors have taken; null: its device is no GPU.
    gpu_peak_bytes: int | None = None
    #: Step of the rank in which that was first seen.
    gpu_peak_step: int | None = None
    #: Memory that torch's allocator holds.
    gpu_reserved_bytes: int | None = None
    #: Memory of its GPU that it may take: CUDA and others have the rest.
    gpu_limit_bytes: int | None = None
    #: Cores that the training may use on its host; null: all, or not known.
    core_limit: float | None = None
    #: Fraction of the tenths of a second in which the training has used these cores up and waited, 0 to 1.
    core_limit_share: float = 0.0
    #: CPUs to which it is bound, such as 0-31,64-95; empty: it may use all of its host's.
    cpus: str = ""


@dataclass(frozen=True, kw_only=True)
class SharesAt:
    """`SharesAtOutput` of the REST API."""

    at: datetime
    step: int = 0
    #: Part -> fraction of the time since the point before, 0 to 1.
    shares: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SlowAdvice:
    """`SlowAdviceOutput` of the REST API."""

    code: str = ""
    #: Fraction of the time that the advice is about, 0 to 1.
    fraction: float = 0.0
    #: The training is at most so many times as fast if the advice is followed.
    speedup: float = 0.0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class AdviceOutcome:
    """`AdviceOutcomeOutput` of the REST API."""

    #: Id of the earlier training that was advised.
    job: int = 0
    code: str = ""
    #: Bound of the speedup that the advice named.
    expected: float = 0.0
    #: Samples per second of this training over the earlier one's.
    speedup: float = 0.0
    #: Fraction of the earlier training's time that the advice was about, 0 to 1.
    share_before: float = 0.0
    #: The same part's fraction of this training's time; null: not known.
    share_after: float | None = None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class MemoryAt:
    """`MemoryAtOutput` of the REST API."""

    at: datetime
    step: int = 0
    #: Most memory that tensors had taken until then, of the fullest GPU.
    peak_bytes: int = 0
    #: Memory that torch's allocator held there.
    reserved_bytes: int = 0
    #: Memory that the rank may take of that GPU.
    limit_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RankUse:
    """`RankUseOutput` of the REST API."""

    #: Rank in the newest generation; null: not a member of it.
    rank: int | None = None
    host: str = ""
    #: Number of GPUs that its process holds.
    gpus: int = 0
    #: Cores that its processes use; null: not known.
    cores: float | None = None
    #: Cores that it has with its GPUs on the host; null: not known.
    share_cores: float | None = None
    #: Bytes per second that its processes read from disks; null: not known.
    read_rate: float | None = None
    #: Bytes per second that they write to disks; null: not known.
    written_rate: float | None = None
    #: Bytes per second that they receive; null: they share the host's network.
    received_rate: float | None = None
    #: Bytes per second that they send; null: they share the host's network.
    sent_rate: float | None = None
    #: Fraction of the time in which its GPUs compute, 0 to 1; null: not reported.
    gpu_busy: float | None = None


@dataclass(frozen=True, kw_only=True)
class UseAt:
    """`UseAtOutput` of the REST API."""

    #: End of the span of time.
    at: datetime
    #: Cores that the processes of all ranks use; null: not known.
    cores: float | None = None
    #: Bytes per second that all of them read from disks; null: not known.
    read_rate: float | None = None
    #: Bytes per second that all of them write to disks; null: not known.
    written_rate: float | None = None
    #: Bytes per second that all receive; null: they share a host's network.
    received_rate: float | None = None
    #: Bytes per second that all send; null: they share a host's network.
    sent_rate: float | None = None
    #: Fraction of the time in which a GPU computes, on average, 0 to 1.
    gpu_busy: float | None = None


@dataclass(frozen=True, kw_only=True)
class WhySlow:
    """`WhySlowOutput` of the REST API."""

    #: waiting: no time is measured yet. Values: measured, waiting, not_told_apart.
    state: str = ""
    #: The largest cause, in one sentence.
    text: str = ""
    #: Time of all ranks, added up.
    seconds: float = 0.0
    #: Part -> fraction of the time of all ranks, 0 to 1; they add up to 1.
    shares: Mapping[str, Any] = field(default_factory=dict)
    #: The same for the newest minute or more.
    recent: Mapping[str, Any] = field(default_factory=dict)
    #: Rank that the others wait for; null: there is none.
    straggler: int | None = None
    #: Ranks of the newest attempt.
    ranks: tuple[RankShare, ...] = ()
    #: Shares over time, the oldest first.
    points: tuple[SharesAt, ...] = ()
    #: Suggestions, the one that promises most first.
    advice: tuple[SlowAdvice, ...] = ()
    #: Results of the advice on the owner's training of the model before.
    outcomes: tuple[AdviceOutcome, ...] = ()
    #: Sentence on hosts where it uses up its limit of cores; empty: there is none.
    cores: str = ""
    #: Sentence on how far the GPUs' memory is used.
    memory: str = ""
    #: Warning that the memory of a GPU is nearly full, or fills up; empty: neither.
    memory_warning: str = ""
    #: Memory of the fullest GPU over time, the oldest first.
    memory_points: tuple[MemoryAt, ...] = ()
    #: Sentence on what its processes use of their hosts; empty: not known.
    processes: str = ""
    #: Use by the processes of each rank in the newest minute.
    process_ranks: tuple[RankUse, ...] = ()
    #: Use by all of its processes over time, the oldest first.
    process_points: tuple[UseAt, ...] = ()
