"""Threads and frames in the text that faulthandler writes. Any text may come: ranks run the user's script."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Frame", "of_script", "threads_of"]

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<function>.*)$')
#: Frames of those who run the script: below them, nothing is the script's.
_BOTTOM = re.compile(r"^<frozen runpy>$|/tidepool/(function_runner|notebook_cells|rank_process)\.py$")
_MOST_THREADS, _MOST_FRAMES = 128, 200


@dataclass(frozen=True)
class Frame:
    file: str
    #: 0: not known.
    line: int
    function: str


def threads_of(text: str) -> list[list[Frame]]:
    """Return the frames of each thread, the innermost first. The last thread is the process's main one."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)) and len(threads[-1]) < _MOST_FRAMES:
            number = int(found["line"]) if found["line"].isdecimal() else 0
            threads[-1].append(Frame(found["file"], number, found["function"]))
    return [list(of_script(frames)) for frames in threads[-_MOST_THREADS:]]


def of_script(frames: Sequence[Frame]) -> Iterator[Frame]:
    """Leave out what is below the script. A thread without frames of a script keeps all of its own."""
    for place, frame in enumerate(frames):
        if place and _BOTTOM.search(frame.file):
            return
        yield frame
