"""The complete state of a training, listed explicitly: a joiner receives it, and a checkpoint holds it.

It travels as JSON plus tensors, so that no state is ever pickled.

| Entry | Content |
|---|---|
| `model` | parameters and buffers, those too that a `state_dict` leaves out |
| `trained` | which parameters require a gradient (scripts freeze and thaw) |
| `optimizers` | each optimizer's state and parameter groups |
| `scaler` | the loss scaler's, None without one |
| `adaptation` | of an adaptive training: batch, progress, averages of its noise, factors; None without one |
| `registered` | what the script registered: learning-rate schedules, averaged weights, ... |
| `generators` | the random number generators outside of steps; those in steps are derived, see `data.py` |
| `position` | step, epoch, samples used, effective batch size, the newest metric records |
| `carried` | gradients that the next update adds to; none but in a loop of the script's own |
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch

from tidepool.refusal import Refusal
from tidepool.torch.state.buffers import set_buffer
from tidepool.torch.state.randomness import Generators
from tidepool.torch.state.update import optimized

__all__ = [
    "BatchChoice",
    "Position",
    "Snapshot",
    "Stateful",
    "TrainingState",
    "flatten",
    "load_optimizer",
    "unflatten",
]


@dataclass(frozen=True)
class BatchChoice:
    """Samples of a step, and micro-batches of each rank beside the last one."""

    batch: int
    accumulation: int


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any: ...


@dataclass
class Position:
    """The position of a training. All ranks agree on it at a step boundary, whatever their number."""

    #: Completed optimizer steps.
    step: int = 0
    #: Epoch of the pass over the data that is under way, from 0.
    epoch: int = 0
    #: Samples of this epoch that completed steps have used.
    cursor: int = 0
    #: Batches of a script's own loop, also those that it has left out.
    batches: int = 0
    #: Numbers by which the script counts its batches, as it asked for the present one, see `rank/own_counts.py`.
    counts: dict[str, float] = field(default_factory=dict)
    #: Whether the script has left a pass over the data before its end, and has changed weights beside its optimizers.
    leaves_early: bool = False
    writes_weights: bool = False
    #: Epoch and pass in whose middle the training was resumed: in it the script's own counts are those of the batches.
    resumed_in: list[int] = field(default_factory=list)
    #: Completed collective operations; tells ranks apart that a failure left one operation apart.
    operation: int = 0
    #: Fixed at the first start, except in adaptive training; resizes never change it.
    effective_batch_size: int = 0
    #: Over the data in this epoch, before the one under way; only an adaptive training makes several.
    passes: int = 0
    #: Whether the epoch's first pass has begun, for loops of a script's own.
    has_begun: bool = False
    #: Epochs of the script's loop under way, see `epoch_loops.py`; none before a loop has begun.
    loop: list[int] = field(default_factory=list)
    #: Epochs that were complete at the end of each earlier loop of the script.
    earlier_loops: list[int] = field(default_factory=list)
    #: Numbers of the parameters that were frozen at the beginning and have been trained since.
    thawed: list[int] = field(default_factory=list)
    #: Sums over all ranks of what a script's own loop has added up, see `rank/totals.py`.
    totals: dict[str, float] = field(default_factory=dict)
    #: Names of the metrics, in the order of their places in the control block.
    metric_names: list[str] = field(default_factory=list)
    #: Items (such as labels) that losses are means over, per sample, as in the step in which that number last changed
    #: much: factors of losses are near the shares of the samples by it.
    items_per_sample: float = 1.0
    #: Result of the newest `sum_over`, for a rank that missed it.
    last_sum: list[float] = field(default_factory=list)
    #: Newest metric records, so that whoever becomes rank 0 can write what its predecessor could not.
    records: list[dict[str, Any]] = field(default_factory=list)

    def catch_up(self, newer: "Position") -> None:
        """Take over the one operation that `newer` has completed and this rank has not.

        The script there may have gone on since, into the next epoch even; here it goes on from that operation.
        """
        if newer.step > self.step:
            self.cursor = int(newer.records[-1]["cursor"])
        self.step, self.operation = newer.step, newer.operation
        self.effective_batch_size = newer.effective_batch_size
        self.items_per_sample = newer.items_per_sample
        self.totals = newer.totals
        self.thawed, self.batches, self.leaves_early = newer.thawed, newer.batches, newer.leaves_early
        self.writes_weights = newer.writes_weights
        self.metric_names, self.last_sum, self.records = newer.metric_names, newer.last_sum, newer.records


@dataclass(frozen=True)
class Snapshot:
    """The state at a step boundary, for a thread that reads it while the next step runs."""

    #: Structure of the state, as `flatten` returns it.
    structure: Any
    #: Parameters and optimizer state are the live tensors, which only an update changes; all others are copies.
    tensors: list[torch.Tensor]
    #: torch counts the writes to each tensor: those at the boundary.
    versions: list[int]
    #: Whether each tensor is one that only updates change, and so alike in all ranks.
    is_shared: list[bool]
    #: CUDA event of the boundary; None if no tensor is on a GPU.
    mark: Any = None

    def check(self) -> None:
        """Raises RuntimeError if a tensor has been written to since."""
        if [tensor._version for tensor in self.tensors] != self.versions:
            raise RuntimeError(
                "parameters or optimizer state were changed in the body of a step, while they were handed to another "
                "process: change them after the update instead"
            )


@dataclass
class TrainingState:
    """The live objects whose state crosses a resize."""

    model: torch.nn.Module
    optimizers: dict[str, torch.optim.Optimizer]
    registered: dict[str, Stateful]
    position: Position
    scaler: torch.amp.GradScaler | None = None
    generators: Generators | None = None
    #: Hook of the script after each optimizer step, given its number; a rank that receives a step's result runs it.
    after_update: Callable[[int], None] | None = None
    adaptation: Stateful | None = None
    #: Whether the script may make optimizers and registered objects while it trains.
    may_grow: bool = False
    #: Optimizers whose place later ones have taken, until they step again. Their state is none of the training's.
    retired: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    #: States that were loaded and belong to objects that the script has not made yet, or not as they were saved.
    pending: dict[tuple[str, str], Any] = field(default_factory=dict)
    #: Gradients that the next update adds to, by parameter: where a script's accumulation goes on in the next epoch.
    carried: dict[str, torch.Tensor] = field(default_factory=dict)

    def pack(self) -> tuple[Any, list[torch.Tensor]]:
        """Return the JSON-safe structure, and the tensors that it numbers (not copied).

        Raises Refusal, which names it, if there is something that cannot be carried to another process.
        """
        tensors: list[torch.Tensor] = []
        values: dict[str, Any] = {
            "model": {"saved": dict(self.model.state_dict()), "unsaved": _unsaved_buffers(self.model)},
            "trained": [parameter.requires_grad for parameter in self.model.parameters()],
            "optimizers": {name: item.state_dict() for name, item in self.optimizers.items()},
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "registered": {name: item.state_dict() for name, item in self.registered.items()},
            "adaptation": None if self.adaptation is None else self.adaptation.state_dict(),
            "generators": None if self.generators is None else self.generators.state_dict(),
            "position": asdict(self.position),
            "carried": self.carried,
        }
        for (kind, name), state in self.pending.items():  # hand on what waits for the script's objects
            values[kind][name] = state
        return flatten(values, tensors), tensors

    def snapshot(self) -> Snapshot:
        """Return the state for a joiner: as `pack`, with copies of all that the coming step may change."""
        structure, tensors = self.pack()
        is_shared = self.are_shared(tensors)
        kept = [tensor if shared else tensor.clone() for tensor, shared in zip(tensors, is_shared, strict=True)]
        return Snapshot(structure, kept, [tensor._version for tensor in kept], is_shared, _mark_of(kept))

    def are_shared(self, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """Return for each tensor of `pack` whether only an update changes it, and so all ranks have it alike."""
        updated = {tensor.data_ptr() for tensor in self._updated()}
        return [tensor.data_ptr() in updated for tensor in tensors]

    def _updated(self) -> list[torch.Tensor]:
        """Return the tensors that only an update changes."""
        states = [state for optimizer in self.optimizers.values() for state in optimizer.state.values()]
        tensors = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
        return [*self.model.parameters(), *tensors]

    def load(self, structure: Any, tensors: list[torch.Tensor]) -> None:
        """Load the state. Raise ValueError if it belongs to a different script."""
        values = unflatten(structure, tensors)
        if not self.may_grow:
            _same("registered objects", values["registered"], self.registered)
            _same("optimizers", values["optimizers"], self.optimizers)
        _same(
            "kinds of state",
            [name for name in ["scaler"] if values[name] is not None],
            ["scaler"] if self.scaler is not None else [],
        )
        self._load_model(values)
        for parameter, trained in zip(self.model.parameters(), values["trained"], strict=True):
            parameter.requires_grad_(trained)
        self.pending = {(kind, name): each for kind in _MADE for name, each in values[kind].items()}
        self._load_pending()
        if self.scaler is not None:
            self.scaler.load_state_dict(values["scaler"])
        if self.generators is not None and values["generators"] is not None:
            self.generators.load_state_dict(values["generators"])
        self.position.__dict__.update(values["position"])
        self.carried = values.get("carried", {})
        adapted = values.get("adaptation")
        if self.adaptation is not None and adapted is not None:
            self.adaptation.load_state_dict(adapted)
        elif adapted is not None:  # the script no longer adapts: it continues with its requested batch size
            self.position.effective_batch_size = adapted["batch_size"]

    @property
    def is_complete(self) -> bool:
        """Return whether the script has made everything that the loaded state is of."""
        return all(self._awaits(*key) for key in self.pending)

    def complete(self) -> None:
        """Load what could not be loaded before. Raises Refusal for what the script has not made."""
        self._load_pending()
        if self.pending:
            [kind, name] = next(iter(self.pending))
            raise Refusal(
                f"the training has {name!r} among its {_MADE[kind]}, which this process's script has not made, or with "
                "other parameters: what a script makes while it trains has to follow from the number of the epoch, and "
                "be made in the same order in all processes"
            )

    def _load_pending(self) -> None:
        for kind, name in [key for key in self.pending if not self.may_grow or self._awaits(*key)]:
            saved = self.pending.pop((kind, name))
            if kind == "optimizers":
                load_optimizer(self.active(name), saved)
            else:
                self.registered[name].load_state_dict(saved)

    def add_optimizer(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Add an optimizer. If it has all parameters of an earlier one, it replaces that until that steps again."""
        updated = {*map(id, optimized({"": optimizer}))}
        for other in [key for key, one in self.optimizers.items() if {*map(id, optimized({"": one}))} <= updated]:
            self.retired[other] = self.optimizers.pop(other)
        self.optimizers[name] = optimizer

    def active(self, name: str) -> torch.optim.Optimizer:
        """Return the optimizer, which is one of the training's from now on."""
        if name in self.retired:
            self.optimizers[name] = self.retired.pop(name)
        return self.optimizers[name]

    def _awaits(self, kind: str, name: str) -> bool:
        """Return whether the object exists that the state of this name is of."""
        if kind == "registered":
            return name in self.registered
        own, saved = (self.optimizers | self.retired).get(name), self.pending[kind, name]["param_groups"]
        return own is not None and _sizes(own.param_groups) == _sizes(saved)

    def catch_up(self, structure: Any, tensors: list[torch.Tensor]) -> None:
        """Take over the result of the one operation that this rank has missed.

        Hyperparameters, registered objects and generators stay: the sender's script may have gone on since, and has
        changed them (a schedule's step after the epoch) as this rank's script is about to. Only what a step itself
        does to them is due now: `after_update`. It is run on the new weights, which it may have changed at the sender
        already, and so they are loaded again after it.
        """
        values = unflatten(structure, tensors)
        newer = Position(**values["position"])
        self._load_model(values)
        for name, optimizer in self.optimizers.items():
            hyperparameters = optimizer.state_dict()["param_groups"]
            load_optimizer(optimizer, {**values["optimizers"][name], "param_groups": hyperparameters})
        if self.scaler is not None:
            self.scaler.load_state_dict(values["scaler"])
        if self.after_update is not None and newer.step > self.position.step:
            self.after_update(self.position.step)
            self._load_model(values)
        self.position.catch_up(newer)
        self.carried = values["carried"]
        if self.adaptation is not None:
            self.adaptation.load_state_dict(values["adaptation"])

    def _load_model(self, values: dict[str, Any]) -> None:
        saved, buffers = values["model"]["saved"], dict(self.model.named_buffers())
        for name, buffer in buffers.items():
            if isinstance(tensor := saved.get(name), torch.Tensor) and tensor.shape != buffer.shape:
                set_buffer(self.model, name, torch.empty_like(tensor, device=buffer.device))
        self.model.load_state_dict(saved)
        for name, tensor in values["model"]["unsaved"].items():
            if name in buffers and buffers[name].shape == tensor.shape:  # a cache that has grown is grown again
                buffers[name].detach().copy_(tensor)


