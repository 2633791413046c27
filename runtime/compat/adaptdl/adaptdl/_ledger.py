"""State of a training beside its model and optimizers: loops that are done, and what accumulators hold.

It is the same on all ranks at a boundary, and travels with the state to a joiner, which replays the script from the
top: loops that the others have completed yield nothing to it, and what they have summed up is read from here.
"""

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import torch

__all__ = ["OUTSIDE", "Kept", "Ledger"]

#: Key in place of an epoch's number, for calls outside of all epochs.
OUTSIDE = ""


class Kept(Protocol):
    """A state of the script's, or an accumulator."""

    def pack(self) -> bytes: ...

    def unpack(self, content: bytes) -> None: ...

    def prepare(self) -> None:
        """Get ready: all ranks will carry it along next."""

    def updates(self) -> Any:
        """Return what this rank alone has added since the newest sum; a false value: nothing."""

    def add(self, updates: Any) -> None:
        """Count what one of the ranks had added."""

    def clear_updates(self) -> None:
        """Forget what this rank has added: it has been counted."""

    def held(self) -> Any:
        """Return all that a step may change; a false value: it is as new."""

    def hold(self, held: Any) -> None: ...


class Ledger:
    def __init__(self) -> None:
        self.finished = 0
        #: Completed loops over loaders, and results of collective calls between them, by epoch.
        self.loops: Counter[str] = Counter()
        self.calls: dict[str, list[bytes]] = {}
        self._kept: weakref.WeakValueDictionary[str, Kept] = weakref.WeakValueDictionary()
        #: Results of the running epoch, kept until it is over: a replica that joins meanwhile asks for them.
        self._held: dict[str, list[Kept]] = {}
        #: Packed, of those that this process has not made yet.
        self._waiting: dict[str, bytes] = {}

    def keep(self, name: str, item: Kept, epoch: str) -> bool:
        """Carry it along from now on; what is there already under this name is unpacked into it. False: nothing is."""
        self._kept[name] = item
        self._held.setdefault(epoch, []).append(item)
        if name not in self._waiting:
            return False
        item.unpack(self._waiting.pop(name))
        return True

    def named(self) -> dict[str, Kept]:
        return dict(sorted(self._kept.items()))

    def end_epoch(self, epoch: str) -> None:
        self.finished += 1
        for by_epoch in (self.loops, self.calls, self._held):
            by_epoch.pop(epoch, None)
        self._waiting = {name: content for name, content in self._waiting.items() if not _is_of(name, epoch)}

    def state_dict(self) -> dict[str, Any]:
        packed = {**self._waiting, **{name: item.pack() for name, item in self.named().items()}}
        return {
            "finished": self.finished,
            "loops": dict(self.loops),
            "calls": {epoch: [_tensor(content) for content in calls] for epoch, calls in self.calls.items()},
            "kept": {name: _tensor(content) for name, content in packed.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.finished = state["finished"]
        self.loops = Counter(state["loops"])
        self.calls = {epoch: [_content(one) for one in calls] for epoch, calls in state["calls"].items()}
        self._waiting = {name: _content(one) for name, one in state["kept"].items()}
        for name, item in self.named().items():
            if name in self._waiting:
                item.unpack(self._waiting.pop(name))


def _is_of(name: str, epoch: str) -> bool:
    return name.startswith(f"accumulator/{epoch}/")


def _tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(b"\0" + content), dtype=torch.uint8)  # never empty


def _content(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()[1:]
