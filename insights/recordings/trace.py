"""The trace of a rank's steps: its longest operators, and how busy processor and GPU were, in words."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from tidepool.protocol import TraceAnswer
from tidepool.units import size_words

from insights.recordings.states import RecordingState, recorded
from jobs.models import Job

__all__ = ["StepTrace", "TraceOperator", "trace_of"]


@dataclass(frozen=True)
class TraceOperator:
    name: str
    is_on_gpu: Annotated[bool, "A kernel of the GPU; else an operator on the CPU."]
    calls: int
    milliseconds: Annotated[float, "Time in it, without operators that it calls."]
    share: Annotated[float, "The same as a fraction of the recorded time. Parallel ones may exceed 1 together."]


@dataclass(frozen=True)
class StepTrace:
    number: Annotated[int, "Number of the request; 0: there was none."]
    state: Annotated[RecordingState, "recording: the rank has not answered yet. failed: see `text`."]
    text: Annotated[str, "Use of processor and GPU, or the reason why there is no trace."]
    rank: Annotated[int | None, "Rank that was recorded."]
    member_id: str
    steps: Annotated[int, "Recorded steps; before the answer, the requested ones."]
    seconds: Annotated[float, "Time of the recorded steps."]
    at: Annotated[datetime | None, "Time of the request."]
    requested_by: str
    cpu_share: Annotated[float | None, "Fraction of the time in which at least one operator ran on the CPU."]
    gpu_share: Annotated[float | None, "... one kernel on the GPU; null: it has none."]
    operators: Annotated[list[TraceOperator], "The ten longest, the longest first."]
    size_bytes: Annotated[int, "Size of the trace's file, compressed."]


def trace_of(job: Job) -> StepTrace:
    """Return the newest trace, without waiting for the rank."""
    found = recorded(job, "trace")
    if found.recording is None:
        return StepTrace(0, "none", "", None, "", 0, 0.0, None, "", None, None, [], 0)
    recording, answer = found.recording, found.answer
    head = found.recording.rank, found.recording.member_id
    if not isinstance(answer, TraceAnswer):
        author = recording.requested_at, recording.by
        state = recording.number, found.state, found.problem
        return StepTrace(*state, *head, recording.amount, 0.0, *author, None, None, [], 0)
    return StepTrace(
        recording.number,
        found.state,
        _text(answer, recording.rank),
        *head,
        answer.steps,
        round(answer.seconds, 6),
        recording.requested_at,
        recording.by,
        _share(answer.cpu_seconds, answer),
        None if answer.gpu_seconds is None else _share(answer.gpu_seconds, answer),
        [
            TraceOperator(
                each.name, each.is_on_gpu, each.calls, round(each.seconds * 1000, 3), _share(each.seconds, answer)
            )
            for each in answer.operators
        ],
        answer.file_bytes,
    )


def _share(seconds: float, answer: TraceAnswer) -> float:
    return round(seconds / answer.seconds, 4) if answer.seconds else 0.0


def _text(answer: TraceAnswer, rank: int) -> str:
    sentences = [_busy(answer, rank)]
    if answer.is_cut:
        sentences.append("The trace was ended early, because the steps took longer than 20 s.")
    if answer.gpu_peak_bytes is not None and answer.gpu_reserved_bytes is not None and answer.gpu_total_bytes:
        sentences.append(_memory(answer.gpu_peak_bytes, answer.gpu_reserved_bytes, answer.gpu_total_bytes))
    return " ".join(sentences)


def _busy(answer: TraceAnswer, rank: int) -> str:
    steps = "1 step" if answer.steps == 1 else f"{answer.steps} steps"
    length = f"{answer.seconds * 1000:.0f} ms" if answer.seconds < 1 else f"{answer.seconds:.1f} s"
    cpu = _percent(_share(answer.cpu_seconds, answer))
    begin = f"{steps} of rank {rank} took {length}:" if answer.steps else f"First {length} of a step of rank {rank}:"
    if answer.gpu_seconds is None:
        return f"{begin} operators ran for {cpu} of the time, the rest is Python and waiting."
    gpu = _percent(_share(answer.gpu_seconds, answer))
    return f"{begin} kernels ran on the GPU for {gpu} of the time, operators on the CPU for {cpu}."


def _memory(peak: int, reserved: int, total: int) -> str:
    free = _percent(max(0.0, 1 - max(peak, reserved) / total))
    return (
        f"Tensors have taken at most {size_words(peak)} of the GPU's {size_words(total)}, and {size_words(reserved)}"
        f" are reserved for them: {free} below the limit."
    )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
