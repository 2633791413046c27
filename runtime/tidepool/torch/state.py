"""All of a training's state, in one explicit list: what a joiner receives and what a checkpoint holds.

Parameters and buffers of the model, the optimizer's state, what the user registered (LR schedulers, averages, ...),
and the position. Random numbers are not in it: they are derived from (seed, step, virtual rank), see `data.py`.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch

from tidepool.torch.process_group import CommunicationError, Group
from tidepool.torch.structure import flatten, unflatten

__all__ = ["Position", "Stateful", "TrainingState", "catch_up", "receive_state", "send_state"]


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any: ...


@dataclass
class Position:
    """Where training stands. All ranks agree on it at a step boundary, whatever their number."""

    #: Completed optimizer steps.
    step: int = 0
    #: Of the pass over the data that is under way, from 0.
    epoch: int = 0
    #: Samples of this epoch that completed steps have used.
    cursor: int = 0
    #: Completed collective operations; tells ranks apart that a failure left one operation apart.
    operation: int = 0
    #: Fixed at the first start; resizes never change it.
    effective_batch_size: int = 0
    #: Names of the metrics, in the order of their places in the control block.
    metric_names: list[str] = field(default_factory=list)
    #: Result of the newest `sum_over`, for a rank that missed it.
    last_sum: list[float] = field(default_factory=list)
    #: Newest metric records, so that whoever becomes rank 0 can write what its predecessor could not.
    records: list[dict[str, Any]] = field(default_factory=list)

    def catch_up(self, newer: Position) -> None:
        """Take over the one operation that `newer` has completed and this rank has not.

        The script there may have gone on since, into the next epoch even; here it goes on from that operation.
        """
        if newer.step > self.step:
            self.cursor = int(newer.records[-1]["cursor"])
        self.step, self.operation = newer.step, newer.operation
        self.metric_names, self.last_sum, self.records = newer.metric_names, newer.last_sum, newer.records


@dataclass
class TrainingState:
    """The live objects whose state crosses a resize."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    registered: dict[str, Stateful]
    position: Position

    def pack(self) -> tuple[str, list[torch.Tensor]]:
        """JSON text of the structure, and the tensors that it numbers (not copied)."""
        tensors: list[torch.Tensor] = []
        values = {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "registered": {name: item.state_dict() for name, item in self.registered.items()},
            "position": asdict(self.position),
        }
        return json.dumps(flatten(values, tensors)), tensors

    def unpack(self, structure: str, tensors: list[torch.Tensor]) -> None:
        values = unflatten(json.loads(structure), tensors)
        missing = set(values["registered"]) ^ set(self.registered)
        if missing:
            raise ValueError(f"registered objects differ between the ranks or from the checkpoint: {sorted(missing)}")
        self.model.load_state_dict(values["model"])
        self.optimizer.load_state_dict(values["optimizer"])
        for name, item in self.registered.items():
            item.load_state_dict(values["registered"][name])
        self.position.__dict__.update(values["position"])

    def catch_up(self, structure: str, tensors: list[torch.Tensor]) -> None:
        """Take over the result of the one operation that this rank has missed.

        Hyperparameters and registered objects stay: operations do not change them, the script does, and the sender's
        script may have done already (a scheduler's step after the epoch) what this rank's script is about to do.
        """
        values = unflatten(json.loads(structure), tensors)
        hyperparameters = self.optimizer.state_dict()["param_groups"]
        self.model.load_state_dict(values["model"])
        self.optimizer.load_state_dict({**values["optimizer"], "param_groups": hyperparameters})
        self.position.catch_up(Position(**values["position"]))


def send_state(group: Group, state: TrainingState, to: int) -> None:
    """Hand the state to the rank `to`, which calls `receive_state`. Raises CommunicationError."""
    structure, tensors = state.pack()
    specs = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    header = json.dumps({"structure": structure, "tensors": specs}).encode()
    with group.connect(to) as connection:
        try:
            connection.sendall(len(header).to_bytes(8, "big") + header)
            for tensor in tensors:
                connection.sendall(_memory(tensor.cpu().contiguous()))
        except OSError as error:
            raise CommunicationError(f"rank {to} went away while it received the state: {error}") from error


def receive_state(group: Group, state: TrainingState) -> None:
    """Take the state from the member that has been chosen to hand it over. Raises CommunicationError."""
    state.unpack(*_receive(group))


def catch_up(group: Group, state: TrainingState) -> None:
    """As `receive_state`, for a rank that has missed one operation only. Raises CommunicationError."""
    state.catch_up(*_receive(group))


def _receive(group: Group) -> tuple[str, list[torch.Tensor]]:
    with group.accept() as connection:
        length = bytearray(8)
        _fill(connection, memoryview(length))
        header = bytearray(int.from_bytes(length, "big"))
        _fill(connection, memoryview(header))
        values = json.loads(header)
        tensors = [torch.zeros(shape, dtype=getattr(torch, dtype)) for dtype, shape in values["tensors"]]
        for tensor in tensors:
            _fill(connection, _memory(tensor))
    return values["structure"], tensors


def _memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor, not copied."""
    return tensor.view(-1).view(torch.uint8).numpy().data


def _fill(connection: socket.socket, memory: memoryview) -> None:
    while memory:
        try:
            received = connection.recv_into(memory)
        except OSError as error:
            raise CommunicationError(f"the state was not received to its end: {error}") from error
        if not received:
            raise CommunicationError("the state was not received to its end: its sender went away")
        memory = memory[received:]
