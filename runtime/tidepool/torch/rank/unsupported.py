"""Checks for what cannot be trained elastically: refused when the session is made, with the reason and a remedy."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tidepool.protocol import LaunchSpec
from tidepool.refusal import Refusal

__all__ = ["Layout", "bare_model", "check_engine", "check_kind", "check_trainable"]

_FIXED_SIZE = "train it as a fixed-size training (torchrun), or with the whole model in each process"


def check_engine(launch: LaunchSpec | None) -> None:
    """Raises RuntimeError in a fixed-size training of several ranks: each of them would train alone."""
    if launch is not None and launch.engine == "single" and launch.min_slots > 1:
        raise Refusal(
            f"One process has the {launch.min_slots} GPUs of this training, but the script makes a tidepool Session, "
            "which uses one GPU per process: register the model with the engine 'elastic'."
        )
    if launch is not None and launch.engine == "fixed" and launch.min_slots > 1:
        raise Refusal(
            f"This model is registered with the engine 'fixed', so its {launch.min_slots} processes form their own"
            " group (torch.distributed.init_process_group), but the script makes a tidepool Session: register the"
            " model with the engine 'elastic'."
        )


def bare_model(model: nn.Module) -> nn.Module:
    """The module inside of `torch.compile`'s wrapper: their parameters are the same, its names have no prefix."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def check_trainable(model: nn.Module, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
    """Raises Refusal for a kind of model or optimizer that does not work, and for a wrong combination."""
    if not isinstance(model, nn.Module):
        raise Refusal(f"model must be a torch.nn.Module, not a {type(model).__name__}")
    _check_modules(model)
    _check_tensors(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    owners: dict[int, str] = {}
    for name, optimizer in optimizers.items():
        check_kind(name, optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in names:
                    raise Refusal(
                        f"optimizer {name!r} updates a parameter of shape {list(parameter.shape)} that is not in the "
                        "model, so no other process would learn of it: put all that is trained into one module "
                        "(nn.ModuleDict), and build optimizers after the model has its final parameters"
                    )
                if owners.setdefault(id(parameter), name) != name:
                    raise Refusal(
                        f"optimizers {owners[id(parameter)]!r} and {name!r} both update {names[id(parameter)]}: "
                        "give each parameter to one of them"
                    )


class Layout:
    """The model's parameters and their devices, fixed when the session is made: gradients are summed by this layout."""

    def __init__(self, model: nn.Module, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
        self._model, self._optimizers = model, optimizers
        self._parameters, self._optimized = self._now()

    def check(self, *, optimizers_grow: bool = False) -> None:
        """Raise Refusal if the script has changed the layout.

        optimizers_grow: there may be further optimizers and groups, of the model's own parameters.
        """
        parameters, optimized = self._now()
        known = self._parameters
        changes = {
            "is new in the model": [name for name in parameters if name not in known],
            "is no longer in the model": [name for name in known if name not in parameters],
            "was replaced, moved or converted": [name for name in known if known[name] != parameters.get(name)],
        }
        for change, names in changes.items():
            if names:
                raise Refusal(
                    f"the parameter {names[0]} {change}: a model keeps its parameters while it is trained elastically, "
                    "since processes that join build it as it was at the beginning. Build all of it before, and move "
                    "it to its device; parts may be frozen"
                )
        own = {place[0] for place in parameters.values()}
        if optimizers_grow:
            if not all(number in own for groups in optimized.values() for group in groups for number in group):
                raise Refusal("an optimizer has got parameters that are in no prepared model: give all models")
        elif optimized != self._optimized:
            raise Refusal(
                "an optimizer has got other parameters since the session was made: give it all of them from the "
                "beginning, and freeze with requires_grad_(False) what shall not be trained yet"
            )

    def _now(self) -> tuple[dict[str, tuple[int, object, object]], dict[str, list[list[int]]]]:
        parameters: dict[str, tuple[int, object, object]] = {
            name: (id(parameter), parameter.dtype, parameter.device)
            for name, parameter in self._model.named_parameters()
        }
        optimized = {
            name: [[id(parameter) for parameter in group["params"]] for group in optimizer.param_groups]
            for name, optimizer in self._optimizers.items()
        }
        return parameters, optimized


def _check_modules(model: nn.Module) -> None:
    for name, module in model.named_modules():
        where = f"the module {name!r}" if name else "the model"
        if isinstance(module, DistributedDataParallel | DataParallel):
            raise Refusal(
                f"{where} is wrapped in {type(module).__name__}: pass the bare model, the session itself divides each "
                "step among the processes and sums their gradients"
            )
        if "FullyShardedDataParallel" in [kind.__name__ for kind in type(module).__mro__]:
            raise Refusal(f"{where} is sharded (FSDP), which cannot be resized in place: {_FIXED_SIZE}")
        if isinstance(module, nn.SyncBatchNorm):
            raise Refusal(
                f"{where} is a SyncBatchNorm, which is bound to a process group of fixed size: use BatchNorm (where "
                "results must not depend on the number of processes, with exactness bitwise), GroupNorm or LayerNorm"
            )
        if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():  # type: ignore[misc]
            raise Refusal(f"{where} is lazy and has no parameters yet: run one batch through the model first")


def _check_tensors(model: nn.Module) -> None:
    devices = set()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if "DTensor" in [kind.__name__ for kind in type(tensor).__mro__]:
            raise Refusal(
                f"{name} is a DTensor (FSDP2 or tensor parallelism), which cannot be resized in place: {_FIXED_SIZE}"
            )
        if tensor.is_meta:
            raise Refusal(f"{name} is on the meta device: give the model its weights (to_empty and initialise) first")
        devices.add(str(tensor.device))
    if len(devices) > 1:
        raise Refusal(
            f"the model is spread over {' and '.join(sorted(devices))}: each process trains a whole model on one device"
        )


def check_kind(name: str, optimizer: torch.optim.Optimizer) -> None:
    """Raises Refusal for a kind of optimizer that no elastic step can have."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Refusal(
            f"optimizer {name!r} is LBFGS, which computes the loss several times in one step: an elastic step computes "
            "it once; use SGD, Adam or another first-order optimizer"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise Refusal(
            f"optimizer {name!r} is SparseAdam, but gradients are summed over the processes as dense tensors: use Adam"
        )
