"""Recordings of a rank on request: their requests, and the answers that a rank writes to its log folder (JSON)."""

from typing import Annotated, Literal

import msgspec

from tidepool.protocol.codec import PROTOCOL_VERSION, Bytes, Count, Name, Seconds

__all__ = [
    "FlameAnswer",
    "RecordingKind",
    "RecordingProblem",
    "RecordingRequest",
    "SampledFunction",
    "SampledThread",
    "TraceAnswer",
    "TracedOperator",
]

#: flame: samples of the functions that the threads are in. trace: what torch.profiler records of some steps.
RecordingKind = Literal["flame", "trace"]
#: Cause for which there is no recording; "": there is one. stopped: by SIGSTOP or a debugger. ended: the rank has
#: ended. busy: another recording is under way. no_torch: the script has not imported torch. profiled: the script has a
#: profiler of its own under way. no_steps: no optimizer has made a step in time. too_long: the steps did not end in
#: time. too_large: more events than are kept. no_py_spy: it is not installed. failed: an error, see `detail`.
RecordingProblem = Literal[
    "", "stopped", "ended", "busy", "no_torch", "profiled", "no_steps", "too_long", "too_large", "no_py_spy", "failed"
]
#: Names and files as a script may choose them.
_Text = Annotated[str, msgspec.Meta(max_length=1024)]


class RecordingRequest(msgspec.Struct, frozen=True):
    #: Raised with each request of a job, whatever its kind.
    number: Count
    kind: RecordingKind
    member_id: Name
    #: Seconds of a flame graph, steps of a trace.
    amount: Count
    #: Whether a flame graph has functions of C, by py-spy. Earlier releases record those of Python alone.
    native: bool = False


class SampledFunction(msgspec.Struct, frozen=True):
    name: _Text
    file: _Text
    #: First line of the function; 0: not known.
    line: Count
    #: Whether it is one of C, of the shared library `file`.
    is_native: bool = False


class SampledThread(msgspec.Struct, frozen=True):
    name: _Text
    is_main: bool
    #: Distinct stacks: places in `FlameAnswer.functions`, the outermost function first.
    stacks: list[list[Count]]
    #: Number of samples in each of them.
    counts: list[Count]


class FlameAnswer(msgspec.Struct, frozen=True):
    """Answer of a rank, which replaces the former one."""

    number: Count
    problem: RecordingProblem = ""
    detail: _Text = ""
    #: Time of recording.
    seconds: Seconds = 0.0
    #: Number of samples that were taken.
    samples: Count = 0
    functions: list[SampledFunction] = []
    threads: list[SampledThread] = []
    #: Samples of stacks that were left out, because there are too many different ones.
    left_out: Count = 0
    #: Whether functions of C were recorded.
    is_native: bool = False
    version: Literal[1] = PROTOCOL_VERSION


class TracedOperator(msgspec.Struct, frozen=True):
    """An operator on the CPU, or a kernel on the GPU."""

    name: _Text
    is_on_gpu: bool
    calls: Count
    #: Time in it, without the operators that it calls.
    seconds: Seconds


class TraceAnswer(msgspec.Struct, frozen=True):
    """Answer of a rank, which replaces the former one."""

    number: Count
    problem: RecordingProblem = ""
    detail: _Text = ""
    #: Number of recorded steps.
    steps: Count = 0
    #: Time of recording.
    seconds: Seconds = 0.0
    #: Whether it was ended before the last step, because it took too long.
    is_cut: bool = False
    #: Operators and kernels, the longest first.
    operators: list[TracedOperator] = []
    #: Time in which at least one operator ran on the CPU, and at least one kernel on the GPU; None: there is no GPU.
    cpu_seconds: Seconds = 0.0
    gpu_seconds: Seconds | None = None
    #: Largest memory of the GPU that tensors have taken, that is reserved, and that the GPU has; None: there is none.
    gpu_peak_bytes: Bytes | None = None
    gpu_reserved_bytes: Bytes | None = None
    gpu_total_bytes: Bytes | None = None
    #: Size of the compressed file.
    file_bytes: Bytes = 0
    version: Literal[1] = PROTOCOL_VERSION
