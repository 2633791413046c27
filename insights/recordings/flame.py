"""The flame graph of a rank: which functions its main thread is in, drawn, as a table, and in speedscope's form."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from tidepool.protocol import FlameAnswer, SampledFunction, SampledThread

from insights.recordings.states import Recorded, RecordingState, recorded
from insights.stacks.parsing import Frame, of_script
from insights.stacks.places import doing_of, is_own, shown_file
from jobs.files.job_folder import job_folder
from jobs.models import Job

__all__ = ["Box", "Flame", "FlameFunction", "drawn_flame", "flame_of", "speedscope"]

#: Largest number of functions in the table, of boxes and of rows in the drawing, and the smallest share of a box.
_MOST_FUNCTIONS = 40
_MOST_BOXES, _MOST_ROWS, _LEAST_SHARE = 1500, 100, 0.004
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


@dataclass(frozen=True)
class FlameFunction:
    name: str
    place: Annotated[str, "File and first line of the function; of one of C, its library."]
    is_own: Annotated[bool, "Whether it is of the script's own code."]
    self_share: Annotated[float, "Fraction of the samples in which the thread was in the function itself, 0 to 1."]
    total_share: Annotated[float, "... or in a function that it has called."]
    is_native: Annotated[bool, "Whether it is a function of C."] = False


@dataclass(frozen=True)
class Flame:
    number: Annotated[int, "Number of the request; 0: there was none."]
    state: Annotated[RecordingState, "recording: the rank has not answered yet. failed: see `text`."]
    text: Annotated[str, "The main thread's longest activity, or the reason why there is no flame graph."]
    rank: Annotated[int | None, "Rank that was recorded."]
    member_id: str
    seconds: Annotated[float, "Time of recording; before the answer, the requested one."]
    samples: int
    at: Annotated[datetime | None, "Time of the request."]
    requested_by: str
    functions: Annotated[
        list[FlameFunction], "Functions of the main thread, those with most samples of their own first."
    ]
    is_native: Annotated[bool, "Whether it has functions of C; before the answer, whether they were requested."] = False


class Box(NamedTuple):
    """A function in the drawing, below those that have called it. Lengths are percent of its width."""

    name: str
    title: str
    #: own: of the script. library: of others, in Python. native: of C.
    kind: Literal["own", "library", "native"]
    row: int
    start: float
    width: float


@dataclass
class _Node:
    """A function, called by those above it. place: in `FlameAnswer.functions`; -1: the root."""

    place: int
    count: int = 0
    callees: dict[int, "_Node"] = field(default_factory=dict)


def flame_of(job: Job) -> Flame:
    """Return the newest flame graph, without waiting for the rank."""
    found = recorded(job, "flame")
    if found.recording is None:
        return Flame(0, "none", "", None, "", 0.0, 0, None, "", [])
    answer = found.answer if isinstance(found.answer, FlameAnswer) else None
    text = found.problem if answer is None else _text(job, answer, found.recording.rank)
    return Flame(
        found.recording.number,
        found.state,
        text,
        found.recording.rank,
        found.recording.member_id,
        found.recording.amount if answer is None else round(answer.seconds, 1),
        0 if answer is None else answer.samples,
        found.recording.requested_at,
        found.recording.by,
        [] if answer is None else _functions(job, answer),
        found.recording.native if answer is None else answer.is_native,
    )


def main_stacks(answer: FlameAnswer) -> list[tuple[list[int], int]]:
    """Return the main thread's stacks within the script, the outermost function first, and their samples."""
    main = next((thread for thread in answer.threads if thread.is_main), None)
    return [] if main is None else list(_stacks(main, answer.functions))


def _stacks(thread: SampledThread, functions: Sequence[SampledFunction]) -> Iterator[tuple[list[int], int]]:
    for stack, count in zip(thread.stacks, thread.counts, strict=False):
        known = [place for place in stack if place < len(functions)]
        kept = len(list(of_script([_frame(functions[place]) for place in reversed(known)])))
        if kept and count:
            yield known[len(known) - kept :], count


def _frame(function: SampledFunction) -> Frame:
    return Frame(function.file, function.line, function.name)


