"""Answers of the REST API on recordings of a rank. scripts/client-rows writes this file from the OpenAPI schema."""

from dataclasses import dataclass
from datetime import datetime

__all__ = [
    "Flame",
    "FlameFunction",
    "StepTrace",
    "TraceOperator",
]


@dataclass(frozen=True, kw_only=True)
class FlameFunction:
    """`FlameFunctionOutput` of the REST API."""

    name: str = ""
    #: File and first line of the function.
    place: str = ""
    #: Whether it is of the script's own code.
    is_own: bool = False
    #: Fraction of the samples in which the thread was in the function itself, 0 to 1.
    self_share: float = 0.0
    #: ... or in a function that it has called.
    total_share: float = 0.0


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
