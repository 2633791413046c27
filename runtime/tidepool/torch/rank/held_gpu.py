"""A rank whose slot is a GPU and whose model is in main memory: it would train on the CPU, and nobody would notice.

Scripts choose the CPU by themselves where torch sees no GPU, as under a driver that is too old for it.
"""

import sys

import torch

from tidepool.env import holds_gpu

__all__ = ["GpuNotSeen", "check_held_gpu"]


class GpuNotSeen(RuntimeError):
    """The rank holds a GPU that torch cannot use."""


def check_held_gpu(device: torch.device, host: str) -> None:
    """Raise GpuNotSeen if torch sees no GPU where this rank holds one. Write to the log that the script uses none.

    device: the model's.
    """
    if device.type != "cpu" or not holds_gpu():
        return
    if not torch.cuda.is_available():
        raise GpuNotSeen(
            f"this rank holds a GPU of host {host} and torch sees none, so it would train on the CPU. The page Hosts "
            "and manage.py doctor on that host say what is missing. A training that is meant for the CPU sets "
            "CUDA_VISIBLE_DEVICES to nothing"
        )
    text = "tidepool: this rank holds a GPU and the model is in main memory: it trains on the CPU"
    print(text, file=sys.stderr, flush=True)  # noqa: T201
