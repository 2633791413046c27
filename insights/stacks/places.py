"""What a stack says: what the process waits for, and where in its script it is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from insights.stacks.parsing import Frame

__all__ = ["Doing", "doing_of", "is_own", "shown_file", "shown_frame"]

_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_STANDARD = re.compile(r"^.*/lib/python3\.\d+/")
_RUNTIME = re.compile(r"^.*/(?=tidepool/(?:torch|stacks|protocol|cli|client|own_checkpoints|goodput)/)")
_FROZEN = re.compile(r"^<.*>$")

#: End of a file's name, function, and what a process in it waits for.
_WAITS = (
    ("tidepool/torch/comm/process_group.py", "wait", "the other ranks"),
    ("tidepool/torch/comm/process_group.py", "_wait", "the other ranks"),
    ("tidepool/torch/comm/nccl.py", "wait", "the other ranks"),
    ("tidepool/torch/rank/control.py", "wait_until", "the coordinator"),
    ("tidepool/command_runner.py", "run", "the command that it runs"),
    ("torch/utils/data/dataloader.py", "_try_get_data", "workers of its data loader"),
    ("torch/utils/data/dataloader.py", "_get_data", "workers of its data loader"),
)
#: Collectives of the runtime by file and function, in words.
_SUMS = (
    ("tidepool/torch/comm/reducer.py", "finish", "the sum of the gradients"),
    ("tidepool/torch/comm/gather.py", "gather_bytes", "a gather"),
)
_COLLECTIVES = "torch/distributed/distributed_c10d.py"
#: Functions in that file that carry others out.
_INNER = frozenset({"wrapper", "_new_group_with_tag", "_exception_logger"})


@dataclass(frozen=True)
class Doing:
    """What a process does: "the other ranks" that it waits for, "" where it computes; and the frame of its script."""

    awaited: str
    place: Frame | None

    def words(self, *, plural: bool, code: str) -> str:
        verb = ("wait" if plural else "waits") if self.awaited else ("are" if plural else "is")
        where = "" if self.place is None else f"{shown_frame(self.place, code)}"
        if not self.awaited:
            return f"{verb} in {where}" if where else f"{verb} in no function of Python"
        return f"{verb} for {self.awaited}" + (f" in {where}" if where else "")


def doing_of(frames: Sequence[Frame], code: str) -> Doing:
    """Return what the stack says. code: folder of the script."""
    place = next((frame for frame in frames if is_own(frame, code)), frames[0] if frames else None)
    above = frames[: frames.index(place)] if place is not None else []
    return Doing(_awaited(above), place)


def shown_frame(frame: Frame, code: str) -> str:
    """Return "train.py line 41, in load": the file relative to the script's folder, or to that of its package."""
    return f"{shown_file(frame.file, code)} line {frame.line or '?'}, in {frame.function}"


def _awaited(frames: Sequence[Frame]) -> str:
    for place, frame in enumerate(frames):
        if frame.file.endswith(_COLLECTIVES) and frame.function not in _INNER:
            return f"the other ranks in {_outermost(frames[place:])}"
        for file, function, awaited in _WAITS:
            if frame.file.endswith(file) and frame.function == function:
                return awaited + (_collective(frames[place:]) if awaited == "the other ranks" else "")
    return ""


def _outermost(frames: Sequence[Frame]) -> str:
    """Return the name of the function of torch.distributed that the script has called."""
    own = [frame for frame in frames if frame.file.endswith(_COLLECTIVES) and frame.function not in _INNER]
    return own[-1].function


def _collective(frames: Sequence[Frame]) -> str:
    for frame in frames:
        for file, function, words in _SUMS:
            if frame.file.endswith(file) and frame.function == function:
                return f" in {words}"
    return ""


def is_own(frame: Frame, code: str) -> bool:
    """Return whether the frame is of the script's own code, wherever that has been moved."""
    if code and frame.file.startswith(f"{code}/"):
        return True
    return not any(pattern.match(frame.file) for pattern in (_PACKAGES, _STANDARD, _FROZEN)) and not (
        "/runtime/tidepool/" in frame.file or "/runtime/compat/" in frame.file
    )


def shown_file(file: str, code: str) -> str:
    if code and file.startswith(f"{code}/"):
        return file.removeprefix(f"{code}/")
    for pattern in (_PACKAGES, _RUNTIME, _STANDARD):
        if pattern.match(file):
            return pattern.sub("", file)
    return PurePosixPath(file).name or file
