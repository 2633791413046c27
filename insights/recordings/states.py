"""The state of a recording, and the sentence on why there is none."""

from typing import Literal, NamedTuple, get_args

from tidepool.protocol import FlameAnswer, RecordingKind, TraceAnswer

from jobs.files.recordings import Recording, answer_of, has_ended, recording_of
from jobs.models import Job

__all__ = ["RECORDING_STATES", "Recorded", "RecordingState", "recorded"]

#: none: nothing was requested. recording: the rank has not answered yet. recorded: it has. failed: there is none.
RecordingState = Literal["none", "recording", "recorded", "failed"]
RECORDING_STATES: tuple[str, ...] = get_args(RecordingState)

_PROBLEMS = {
    "stopped": "Rank {rank} is stopped, by SIGSTOP or a debugger: let it go on, and record it again.",
    "ended": "Rank {rank} has ended before it had recorded anything.",
    "busy": "Rank {rank} still records what was requested before: wait until that is over, and ask again.",
    "no_torch": "Rank {rank} has not imported torch, whose profiler makes traces: record a flame graph.",
    "profiled": (
        "The script of rank {rank} has a profiler of torch of its own, and a process can have one at a time: look at"
        " what that one records, or remove it from the script."
    ),
    "no_steps": (
        "No optimizer of rank {rank} has made a step within a minute, so there was nothing to record: take its stacks"
        " to see where it is."
    ),
    "too_long": "Rank {rank} did not come to the end of a step in time: take its stacks to see where it is.",
    "too_large": "The steps have more than a million events, so nothing was kept: record fewer of them.",
    "no_py_spy": (
        "Rank {rank} has no py-spy, which sees functions of C: add py-spy to the training's requirements or have it"
        " installed on {host}, or record the functions of Python alone."
    ),
    "failed": "Rank {rank} could not record: {detail}",
}
_SILENT = (
    "Rank {rank} has not answered: it is stopped, hangs in C code that holds the interpreter's lock, its disk is full,"
    " or its host is out of reach or of an earlier release. Take its stacks to see where it is."
)


class Recorded(NamedTuple):
    recording: Recording | None
    state: RecordingState
    #: Sentence on why there is no recording; "": there is one, or it is not over.
    problem: str
    #: Answer of the rank; None unless the state is `recorded`.
    answer: FlameAnswer | TraceAnswer | None


def recorded(job: Job, kind: RecordingKind) -> Recorded:
    """Return what came of the newest request of this kind."""
    recording = recording_of(job, kind)
    if recording is None:
        return Recorded(None, "none", "", None)
    answer = answer_of(job, recording)
    if answer is not None and not answer.problem:
        return Recorded(recording, "recorded", "", answer)
    if answer is not None:
        return Recorded(recording, "failed", _sentence(answer.problem, recording, answer.detail), None)
    if has_ended(job, recording):
        return Recorded(recording, "failed", _sentence("ended", recording), None)
    if recording.is_late:
        return Recorded(recording, "failed", _SILENT.format(rank=recording.rank), None)
    return Recorded(recording, "recording", "", None)


def _sentence(problem: str, recording: Recording, detail: str = "") -> str:
    # The detail is text of a script: it is no format.
    return _PROBLEMS[problem].format(rank=recording.rank, host=recording.host, detail=detail)
