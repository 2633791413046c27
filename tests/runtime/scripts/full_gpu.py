"""Runs out of a GPU's memory as torch does, with a stand-in of CUDA, which most machines with tests lack."""

from typing import Any

import torch

GIB = 1024**3


def snapshot(device: int) -> dict[str, Any]:
    blocks = [{"size": 70 * GIB, "state": "active_allocated", "frames": []}]
    return {"segments": [{"device": device, "blocks": blocks}], "device_traces": []}


def main() -> None:
    observers: list[Any] = []
    cuda: Any = torch._C
    cuda._cuda_attach_out_of_memory_observer = observers.append
    torch.cuda.memory._snapshot = snapshot
    attach, _ = torch.cuda._queued_calls[-1]
    attach()
    observers[0](0, 2 * GIB, 80 * GIB, GIB)
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


if __name__ == "__main__":
    main()
