"""Answers of the REST API on stacks and recordings. scripts/client-rows writes this file from the OpenAPI schema."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = [
    "Flame",
    "FlameFunction",
    "StackGroup",
    "StackedProcess",
    "Stacks",
    "StalledStacks",
    "StepTrace",
    "TraceOperator",
]


@dataclass(frozen=True, kw_only=True)
class StackGroup:
    """`StackGroupOutput` of the REST API."""

    #: Labels of the ranks: their numbers, or their ids where they have none.
    ranks: Sequence[str] = ()
    #: Activity of the ranks, in words.
    text: str = ""
    #: Frames of the main thread, the innermost first; empty: there is none.
    stack: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class StackedProcess:
    """`StackedProcessOutput` of the REST API."""

    #: Rank in the newest generation; null: not a member of it.
    rank: int | None = None
    member_id: str = ""
    host: str = ""
    pid: int = 0
    name: str = ""
    #: Whether the rank has forked it, such as a worker of its data loader.
    is_worker: bool = False
    #: Values: answered, stopped, in_kernel, unable, silent, ended.
    state: str = ""
    #: Activity of the main thread, in words; empty: the process has not answered.
    text: str = ""
    #: Frames of each thread, the innermost first; the main thread comes first.
    threads: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, kw_only=True)
class StalledStacks:
    """`StalledStacksOutput` of the REST API."""

    groups: tuple[StackGroup, ...] = ()
    #: The newest attempt in which ranks were ended because they made no step.
    attempt: int = 0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """`StacksOutput` of the REST API."""

    #: Ranks by equal stacks of their main threads, the largest group first.
    groups: tuple[StackGroup, ...] = ()
    stalled: StalledStacks | None = None
    #: Number of the newest request; 0: there was none.
    number: int = 0
    #: taking: some hosts have not answered yet. Values: none, taking, taken.
    state: str = ""
    #: Time of the request.
    at: datetime | None = None
    requested_by: str = ""
    #: Activity of all ranks, in one sentence.
    text: str = ""
    #: Hosts that have not answered.
    missing_hosts: Sequence[str] = ()
    processes: tuple[StackedProcess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FlameFunction:
    """`FlameFunctionOutput` of the REST API."""

    name: str = ""
    #: File and first line of the function; of one of C, its library.
    place: str = ""
    #: Whether it is of the script's own code.
    is_own: bool = False
    #: Fraction of the samples in which the thread was in the function itself, 0 to 1.
    self_share: float = 0.0
    #: ... or in a function that it has called.
    total_share: float = 0.0
    #: Whether it is a function of C.
    is_native: bool = False


@dataclass(frozen=True, kw_only=True)
class Flame:
    """`FlameOutput` of the REST API."""

    #: Number of the request; 0: there was none.
    number: int = 0
    #: recording: the rank has not answered yet. failed: see `text`. Values: none, recording, recorded, failed.
    state: str = ""
    #: The main thread's longest activity, or the reason why there is no flame graph.
    text: str = ""
    #: Rank that was recorded.
    rank: int | None = None
    member_id: str = ""
    #: Time of recording; before the answer, the requested one.
    seconds: float = 0.0
    samples: int = 0
    #: Time of the request.
    at: datetime | None = None
    requested_by: str = ""
    #: Functions of the main thread, those with most samples of their own first.
    functions: tuple[FlameFunction, ...] = ()
    #: Whether it has functions of C; before the answer, whether they were requested.
    is_native: bool = False


@dataclass(frozen=True, kw_only=True)
class TraceOperator:
    """`TraceOperatorOutput` of the REST API."""

    name: str = ""
    #: A kernel of the GPU; else an operator on the CPU.
    is_on_gpu: bool = False
    calls: int = 0
    #: Time in it, without operators that it calls.
    milliseconds: float = 0.0
    #: The same as a fraction of the recorded time. Parallel ones may exceed 1 together.
    share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """`StepTraceOutput` of the REST API."""

    #: Number of the request; 0: there was none.
    number: int = 0
    #: recording: the rank has not answered yet. failed: see `text`. Values: none, recording, recorded, failed.
    state: str = ""
    #: Use of processor and GPU, or the reason why there is no trace.
    text: str = ""
    #: Rank that was recorded.
    rank: int | None = None
    member_id: str = ""
    #: Recorded steps; before the answer, the requested ones.
    steps: int = 0
    #: Time of the recorded steps.
    seconds: float = 0.0
    #: Time of the request.
    at: datetime | None = None
    requested_by: str = ""
    #: Fraction of the time in which at least one operator ran on the CPU.
    cpu_share: float | None = None
    #: ... one kernel on the GPU; null: it has none.
    gpu_share: float | None = None
    #: The ten longest, the longest first.
    operators: tuple[TraceOperator, ...] = ()
    #: Size of the trace's file, compressed.
    size_bytes: int = 0
