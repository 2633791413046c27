"""A trace of some optimizer steps of a rank, by torch.profiler, from the end of one step to the end of another.

A hook of all optimizers begins and ends it in the thread that trains, whatever the loop is. If a step takes too long,
the main thread ends the trace between two of its instructions. What takes time afterwards is done in another thread.
"""

import ctypes
import gc
import gzip
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tidepool.protocol import RecordingProblem, RecordingRequest, TraceAnswer
from tidepool.recordings.requests import TRACE_FILE
from tidepool.recordings.trace_summary import TracedEvent, busy_ns, longest_operators

__all__ = ["record_trace"]

_MOST_STEPS = 20
#: Seconds until an optimizer makes its first step, for which steps are recorded, and for the end of a step after that.
_FIRST_STEP_SECONDS = 60.0
_RECORDED_SECONDS = 20.0
_END_SECONDS = 10.0
#: Time for which the thread that trains waits for the interpreter's lock before and after a trace.
_TURN_SECONDS = 0.0001
#: Largest number of events that are kept: some 300 MB as text.
_MOST_EVENTS = 1_000_000
_MOST_OPERATORS = 10

#: Profilers of earlier traces, until the garbage collector has found them.
_ours: weakref.WeakSet[Any] = weakref.WeakSet()
_PendingCall = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def record_trace(request: RecordingRequest, log_dir: Path) -> TraceAnswer:
    """Record `request.amount` steps of this process, and write the trace to the rank's log folder."""
    if "torch.optim.optimizer" not in sys.modules:
        return TraceAnswer(request.number, "no_torch")
    with _short_turns():
        if _has_own_profiler():
            return TraceAnswer(request.number, "profiled")
    tracer = _Tracer(min(request.amount, _MOST_STEPS))
    problem = tracer.run()
    with _short_turns():
        if not problem and len(tracer.events) > _MOST_EVENTS:
            problem = "too_large"
        if problem:
            return TraceAnswer(request.number, problem, tracer.detail, seconds=tracer.seconds)
        return _answer(request.number, tracer, _written(tracer, log_dir))


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let the thread that trains have the interpreter's lock at once whenever it wants it: it does after each operator,
    and would wait for a whole turn of 5 ms each time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class _Tracer:
    """A trace from its first step to its end. `after_step` and `stop` run in the thread that trains."""

    def __init__(self, steps: int) -> None:
        self._wanted = steps
        self._begun, self._over = threading.Event(), threading.Event()
        self._begun_at = 0.0
        self._thread = 0
        self._optimizer: Any = None
        self._profile: Any = None
        self._is_stopping = False
        self._problem: RecordingProblem = ""
        self.detail = ""
        #: Steps and seconds of the trace.
        self.steps = 0
        self.seconds = 0.0

    @property
    def is_cut(self) -> bool:
        return self.steps < self._wanted

    def run(self) -> RecordingProblem:
        """Wait for the steps, at most for some time. Return why there is no trace; "": there is one."""
        handle = _torch("optim.optimizer").register_optimizer_step_post_hook(self.after_step)
        try:
            if not self._begun.wait(_FIRST_STEP_SECONDS):
                return "no_steps"
            if not self._over.wait(_RECORDED_SECONDS + 1.0):
                self._have_main_thread_stop()
                if not self._over.wait(_END_SECONDS):
                    return "too_long"  # the hook or the main thread ends it as soon as either comes to it
            return self._problem
        finally:
            if self._over.is_set() or self._profile is None:
                handle.remove()

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Begin after the first step of an optimizer, and count those that it makes later."""
        if self._over.is_set():
            return
        if self._profile is None:
            self._start(optimizer)
        elif optimizer is self._optimizer and threading.get_ident() == self._thread:
            self.steps += 1
            if self.steps >= self._wanted or time.monotonic() - self._begun_at > _RECORDED_SECONDS:
                self.stop()

    def _start(self, optimizer: Any) -> None:
        kinds = _torch().profiler.ProfilerActivity
        activities = [kinds.CPU, *([kinds.CUDA] if _has_gpu() else [])]
        self._optimizer, self._thread = optimizer, threading.get_ident()
        self._profile = _torch().profiler.profile(activities=activities)
        self._guarded(self._profile.start)
        _ours.update((self._profile, self._profile.profiler))
        self._begun_at = time.monotonic()
        self._begun.set()

    def stop(self) -> None:
        """End the trace; again without effect. The main thread may be told to while it is already doing so."""
        if not self._is_stopping and not self._over.is_set():
            self._is_stopping = True
            self.seconds = time.monotonic() - self._begun_at
            self._guarded(self._profile.stop)
            self._over.set()

    def _guarded(self, call: Callable[[], Any]) -> None:
        """Call the profiler, whose errors are no errors of the training."""
        try:
            call()
        except Exception as error:
            self._problem, self.detail = "failed", f"{type(error).__name__}: {error}"[:300]
            self._over.set()

    def _have_main_thread_stop(self) -> None:
        """Let the main thread stop between two instructions, if it trains: the profiler belongs to its thread."""
        if self._thread == threading.main_thread().ident:
            self._pending = _PendingCall(self._stop_now)
            ctypes.pythonapi.Py_AddPendingCall(self._pending, None)

    def _stop_now(self, _: Any) -> int:
        self.stop()
        return 0

    @cached_property
    def events(self) -> list[TracedEvent]:
        cpu = _torch()._C._autograd.DeviceType.CPU
        return [
            TracedEvent(
                event.name(),
                event.device_type() != cpu,
                event.start_thread_id(),
                event.start_ns(),
                event.duration_ns(),
            )
            for event in self._profile.profiler.kineto_results.events()
        ]

    def export(self, path: Path) -> None:
        """Write the trace in Chrome's form."""
        self._profile.export_chrome_trace(str(path))


