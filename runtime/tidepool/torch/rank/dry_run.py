"""A dry run of a process that joins a training under `prepare`: its models' first forward and backward pass.

The first pass of a process is slow: kernels are loaded and chosen, `torch.compile` compiles. The others would wait for
that in the joiner's first step. Rank 0 therefore remembers how the script has called each model, by types and shapes,
and a joiner calls its own models so, on zeros, before it says that it is ready. The script's code does not run, and
buffers, gradients and random numbers stay as they are.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tidepool.refusal import Refusal
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.state.training_state import flatten, unflatten

__all__ = ["DryRun"]

#: File in the attempt's folder: for each model a call, or null.
_NAME = "calls.json"


class DryRun:
    """models: as the script calls them, maybe compiled."""

    def __init__(self, training_loop: TrainingLoop, models: Sequence[torch.nn.Module]) -> None:
        self._training_loop, self._models = training_loop, models
        self._calls: list[dict[str, Any] | None] = []
        #: Number of ranks when the calls were remembered; the models get larger shares on fewer ranks.
        self._ranks = 0

    @property
    def _path(self) -> Path | None:
        folder = self._training_loop.folder
        return folder / _NAME if folder is not None else None

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Remember the calls of the batch in the block, on rank 0, if the number of ranks is a new one."""
        loop = self._training_loop
        if self._path is None or loop.rank or loop.world_size == self._ranks or not loop.transitions.all_share:
            yield
            return
        self._ranks, self._calls = loop.world_size, [None] * len(self._models)
        watches = [
            model.register_forward_pre_hook(self._remembers(number), with_kwargs=True)
            for number, model in enumerate(self._models)
        ]
        try:
            yield
        finally:
            for watch in watches:
                watch.remove()
        if any(self._calls):
            aside = self._path.with_suffix(".new")
            with suppress(OSError):  # a full disk: then joiners have no dry run
                aside.write_text(json.dumps(self._calls))
                aside.replace(self._path)

    def make(self) -> bool:
        """Make the dry run, if there are calls. False: there are none, or it failed, which the log says.

        There is none if the script has hooks on modules or gradients, which would see it.
        """
        if self._path is None or not self._path.exists() or self._has_hooks:
            return False
        calls = json.loads(self._path.read_text())
        loop = self._training_loop
        try:
            with loop.generators.aside(), loop.buffers.kept():
                for model, call in zip(self._models, calls, strict=False):
                    if call is not None:
                        self._call(model, call)
        except Exception as error:  # whatever the model does with zeros: the training itself is not concerned
            text = f"tidepool: the dry run of the model failed, so that the first step here takes longer: {error}"
            print(text, file=sys.stderr, flush=True)  # noqa: T201
            return False
        return True

    @property
    def _has_hooks(self) -> bool:
        modules = [module for model in self._models for module in model.modules()]
        seen = (each for one in modules for each in (one._forward_hooks, one._backward_hooks, one._backward_pre_hooks))
        return self._training_loop.reducer.hooks.exist or any(seen)

    def _call(self, model: torch.nn.Module, call: dict[str, Any]) -> None:
        device = self._training_loop.device
        inputs = [
            torch.zeros(shape, dtype=getattr(torch, dtype), device=device if on_device else "cpu")
            for dtype, shape, on_device in call["tensors"]
        ]
        arguments, named = unflatten(call["structure"], inputs)
        kind = getattr(torch, call["autocast"]["dtype"])
        with torch.autocast(device.type, dtype=kind, enabled=call["autocast"]["enabled"]):
            outputs = model(*arguments, **named)
        found = [leaf for leaf in tree_leaves(_plain(outputs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if found and trained:
            torch.autograd.grad([each.float().sum() for each in found], trained, allow_unused=True)

    def _remembers(self, number: int) -> Any:
        def remember(_model: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            if self._calls[number] is None and torch.is_grad_enabled():
                self._calls[number] = _described(arguments, named, self._training_loop.device)

        return remember


def _described(arguments: tuple[Any, ...], named: dict[str, Any], device: torch.device) -> dict[str, Any] | None:
    """Return the call, for JSON; None if it cannot be made of types and shapes."""
    tensors: list[torch.Tensor] = []
    try:
        structure = flatten([list(arguments), named], tensors)
    except Refusal:
        return None
    kinds = [[str(each.dtype).removeprefix("torch."), list(each.shape), each.device.type != "cpu"] for each in tensors]
    kind = torch.get_autocast_dtype(device.type)
    autocast = {"enabled": torch.is_autocast_enabled(device.type), "dtype": str(kind).removeprefix("torch.")}
    return {"structure": structure, "tensors": kinds, "autocast": autocast}


def _plain(outputs: Any) -> Any:
    """Return what has an output's tensors: the attributes of an object of another class, such as Transformers'."""
    known = isinstance(outputs, torch.Tensor | tuple | list | dict) or outputs is None
    return outputs if known else vars(outputs) if hasattr(outputs, "__dict__") else outputs
