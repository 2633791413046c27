"""Fault points: named places where a test makes a process die, stop or fail. Without TIDEPOOL_FAULT they do nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import Counter

from tidepool.env import fault_spec

__all__ = ["fault"]

_passages: Counter[str] = Counter()


def fault(name: str, wid: str = "", error: type[Exception] = RuntimeError) -> None:
    """Act on the n-th passage of `name`, as `TIDEPOOL_FAULT=name:n:action` says (several: separated by commas).

    `name@prefix` restricts it to ranks whose wid begins with `prefix`. Actions: kill, stop, raise (`error`), hang
    (this thread alone), seize (this thread, with the interpreter's lock, so all of the process).
    """
    spec = fault_spec()
    if spec is None:
        return
    _passages[name] += 1
    for entry in spec.split(","):
        wanted, number, action = entry.rsplit(":", 2)
        point, _, prefix = wanted.partition("@")
        if point == name and int(number) == _passages[name] and wid.startswith(prefix):
            _act(name, action, error)


def _act(name: str, action: str, error: type[Exception]) -> None:
    if action == "raise":
        raise error(f"fault point {name}")
    while action == "hang":
        time.sleep(1.0)
    while action == "seize":
        ctypes.PyDLL(None).sleep(1000)  # unlike CDLL it keeps the lock during the call
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action])
