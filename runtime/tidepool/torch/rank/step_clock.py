"""A rank's time by cause: what its training thread does, added up from the moment when it has joined.

Exactly one part is under way at any moment, so the parts add up to the time that has passed. To change it costs half
a microsecond. The heartbeat's thread reads the sums.

Where the device is a GPU, the host runs ahead of it and waits for it within the sum of the gradients. That part of the
wait counts as computing: events that the stopwatch has recorded tell it once the sum is there, and nobody waits for it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

import torch

from tidepool.core_ceiling import CoreCeiling
from tidepool.protocol import SPENT_PARTS, RankSigns, SpentTime
from tidepool.rank_cpus import bound_words
from tidepool.torch.adaptive.profiler import Stopwatch
from tidepool.torch.comm.reducer import Reducer
from tidepool.torch.data import Feed
from tidepool.torch.rank.device_memory import DeviceMemory
from tidepool.torch.rank.host_reads import HostReads

__all__ = ["StepClock", "TimePart"]

#: Number of waits in a reading at most. Of more, only those of each second, fourth, eighth ... operation are kept.
_MOST_WAITS = 32


class TimePart(IntEnum):
    """Places of the parts in `SPENT_PARTS`."""

    DATA = SPENT_PARTS.index("data")
    COMPUTE = SPENT_PARTS.index("compute")
    COMMUNICATION = SPENT_PARTS.index("communication")
    OPTIMIZER = SPENT_PARTS.index("optimizer")
    CHECKPOINT = SPENT_PARTS.index("checkpoint")
    VALIDATION = SPENT_PARTS.index("validation")
    RESIZE = SPENT_PARTS.index("resize")
    SCRIPT = SPENT_PARTS.index("script")


class StepClock:
    """Seconds by part. Only the training thread changes it; `reading` may be called by another one.

    now: monotonic seconds. cpu: CPU seconds of the calling thread.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time) -> None:
        self._now, self._cpu = now, cpu
        self._seconds = [0.0] * len(SPENT_PARTS)
        #: TimePart under way and the time of its beginning; None: the rank does not train.
        self._running: tuple[TimePart, float] | None = None
        #: Steps that the rank has made.
        self.steps = 0
        #: Workers of its data loader; None: it has opened none yet.
        self.workers: int | None = None
        #: Seconds of computing up to the newest sum.
        self._computed = 0.0
        #: Operations and the seconds for which this rank has waited in their sums.
        self._waits: deque[tuple[int, float]] = deque(maxlen=_MOST_WAITS)
        self._each = 1
        #: CPU seconds of this thread in data, and its CPU time when the present stay there began.
        self._data_cpu, self._data_cpu_began = 0.0, 0.0
        #: Seconds of computing by the GPU's clock; None: the device is none.
        self._gpu_seconds: float | None = None
        self._reducer: Reducer | None = None
        self._reads, self._memory = HostReads(), DeviceMemory(None)
        self._cpus, self._ceiling = bound_words(), CoreCeiling()

    def watch(self, device: torch.device) -> None:
        """Watch the device: reads of its tensors by this thread, and its memory."""
        self._reads.watch()
        self._memory = DeviceMemory(device)

    @property
    def is_counting(self) -> bool:
        return self._running is not None

    def begin(self) -> None:
        """Begin to count: the rank has joined."""
        if self._running is None:
            self._running = TimePart.SCRIPT, self._now()

    def end(self) -> None:
        """Stop counting: the rank's loop is over."""
        self.enter(TimePart.SCRIPT)
        self._running = None

    def enter(self, part: TimePart) -> TimePart:
        """Let another part be under way. Return the former one."""
        if self._running is None:
            return TimePart.SCRIPT
        (former, since), now = self._running, self._now()
        self._seconds[former] += now - since
        if former is TimePart.DATA:
            self._data_cpu += self._cpu() - self._data_cpu_began
        if part is TimePart.DATA:
            self._data_cpu_began = self._cpu()
        self._running = part, now
        return former

    @contextmanager
    def during(self, part: TimePart) -> Iterator[None]:
        """Let this part be under way in the block, and the former one after it."""
        former = self.enter(part)
        try:
            yield
        finally:
            self.enter(former)

    def timed(self, part: TimePart, work: Callable[[], None]) -> None:
        """Do the work while this part is under way."""
        with self.during(part):
            work()

    def count_step(self) -> None:
        """Count a step that the rank has made."""
        self.steps += 1
        self._memory.look(self.steps, self._now())

    def open_feed(self, feed: Feed) -> None:
        """Have the feed start its workers."""
        self.workers = feed.workers
        self.timed(TimePart.DATA, feed.prepare)

    def finish_sum(self, reducer: Reducer, watch: Stopwatch, operation: int) -> None:
        """Finish the sum of a step's gradients, and count the wait for it. Raises CommunicationError."""
        before = self._seconds[TimePart.COMMUNICATION]
        self.timed(TimePart.COMMUNICATION, reducer.finish)
        # Less what the rank does while the sums are made: it looks after its data.
        waited = self._seconds[TimePart.COMMUNICATION] - before
        computed = self._seconds[TimePart.COMPUTE]
        self._reducer = reducer
        if watch.is_gpu:
            of_gpu = watch.seconds()
            self._gpu_seconds = (self._gpu_seconds or 0.0) + of_gpu
            behind = min(max(of_gpu - (computed - self._computed), 0.0), waited)
            self._seconds[TimePart.COMMUNICATION] -= behind
            self._seconds[TimePart.COMPUTE] += behind
            waited -= behind
        self._computed = self._seconds[TimePart.COMPUTE]
        self._keep_wait(operation, waited)

    def note_wait(self, operation: int, seconds: float) -> None:
        """Count so many seconds of computing as the wait for the sum of this number."""
        self._seconds[TimePart.COMPUTE] -= seconds
        self._seconds[TimePart.COMMUNICATION] += seconds
        self._keep_wait(operation, seconds)

    def note_computed(self, seconds: float) -> None:
        """Count so many seconds of computing by the GPU's clock. What the host has not seen of it as computing was a
        wait of the script for the GPU."""
        self._gpu_seconds = (self._gpu_seconds or 0.0) + seconds
        behind = min(max(0.0, self._gpu_seconds - self._seconds[TimePart.COMPUTE]), self._seconds[TimePart.SCRIPT])
        self._seconds[TimePart.SCRIPT] -= behind
        self._seconds[TimePart.COMPUTE] += behind

    def _keep_wait(self, operation: int, seconds: float) -> None:
        if operation % self._each == 0:
            self._waits.append((operation, seconds))

    def reading(self) -> SpentTime | None:
        """Return the sums so far, and the waits since the reading before; None: the rank does not train."""
        while (running := self._running) is not None:
            seconds = list(self._seconds)
            if self._running is running:  # else a part has ended meanwhile, and the sums may have it or not
                part, since = running
                seconds[part] += self._now() - since
                rounded = [round(each, 6) for each in seconds]
                return SpentTime(rounded, self.steps, self._taken_waits(), self.workers, self._signs())
        return None

    def _signs(self) -> RankSigns:
        reads, read_seconds, place = self._reads.most()
        core_limit = self._ceiling.cores
        periods, used_up = self._ceiling.used_up() if core_limit is not None else (0, 0)
        return RankSigns(
            data_cpu_seconds=None if self.workers else round(self._data_cpu, 6),
            reads=reads,
            read_seconds=round(read_seconds, 6),
            read_place=place,
            gpu_seconds=None if self._gpu_seconds is None else round(self._gpu_seconds, 6),
            sum_bytes=self._reducer.bytes if self._reducer is not None else 0,
            gpu_memory=self._memory.newest,
            cpus=self._cpus,
            core_limit=core_limit,
            core_periods=periods,
            core_periods_used_up=used_up,
        )

    def _taken_waits(self) -> list[tuple[int, float]]:
        waits = []
        while self._waits:
            operation, seconds = self._waits.popleft()
            waits.append((operation, round(seconds, 6)))
        if len(waits) == _MOST_WAITS:
            self._each *= 2
        elif len(waits) < _MOST_WAITS // 4 and self._each > 1:
            self._each //= 2
        return waits
