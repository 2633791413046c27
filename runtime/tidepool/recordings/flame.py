"""Samples of the functions that a rank's threads are in, 50 each second, taken by a thread of the rank itself.

A sample needs the interpreter's lock. While C code holds it, samples are late, and none is made up for.
"""

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType

from tidepool.protocol import FlameAnswer, RecordingRequest, SampledFunction, SampledThread

__all__ = ["PAUSE_SECONDS", "StackSamples", "record_flame"]

#: Time between two samples.
PAUSE_SECONDS = 0.02
_MOST_SECONDS = 60
#: Largest number of functions in a stack, the outermost ones, and of distinct stacks.
_MOST_FRAMES = 128
_MOST_STACKS = 5000


def record_flame(request: RecordingRequest, log_dir: Path) -> FlameAnswer:
    """Sample all threads of this process but the calling one for `request.amount` seconds."""
    samples = StackSamples()
    begun = next_at = time.monotonic()
    end = begun + min(request.amount, _MOST_SECONDS)
    while (now := time.monotonic()) < end:
        samples.add(sys._current_frames(), without=threading.get_ident())
        next_at = max(next_at + PAUSE_SECONDS, now)
        time.sleep(max(0.0, min(next_at, end) - time.monotonic()))
    return samples.answer(request.number, time.monotonic() - begun)


class StackSamples:
    """Samples, added up by thread and stack."""

    def __init__(self) -> None:
        self._samples = 0
        self._left_out = 0
        self._distinct = 0
        self._places: dict[CodeType, int] = {}
        self._stacks: defaultdict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)

    def add(self, frames: Mapping[int, FrameType], *, without: int) -> None:
        """Add a sample. frames: thread -> its innermost frame. without: thread that is left out."""
        self._samples += 1
        for thread, frame in frames.items():
            if thread != without:
                self._add_stack(thread, self._stack(frame))

    def _add_stack(self, thread: int, stack: tuple[int, ...]) -> None:
        stacks = self._stacks[thread]
        if stack not in stacks:
            if self._distinct >= _MOST_STACKS:
                self._left_out += 1
                return
            self._distinct += 1
        stacks[stack] += 1

    def _stack(self, frame: FrameType | None) -> tuple[int, ...]:
        places = []
        while frame is not None:
            places.append(self._places.setdefault(frame.f_code, len(self._places)))
            frame = frame.f_back
        return tuple(places[::-1][:_MOST_FRAMES])

    def answer(self, number: int, seconds: float) -> FlameAnswer:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        main = threading.main_thread().ident
        threads = [
            SampledThread(
                names.get(thread, "Thread")[:128],
                thread == main,
                [list(stack) for stack in stacks],
                list(stacks.values()),
            )
            for thread, stacks in self._stacks.items()
        ]
        threads.sort(key=lambda thread: (not thread.is_main, thread.name))
        functions = [_function(code) for code in self._places]
        return FlameAnswer(
            number,
            seconds=seconds,
            samples=self._samples,
            functions=functions,
            threads=threads,
            left_out=self._left_out,
        )


def _function(code: CodeType) -> SampledFunction:
    name = str(getattr(code, "co_qualname", code.co_name))  # Python 3.10 has no qualified names
    return SampledFunction(name[:256], code.co_filename[:1024], max(0, code.co_firstlineno))
