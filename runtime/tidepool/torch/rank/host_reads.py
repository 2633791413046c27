"""Reads of a device's tensors by the script: how long the training thread waits in them, and in which line.

The host runs ahead of a GPU. `loss.item()` in each step has it wait until the GPU has caught up, and then the GPU waits
for the host's next work. Tensors in main memory are there at once and are not counted, nor are reads by torch's or
Tidepool's own code.
"""

import functools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import torch

__all__ = ["HostReads"]

#: Methods of tensors that read them.
_NAMES = ("item", "tolist", "cpu", "__float__")
#: Largest number of lines that are told apart, and of characters of one.
_MOST_PLACES, _MOST_CHARACTERS = 256, 128
_OWN = ("torch", "tidepool")

#: Reads of the thread that trains; the patched methods add to it. A process trains one model at a time.
_watching: list["HostReads"] = []


class HostReads:
    """Number of reads and their seconds. Only the thread that has called `watch` adds to them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._thread: int | None = None
        self._count, self._seconds = 0, 0.0
        #: (file, line) -> seconds.
        self._places: dict[tuple[str, int], float] = {}

    def watch(self) -> None:
        """Count this thread's reads from now on, and no other object's."""
        self._thread = threading.get_ident()
        _watching[:] = [self]
        for name in _NAMES:
            method = getattr(torch.Tensor, name)
            if not hasattr(method, "_tidepool_counts"):
                setattr(torch.Tensor, name, _counted(method))

    def most(self) -> tuple[int, float, str]:
        """Return the number of reads, the seconds of all, and the line with most of them."""
        places = dict(self._places)
        if not places:
            return self._count, self._seconds, ""
        file, line = max(places, key=lambda place: places[place])
        return self._count, self._seconds, f"{PurePath(file).name} line {line}"[-_MOST_CHARACTERS:]

    def time(self, read: Callable[..., Any], tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        """Return what the read returns."""
        caller = sys._getframe(2)
        if threading.get_ident() != self._thread or _is_own(caller.f_globals.get("__name__", "")):
            return read(tensor, *arguments, **named)
        began = self._now()
        try:
            return read(tensor, *arguments, **named)
        finally:
            seconds = self._now() - began
            self._count += 1
            self._seconds += seconds
            place = caller.f_code.co_filename, caller.f_lineno
            if place in self._places or len(self._places) < _MOST_PLACES:
                self._places[place] = self._places.get(place, 0.0) + seconds


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in _OWN


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def read(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        if type(tensor) is torch.Tensor and tensor.is_cpu:
            return method(tensor, *arguments, **named)
        if torch.compiler.is_compiling() or not _watching:  # torch.compile knows the method alone
            return method(tensor, *arguments, **named)
        return _watching[0].time(method, tensor, *arguments, **named)

    read._tidepool_counts = True  # type: ignore[attr-defined]
    return read
