"""Sums over the events of a profiler: time of their own, and the union of their intervals. No GPU is needed."""

import pytest
from tidepool.recordings.trace import _Tracer
from tidepool.recordings.trace_summary import TracedEvent, busy_ns, longest_operators

SECOND = 10**9


def event(name: str, begin: float, length: float, *, gpu: bool = False, thread: int = 1) -> TracedEvent:
    return TracedEvent(name, gpu, thread, int(begin * SECOND), int(length * SECOND))


def test_an_operators_own_time_is_without_those_that_it_calls() -> None:
    events = [
        event("linear", 0, 10),
        event("addmm", 1, 6),
        event("copy", 2, 1),
        event("linear", 20, 1),
        event("copy", 3, 2, thread=2),
    ]
    found = {one.name: (one.calls, one.seconds) for one in longest_operators(events, 10)}
    assert found == {"linear": (2, 5.0), "addmm": (1, 5.0), "copy": (2, 3.0)}


def test_kernels_count_in_full_and_apart_from_operators_of_their_name() -> None:
    events = [event("gemm", 0, 4), event("gemm", 1, 3, gpu=True), event("gemm", 2, 3, gpu=True)]
    found = [(one.is_on_gpu, one.calls, one.seconds) for one in longest_operators(events, 10)]
    assert found == [(True, 2, 6.0), (False, 1, 4.0)]


def test_only_the_longest_are_told() -> None:
    events = [event(f"op{number}", number * 100, number) for number in range(1, 30)]
    assert [one.name for one in longest_operators(events, 3)] == ["op29", "op28", "op27"]


@pytest.mark.parametrize(
    ("intervals", "busy"), [([], 0), ([(0, 2), (1, 3)], 4), ([(0, 10), (2, 1)], 10), ([(5, 1), (0, 1)], 2)]
)
def test_time_in_which_any_ran_counts_once(intervals: list[tuple[int, int]], busy: int) -> None:
    events = [event("one", begin, length, gpu=True) for begin, length in intervals]
    assert busy_ns([*events, event("other", 100, 5)], on_gpu=True) == busy * SECOND


class Profile:
    """A profile in whose end the interpreter runs the pending call that ends it, too."""

    def __init__(self, tracer: _Tracer) -> None:
        self._tracer = tracer
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1
        self._tracer._stop_now(None)


def test_a_trace_that_is_cut_off_while_it_ends_is_ended_once() -> None:
    tracer = _Tracer(3)
    tracer._profile = profile = Profile(tracer)
    tracer.stop()
    tracer.stop()
    assert (profile.stops, tracer._over.is_set()) == (1, True)
