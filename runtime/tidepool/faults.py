"""Fault points: named places where a test makes a process die, stop or fail. Without TIDEPOOL_FAULT they do nothing."""

import ctypes
import os
import signal
import time
from collections import Counter

from tidepool.env import fault_spec

__all__ = ["POINTS", "fault"]

#: Every fault point there is; `tests/runtime/test_fault_points.py` asserts that tests make each of them act.
POINTS = {
    "prepare",  # a group is about to be built in the background
    "switch",  # all have agreed on a change after this step
    "send",  # a holder is about to hand the state over
    "transfer",  # half of the state's tensors are sent, or received
    "broadcast",  # half of what is broadcast of the state is on its way
    "receive",  # a joiner is about to receive the state
    "reduce",  # the step's body is done, its sum is not
    "step-result",  # the step's sum is complete
    "optimizer",  # the update is about to be made
    "sum-result",  # the sum of a `sum_over` is complete
    "agree",  # survivors are about to compare how far they are
    "snapshot",  # a checkpoint's copies are about to be taken
    "checkpoint-write",  # a checkpoint's files are about to be written
    "checkpoint-written",  # they are written, and nobody knows yet
    "halt",  # all have stopped after a step that is about to be saved
    "publish",  # the coordinator is about to give them their name
    "published",  # the result has been published
}

_passages: Counter[str] = Counter()


def fault(name: str, member_id: str = "", error: type[Exception] = RuntimeError) -> None:
    """Act on the n-th passage of `name`, as `TIDEPOOL_FAULT=name:n:action` says (several: separated by commas).

    `name@prefix` restricts it to ranks whose member_id begins with `prefix`. Actions: kill, stop, raise (`error`),
    leave (exit code 0), hang (this thread alone), seize (with the interpreter's lock, so all of the process).
    """
    spec = fault_spec()
    if spec is None:
        return
    _passages[name] += 1
    for entry in spec.split(","):
        wanted, number, action = entry.rsplit(":", 2)
        point, _, prefix = wanted.partition("@")
        if point not in POINTS:
            raise ValueError(f"TIDEPOOL_FAULT names {point!r}; there are: {', '.join(sorted(POINTS))}")
        if point == name and int(number) == _passages[name] and member_id.startswith(prefix):
            _act(name, action, error)


def _act(name: str, action: str, error: type[Exception]) -> None:
    if action == "raise":
        raise error(f"fault point {name}")
    if action == "leave":
        raise SystemExit(0)
    while action == "hang":
        time.sleep(1.0)
    while action == "seize":
        ctypes.PyDLL(None).sleep(1000)  # unlike CDLL it keeps the lock during the call
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action])
