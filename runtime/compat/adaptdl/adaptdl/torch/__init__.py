"""`adaptdl.torch`: AdaptDL's training API on Tidepool's runtime. See docs/user/adaptdl.md."""

from typing import Any

import torch

from adaptdl import checkpoint, collective, env
from adaptdl._distributed import stand_in
from adaptdl.torch.accumulator import Accumulator
from adaptdl.torch.data import AdaptiveDataLoader, ElasticSampler, current_dataloader
from adaptdl.torch.epoch import current_epoch, finished_epochs, remaining_epochs_until
from adaptdl.torch.parallel import AdaptiveDataParallel

__all__ = [
    "Accumulator",
    "AdaptiveDataLoader",
    "AdaptiveDataParallel",
    "ElasticSampler",
    "checkpoint",
    "collective",
    "current_dataloader",
    "current_epoch",
    "env",
    "finished_epochs",
    "init_process_group",
    "remaining_epochs_until",
]


def init_process_group(
    backend: str, init_method: str | None = None, world_size: int | None = None, rank: int | None = None
) -> None:
    """Meet the other replicas: those that the ADAPTDL_ variables tell of, or the arguments; `tcp://host:port`.

    On a cluster the replicas meet by themselves, and the arguments have no effect. Raises RuntimeError a second time.
    """
    address, port = None, None
    if init_method is not None:
        address, port = _meeting(init_method)
    device = torch.device("cuda" if backend == "nccl" else "cpu")
    collective.connect(address, port, rank, world_size, device)
    stand_in()


def _meeting(init_method: str) -> tuple[str, int]:
    """Return host and port of `tcp://host:port`; an IPv6 address is in brackets. Raises ValueError."""
    address, _, number = init_method.removeprefix("tcp://").rpartition(":")
    if not init_method.startswith("tcp://") or not address or not number.isdecimal():
        raise ValueError(f"init_method is {init_method!r}: give tcp://host:port, or nothing")
    return address.removeprefix("[").removesuffix("]"), int(number)


def __getattr__(name: str) -> Any:
    """Refuse, as a missing name is refused, the API that is in no release, which AdaptDL's documentation shows."""
    if name == "AdaptDLTorchTrainer":
        raise ImportError(
            "adaptdl.torch.AdaptDLTorchTrainer is not here, as it is in no release of AdaptDL: take an "
            "AdaptiveDataLoader, call its autoscale_batch_size, and take an AdaptiveDataParallel"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