def _written(tracer: _Tracer, log_dir: Path) -> int:
    """Write the trace, compressed, and return its size in bytes."""
    plain, compressed = log_dir / ".trace.new", log_dir / ".trace.gz.new"
    try:
        tracer.export(plain)
        with plain.open("rb") as source, gzip.open(compressed, "wb", compresslevel=4) as target:
            shutil.copyfileobj(source, target, 1 << 20)
    finally:
        with suppress(FileNotFoundError):
            plain.unlink()
    compressed.rename(log_dir / TRACE_FILE)
    return (log_dir / TRACE_FILE).stat().st_size


def _answer(number: int, tracer: _Tracer, file_bytes: int) -> TraceAnswer:
    events = tracer.events
    memory = _gpu_memory() if _has_gpu() else (None, None, None)
    return TraceAnswer(
        number,
        steps=tracer.steps,
        seconds=tracer.seconds,
        is_cut=tracer.is_cut,
        operators=longest_operators(events, _MOST_OPERATORS),
        cpu_seconds=busy_ns(events, on_gpu=False) / 1e9,
        gpu_seconds=busy_ns(events, on_gpu=True) / 1e9 if _has_gpu() else None,
        gpu_peak_bytes=memory[0],
        gpu_reserved_bytes=memory[1],
        gpu_total_bytes=memory[2],
        file_bytes=file_bytes,
    )


def _torch(part: str = "") -> Any:
    """Return torch, or a module of it, as the script has imported it: only `tidepool.torch` imports it itself."""
    return sys.modules[f"torch.{part}" if part else "torch"]


def _has_gpu() -> bool:
    cuda = _torch().cuda
    return bool(cuda.is_available() and cuda.is_initialized())


def _gpu_memory() -> tuple[int, int, int]:
    """Return the largest memory that tensors have taken, the memory reserved for them now, and the GPU's."""
    cuda = _torch().cuda
    return cuda.max_memory_allocated(), cuda.memory_reserved(), cuda.mem_get_info()[1]


def _has_own_profiler() -> bool:
    """Return whether the script has a profiler, which may begin at any step: torch allows one at a time."""
    kinds = _torch().autograd.profiler.profile, _torch().profiler.profiler._KinetoProfile
    # Types tell it: `isinstance` asks objects for their class, and some answer with a warning.
    found = (thing for thing in gc.get_objects() if issubclass(type(thing), kinds))
    return any(thing not in _ours for thing in found)
