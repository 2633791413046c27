"""NCCL beside a generation's gloo group, for tensors on GPUs. Written from the documents and source of NCCL and torch;
never run on a GPU.

Gloo serves tensors on the host, and tensors on GPUs where NCCL cannot be used: NCCL takes one rank per GPU, so where
several ranks share a GPU (virtual slots), gloo sums through the host's memory.

NCCL's own error handling ends the process, so it is switched off: the coordinator reports who has died. A waiting
thread polls the operation instead of blocking in CUDA. `break_off` aborts the communicator and with it the kernels;
they may write until the abort is complete, so the waiting thread does not go on before. `drop` calls `shutdown`, which
lets the last data reach the peers; a communicator that was aborted is not shut down.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import torch
from torch._C._distributed_c10d import Store

from tidepool.env import take_nccl_errors, uses_gpu_part
from tidepool.procfs import end_at_once

__all__ = ["GPU_PART", "HOST_MEMORY", "Nccl", "NcclError", "backend_for", "device_name", "start_nccl"]

#: The name of every device that is no GPU.
HOST_MEMORY = "cpu"
#: The name of every MIG instance.
GPU_PART = "part-of-a-gpu"
#: Interval of polling an operation.
_ASK_SECONDS = 0.00005
#: Limit of an abort: one that takes longer never returns, and leaves kernels that may write at any time.
_ABORT_SECONDS = 30.0


class NcclError(RuntimeError):
    """The communicator failed and cannot be used again."""


def device_name(device: torch.device) -> str:
    """Identity of a physical device, unique over all hosts. Parts of GPUs have one name: NCCL cannot use two of one."""
    if device.type != "cuda":
        return HOST_MEMORY
    if uses_gpu_part():
        return GPU_PART
    return str(torch.cuda.get_device_properties(device).uuid)


def backend_for(names: Sequence[str]) -> Literal["gloo", "nccl"]:
    """Backend for tensors on the ranks' devices. `names`: of each rank's device; all ranks must decide alike."""
    return "nccl" if not {HOST_MEMORY, GPU_PART} & set(names) and len(set(names)) == len(names) else "gloo"


@dataclass
class Nccl:
    """A communicator around torch's ProcessGroupNCCL. Any thread may call `break_off`."""

    backend: Any
    _broken: threading.Event = field(default_factory=threading.Event)
    _aborted: threading.Event = field(default_factory=threading.Event)

    def wait(self, work: Any) -> None:
        """Wait until the operation is over on the GPU. Raises NcclError; nothing writes into its tensors then."""
        try:
            while not work.is_completed() and not self._broken.is_set():
                time.sleep(_ASK_SECONDS)
            failed = self._broken.is_set() or work.exception() is not None
            if not failed:
                work.wait()  # later work of this thread's stream follows the operation
        except RuntimeError as error:
            failed = True
            print(f"tidepool: NCCL failed: {error}", file=sys.stderr)  # noqa: T201
        if failed:
            self.break_off()
            if not self._aborted.wait(_ABORT_SECONDS):
                end_at_once("NCCL does not come back from an abort")
            raise NcclError("the operation failed or was broken off")

    def break_off(self) -> None:
        if self._broken.is_set():
            return
        self._broken.set()
        threading.Thread(target=self._abort, name="abort-nccl", daemon=True).start()

    def drop(self) -> None:
        """Free the communicator, which may take long. No thread may be waiting in it."""
        if not self._broken.is_set():
            self.backend.shutdown()

    def _abort(self) -> None:
        self.backend.abort()
        self._aborted.set()


def start_nccl(
    store: Store,
    rank: int,
    size: int,
    device: torch.device,
    timeout_seconds: float,
    make: Callable[[Store, int, int], Any] | None = None,
) -> Nccl:
    """Connect to the other ranks, without a collective, which would hold up those that still train.

    `make` builds the backend. Raises NcclError when the others do not come in time.
    """
    take_nccl_errors()
    try:
        nccl = Nccl((make or _process_group)(store, rank, size))
        nccl.backend.eager_connect_single_device(device)
        deadline = time.monotonic() + timeout_seconds
        while not nccl.backend._is_initialized():
            if time.monotonic() > deadline:
                nccl.break_off()
                raise NcclError(f"NCCL did not connect {size} ranks within {timeout_seconds:g} s")
            time.sleep(0.001)
    except RuntimeError as error:
        raise NcclError(str(error)) from error
    return nccl


def _process_group(store: Store, rank: int, size: int) -> Any:
    from torch._C._distributed_c10d import ProcessGroupNCCL  # only torch for CUDA has it

    options = ProcessGroupNCCL.Options()
    options.config.blocking = 0  # an init or an operation that cannot go on can be aborted
    options._timeout = timedelta(minutes=30)
    return ProcessGroupNCCL(store, rank, size, options)