def _mark_of(tensors: Iterable[torch.Tensor]) -> Any:
    """Return an event at which the tensors are what they are now; None if none is on a CUDA device."""
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
    return None if device is None else torch.cuda.current_stream(device).record_event()


#: Kinds of state whose objects a script may make later, in words.
_MADE = {"optimizers": "optimizers", "registered": "schedules"}


def _unsaved_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}


def load_optimizer(optimizer: torch.optim.Optimizer, values: dict[str, Any]) -> None:
    """Load without `load_state_dict`'s casts to a parameter's dtype: float32 averages of a bfloat16 weight stay."""
    optimizer.load_state_dict(values)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, saved in values["state"].items():
        loaded = optimizer.state[parameters[number]]
        for key, value in saved.items():
            if isinstance(value, torch.Tensor) and loaded[key].dtype != value.dtype:
                loaded[key] = value.to(loaded[key].device)


def _sizes(groups: list[dict[str, Any]]) -> list[int]:
    return [len(group["params"]) for group in groups]


def _same(what: str, saved: Iterable[str], own: Iterable[str]) -> None:
    different = set(saved) ^ set(own)
    if different:
        raise Refusal(f"{what} differ between the ranks or from the checkpoint: {sorted(different)}")


def flatten(value: Any, tensors: list[torch.Tensor], where: str = "state") -> Any:
    """Return the JSON-safe structure of `value`, with a number for each tensor; the tensors are appended to `tensors`.

    Raises Refusal for a value that is neither a number, a string, None, a tensor, nor a dict (with keys that are
    strings or integers), list or tuple of them.
    """
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise Refusal(f"{where} is a sparse or quantized tensor, which cannot be carried to another process")
        tensors.append(value.detach().resolve_conj().resolve_neg())
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        items = [[key, flatten(item, tensors, f"{where}[{key!r}]")] for key, item in value.items()]
        if any(not isinstance(key, str | int) for key, _ in items):
            raise Refusal(f"{where}: keys must be strings or integers")
        return {"dict": items}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [flatten(item, tensors, f"{where}[{index}]") for index, item in enumerate(value)]}
    raise Refusal(f"{where} is a {type(value).__name__}, which cannot be carried to another process: leave it out")


def unflatten(structure: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the value of which `flatten` made `structure` and `tensors`."""
    if not isinstance(structure, dict):
        return structure
    [(kind, inner)] = structure.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "dict":
        return {key: unflatten(item, tensors) for key, item in inner}
    items = [unflatten(item, tensors) for item in inner]
    return items if kind == "list" else tuple(items)
