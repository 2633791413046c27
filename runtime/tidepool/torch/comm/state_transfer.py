"""Transfer of the training's whole state from one process to another, over separate TCP sockets.

A rank that is an operation behind gets it so, and joiners of groups with ranks of a former release; other joiners get
it from several holders at once, see `shared_transfer.py`.

The format is a header (JSON: structure, and the tensors' types and shapes), the tensors' bytes in that order, and one
byte that confirms completeness. A thread serves a joiner while the sender computes the next step: see `HandOver`.
"""

import json
import socket
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch

from tidepool.faults import fault
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.state.training_state import Snapshot, TrainingState, unflatten

__all__ = [
    "WHOLE",
    "HandOver",
    "catch_up",
    "fill",
    "receive_state",
    "send_state",
    "spec_of",
    "use_live_tensors",
]

WHOLE = b"\x01"


class HandOver:
    """A thread that sends a snapshot. Nothing has to wait for it: a joiner joins no sum before it has all.

    An error in `send` breaks the group off, so that the training thread recovers.
    """

    def __init__(self, group: Group, send: Callable[[], None], member_id: str = "") -> None:
        self._group, self._send, self._member_id = group, send, member_id
        if group.broadcasts:
            group.sums_may_begin.clear()
        name = f"hand-over-{group.generation}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until everything is sent, or the group is broken off."""
        self._thread.join()

    def _run(self) -> None:
        try:
            fault("send", self._member_id)
            self._send()
        except CommunicationError:  # the coordinator knows which rank died
            self._group.break_off()
        except BaseException:
            traceback.print_exc()
            self._group.break_off()
        finally:
            self._group.sums_may_begin.set()


def send_state(group: Group, snapshot: Snapshot, to: int, member_id: str = "") -> None:
    """Hand the state to the rank `to`, which receives it. Raises CommunicationError.

    Raises RuntimeError if it was changed while it was sent; the other one does not use it then.
    """
    specs = [spec_of(tensor) for tensor in snapshot.tensors]
    header = json.dumps({"structure": snapshot.structure, "tensors": specs}).encode()
    with group.connect(to) as connection:
        try:
            connection.sendall(len(header).to_bytes(8, "big") + header)
            for number, tensor in enumerate(snapshot.tensors):
                if number == len(snapshot.tensors) // 2:
                    fault("transfer", member_id)
                connection.sendall(_memory(tensor.cpu().contiguous()))
            snapshot.check()
            connection.sendall(WHOLE)
        except OSError as error:
            raise CommunicationError(f"rank {to} went away while it received the state: {error}") from error


def receive_state(group: Group, state: TrainingState, *, in_place: bool, member_id: str = "") -> None:
    """Take the state from the member that has been chosen to hand it over. Raises CommunicationError.

    in_place: straight into the model, which is spoilt if the sender dies meanwhile.
    """
    structure, tensors = _receive(group, state.model if in_place else None, member_id)
    state.load(structure, tensors)


def catch_up(group: Group, state: TrainingState) -> None:
    """Receive the state on a rank that has missed one operation only. Raises CommunicationError."""
    state.catch_up(*_receive(group, None, ""))


def _receive(group: Group, model: torch.nn.Module | None, member_id: str) -> tuple[Any, list[torch.Tensor]]:
    with group.accept() as connection:
        length = bytearray(8)
        fill(connection, memoryview(length))
        header = bytearray(int.from_bytes(length, "big"))
        fill(connection, memoryview(header))
        values = json.loads(header)
        tensors = [torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in values["tensors"]]
        if model is not None:
            use_live_tensors(model, values["structure"], tensors)
        for number, tensor in enumerate(tensors):
            if number == len(tensors) // 2:
                fault("transfer", member_id)
            fill(connection, _memory(tensor.detach()))
        whole = bytearray(len(WHOLE))
        fill(connection, memoryview(whole))
    return values["structure"], tensors


def use_live_tensors(model: torch.nn.Module, structure: Any, tensors: list[torch.Tensor]) -> None:
    """Replace those of `tensors` that the model has itself by its own: `load_state_dict` copies none onto itself."""
    live = model.state_dict(keep_vars=True)
    numbers: list[Any] = list(range(len(tensors)))
    for name, number in unflatten(structure, numbers)["model"]["saved"].items():
        own = live.get(name)
        if not isinstance(number, int) or not isinstance(own, torch.Tensor):  # a module's extra state
            continue
        wanted = tensors[number]
        alike = (own.shape, own.dtype, own.device) == (wanted.shape, wanted.dtype, wanted.device)
        if alike and own.is_contiguous():
            tensors[number] = own


def spec_of(tensor: torch.Tensor) -> list[Any]:
    """Return type and shape, for JSON."""
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor, not copied."""
    return tensor.view(-1).view(torch.uint8).numpy().data


def fill(connection: socket.socket, memory: memoryview) -> None:
    """Receive as many bytes as the memory has. Raises CommunicationError if fewer come."""
    while memory:
        try:
            received = connection.recv_into(memory)
        except OSError as error:
            raise CommunicationError(f"the state was not received to its end: {error}") from error
        if not received:
            raise CommunicationError("the state was not received to its end: its sender went away")
        memory = memory[received:]