def _text(job: Job, answer: FlameAnswer, rank: int) -> str:
    """Return "In 62 % of 500 samples within 10 s, rank 0 waits for workers of its data loader in train.py ..."."""
    code, doings = str(job_folder(job).code), Counter[str]()
    for stack, count in main_stacks(answer):
        frames = [_frame(answer.functions[place]) for place in reversed(stack) if not answer.functions[place].is_native]
        doings[doing_of(frames, code).words(plural=False, code=code)] += count
    if not doings:
        return f"Rank {rank} was in no function of Python in {answer.samples} samples."
    [(words, count)] = doings.most_common(1)
    share = f"{count / sum(doings.values()) * 100:.0f} %"
    return f"In {share} of {answer.samples} samples within {answer.seconds:.0f} s, rank {rank} {words}."


def _functions(job: Job, answer: FlameAnswer) -> list[FlameFunction]:
    code, own, total = str(job_folder(job).code), Counter[int](), Counter[int]()
    for stack, count in main_stacks(answer):
        own[stack[-1]] += count
        total.update(dict.fromkeys(set(stack), count))
    everything = own.total()
    places = sorted(total, key=lambda place: (-own[place], -total[place], place))[:_MOST_FUNCTIONS]
    return [
        FlameFunction(
            answer.functions[place].name,
            _place(answer.functions[place], code),
            _kind(answer.functions[place], code) == "own",
            round(own[place] / everything, 4),
            round(total[place] / everything, 4),
            answer.functions[place].is_native,
        )
        for place in places
    ]


def _place(function: SampledFunction, code: str) -> str:
    file = shown_file(function.file, code)
    return file if function.is_native and not function.line else f"{file} line {function.line or '?'}"


def _kind(function: SampledFunction, code: str) -> Literal["own", "library", "native"]:
    if function.is_native:
        return "native"
    return "own" if is_own(_frame(function), code) else "library"


def drawn_flame(job: Job) -> list[Box]:
    """Return the drawing of the newest flame graph; []: there is none."""
    answer = recorded(job, "flame").answer
    if not isinstance(answer, FlameAnswer):
        return []
    root = _tree(main_stacks(answer))
    return list(_boxes(root, answer, str(job_folder(job).code)))[:_MOST_BOXES]


def _tree(stacks: Sequence[tuple[list[int], int]]) -> _Node:
    root = _Node(-1)
    for stack, count in stacks:
        node = root
        node.count += count
        for place in stack[:_MOST_ROWS]:
            node = node.callees.setdefault(place, _Node(place))
            node.count += count
    return root


def _boxes(root: _Node, answer: FlameAnswer, code: str) -> Iterator[Box]:
    """Yield boxes row by row, so that a limit leaves out the innermost ones."""
    row, nodes = 0, [(0.0, root)]
    while nodes:
        below = []
        for start, node in nodes:
            if node.place >= 0:
                yield _box(node, answer, code, row, start, root.count)
            for callee in sorted(node.callees.values(), key=lambda callee: (-callee.count, callee.place)):
                if callee.count / root.count >= _LEAST_SHARE:
                    below.append((start, callee))
                start += callee.count / root.count
        row, nodes = row + (nodes[0][1] is not root), below


def _box(node: _Node, answer: FlameAnswer, code: str, row: int, start: float, samples: int) -> Box:
    function, share = answer.functions[node.place], node.count / samples
    title = f"{function.name}, {_place(function, code)}: {share * 100:.1f} % of the samples"
    return Box(function.name, title, _kind(function, code), row, round(start * 100, 3), round(share * 100, 3))


def speedscope(found: Recorded, name: str) -> dict[str, Any]:
    """Return the flame graph in the form of speedscope's files, a profile for each thread.

    Equal stacks are added up, so the order in time is not that of the training.
    """
    answer = found.answer
    assert isinstance(answer, FlameAnswer)
    seconds = answer.seconds / max(1, answer.samples)
    frames = [{"name": each.name, "file": each.file, "line": each.line} for each in answer.functions]
    profiles = [_profile(thread, seconds) for thread in answer.threads]
    return {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": "Tidepool",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }


def _profile(thread: SampledThread, seconds: float) -> dict[str, Any]:
    weights = [round(count * seconds, 6) for count in thread.counts]
    return {
        "type": "sampled",
        "name": thread.name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": round(sum(weights), 6),
        "samples": thread.stacks,
        "weights": weights,
    }
