"""Sums over the events of a profiler: the longest operators, and for how long any of them ran. It needs no torch."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidepool.protocol import TracedOperator

__all__ = ["TracedEvent", "busy_ns", "longest_operators"]


class TracedEvent(NamedTuple):
    """An operator or kernel that ran once. Times are nanoseconds."""

    name: str
    is_on_gpu: bool
    #: Thread of an operator. Kernels of a GPU call nothing: all of them count in full.
    thread: int
    begin: int
    length: int

    @property
    def end(self) -> int:
        return self.begin + self.length


def longest_operators(events: Iterable[TracedEvent], most: int) -> list[TracedOperator]:
    """Return the operators and kernels with most time of their own, without that of the operators they call."""
    own: Counter[tuple[str, bool]] = Counter()
    calls: Counter[tuple[str, bool]] = Counter()
    callers: dict[int, list[TracedEvent]] = {}
    for event in sorted(events, key=lambda event: (event.begin, -event.length)):
        key = event.name, event.is_on_gpu
        own[key] += event.length
        calls[key] += 1
        if event.is_on_gpu:
            continue
        stack = callers.setdefault(event.thread, [])
        while stack and stack[-1].end <= event.begin:
            stack.pop()
        if stack:
            own[stack[-1].name, False] -= min(event.end, stack[-1].end) - event.begin
        stack.append(event)
    return [
        TracedOperator(name[:256], is_on_gpu, calls[name, is_on_gpu], max(0, length) / 1e9)
        for (name, is_on_gpu), length in own.most_common(most)
    ]


def busy_ns(events: Sequence[TracedEvent], *, on_gpu: bool) -> int:
    """Return the time in which at least one event ran there."""
    busy, covered = 0, 0
    for begin, end in sorted((event.begin, event.end) for event in events if event.is_on_gpu == on_gpu):
        busy += max(0, end - max(begin, covered))
        covered = max(covered, end)
    return busy
