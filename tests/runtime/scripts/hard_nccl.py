"""A hard NCCL: as unkind as the real one, over gloo and tensors on the CPU. `install()` has a session's groups use it.

- A connect holds the communicator's mutex until all ranks have come, or TORCH_NCCL_NONBLOCKING_TIMEOUT is over (30
  minutes unless it is set).
- An abort wants that mutex, and then takes its time.
- The first collective connects, and so blocks inside its call until all ranks have called it, unless
  NCCL_RUNTIME_CONNECT is 0.
- Operations end later than they return, and a peer's death is never noticed: they wait for ever.
- A shrink holds the mutex of its parent until all survivors have come, and does nothing for one that is aborted.
- The memory for communicators is limited.
"""

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

import torch
from tidepool.torch.comm import child_process, nccl, process_group
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store

#: Name of a variable with the number of communicators that fit into the memory.
ROOM = "HARD_NCCL_ROOM"
#: Name of a variable with the seconds that an abort takes.
ABORT_SECONDS = "HARD_NCCL_ABORT_SECONDS"
#: Name of a variable with what becomes of a shrink: "refuses", "hangs", or "none" where torch has no such thing.
SHRINK = "HARD_NCCL_SHRINK"
_LOOK_SECONDS = 0.005


class _Memory:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.taken = 0


_memory = _Memory()


@dataclass
class HardWork:
    work: object
    communicator: "HardNccl"

    def is_completed(self) -> bool:
        if self.communicator.is_aborted or self.communicator.is_ended:
            return True
        return self.work.is_completed() and self.work.is_success()

    def exception(self) -> Exception | None:
        return RuntimeError("the communicator was aborted") if self.communicator.is_aborted else None

    def wait(self) -> None:
        self.work.wait()


@dataclass
class HardNccl:
    store: Store
    rank: int
    size: int
    is_aborted: bool = False
    #: A shrink has ended its operations, which then look complete.
    is_ended: bool = False
    mutex: threading.Lock = field(default_factory=threading.Lock)
    calls: int = 0
    broadcasts: int = 0
    _gloo: ProcessGroupGloo | None = None

    def eager_connect_single_device(self, device: torch.device) -> None:
        with self.mutex:
            with _memory.lock:
                if _memory.taken >= int(os.environ.get(ROOM, "1000000")):
                    raise RuntimeError("NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'")
                _memory.taken += 1
            limit = float(os.environ.get("TORCH_NCCL_NONBLOCKING_TIMEOUT", "1800"))
            self._meet("connect", time.monotonic() + limit)
            self._connect()

    def _connect(self) -> None:
        options = ProcessGroupGloo._Options()
        options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(minutes=30)
        self._gloo = ProcessGroupGloo(PrefixStore("hard", self.store), self.rank, self.size, options)

    @property
    def supports_shrinking(self) -> bool:
        return os.environ.get(SHRINK) != "none"

    def shrink(self, excluded: list[int], flags: int = 0, options: object = None) -> "HardNccl":
        limit = time.monotonic() + float(os.environ.get("TORCH_NCCL_NONBLOCKING_TIMEOUT", "1800"))
        with self.mutex:
            if self.is_aborted or flags != 1:
                raise RuntimeError("NCCL communicator was aborted, or is in use")
            if os.environ.get(SHRINK) == "refuses":
                raise RuntimeError("NCCL error: invalid usage")
            while os.environ.get(SHRINK) == "hangs":
                if time.monotonic() > limit:
                    raise RuntimeError("NCCL timeout in communicator initialization")
                time.sleep(_LOOK_SECONDS)
            self.is_ended = True
            rest = [rank for rank in range(self.size) if rank not in excluded]
            name = "-".join(map(str, excluded))
            child = HardNccl(PrefixStore(f"without-{name}", self.store), rest.index(self.rank), len(rest))
            child._meet("connect", limit)
            child._connect()
        with _memory.lock:
            _memory.taken += 1
        print(f"hard NCCL: shrunk to {len(rest)} ranks", file=sys.stderr, flush=True)
        return child

    def _is_initialized(self) -> bool:
        with self.mutex:
            return self._gloo is not None

    def abort(self) -> None:
        with self.mutex:
            time.sleep(float(os.environ.get(ABORT_SECONDS, "0.05")))
            self.is_aborted = True
        self._give_back()

    def shutdown(self) -> None:
        print("hard NCCL: shut down", file=sys.stderr, flush=True)
        self._give_back()

    def _give_back(self) -> None:
        with _memory.lock:
            _memory.taken -= 1

    def allreduce(self, tensors: list[torch.Tensor], options: object) -> HardWork:
        return self._begin(lambda: self._gloo.allreduce(tensors, options))

    def broadcast(self, tensors: list[torch.Tensor], options: object) -> HardWork:
        if not self.broadcasts:
            print("hard NCCL: broadcasts", file=sys.stderr, flush=True)
        self.broadcasts += 1
        return self._begin(lambda: self._gloo.broadcast(tensors, options))

    def alltoall_base(self, *arguments: object) -> HardWork:
        return self._begin(lambda: self._gloo.alltoall_base(*arguments))

    def _allgather_base(self, *arguments: object) -> HardWork:
        return self._begin(lambda: self._gloo._allgather_base(*arguments))

    def _begin(self, start) -> HardWork:
        self.calls += 1
        if self.calls == 1 and os.environ.get("NCCL_RUNTIME_CONNECT") != "0":
            self._meet("first", time.monotonic() + 1800.0)
        return HardWork(start(), self)

    def _meet(self, place: str, deadline: float) -> None:
        """Wait for all ranks, as deaf to an abort as the real one."""
        self.store.add(f"{place}-arrived", 1)
        while self.store.add(f"{place}-arrived", 0) < self.size:
            if time.monotonic() > deadline:
                raise RuntimeError("NCCL timeout in communicator initialization")
            time.sleep(_LOOK_SECONDS)


def install() -> None:
    """Have the groups of this process's sessions sum all tensors by it."""
    real = nccl.start_nccl

    def start(store, rank, size, device, timeout_seconds, make=None):
        return real(store, rank, size, device, timeout_seconds, make or HardNccl)

    process_group.start_nccl = start
    child_process.FACTORY = f"{__name__}:HardNccl"
    process_group.backend_for = lambda names: "nccl"
    process_group._on_gpu = lambda tensors: True
