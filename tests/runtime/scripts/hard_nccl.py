"""A hard NCCL: as unkind as the real one, over gloo and tensors on the CPU. `install()` has a session's groups use it.

- A connect holds the communicator's mutex until all ranks have come, or TORCH_NCCL_NONBLOCKING_TIMEOUT is over (30
  minutes unless it is set).
- An abort wants that mutex, and then takes its time.
- The first collective connects, and so blocks inside its call until all ranks have called it, unless
  NCCL_RUNTIME_CONNECT is 0.
- Operations end later than they return, and a peer's death is never noticed: they wait for ever.
- A shrink holds the mutex of its parent until all survivors have come, and does nothing for one that is aborted.
- The memory for communicators is limited.
- If so set, a peer's death leaves an error in the survivor's CUDA context: from then on, each call of NCCL fails.
"""

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

import psutil
import torch
from tidepool.torch.comm import child_process, nccl, process_group
from tidepool.torch.rank import lost_context
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store

#: Name of a variable with the number of communicators that fit into the memory.
ROOM = "HARD_NCCL_ROOM"
#: Name of a variable with the seconds that an abort takes.
ABORT_SECONDS = "HARD_NCCL_ABORT_SECONDS"
#: Name of a variable with what becomes of a shrink: "refuses", "hangs", or "none" where torch has no such thing.
SHRINK = "HARD_NCCL_SHRINK"
#: Name of a variable: 1 if the death of a peer leaves an error in the contexts of those that had mapped its memory.
STICKY = "HARD_NCCL_STICKY"
STICKY_ERROR = "CUDA error: an illegal memory access was encountered"
_LOOK_SECONDS = 0.005


class _Memory:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.taken = 0


_memory = _Memory()
#: The error in this process's context, if there is one.
_context_errors: list[str] = []
#: Pids of those whose memory this process has mapped.
_peers: set[int] = set()


def context_error(device: object = None) -> str:
    if os.environ.get(STICKY) == "1" and any(map(_is_dead, _peers)):
        _context_errors.append(STICKY_ERROR)
    return "".join(_context_errors[:1])


def use_context() -> None:
    if _context_errors:
        raise RuntimeError(_context_errors[0])


def _is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@dataclass
class HardWork:
    work: object
    communicator: "HardNccl"

    def is_completed(self) -> bool:
        if self.communicator.is_aborted or self.communicator.is_ended:
            return True
        is_over = self.work.is_completed()
        if is_over and not self.work.is_success():
            context_error()
        use_context()
        return is_over and self.work.is_success()

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
        use_context()
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
        use_context()
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
        use_context()
        self.calls += 1
        if self.calls == 1 and os.environ.get("NCCL_RUNTIME_CONNECT") != "0":
            self._meet("first", time.monotonic() + 1800.0)
        return HardWork(start(), self)

    def _meet(self, place: str, deadline: float) -> None:
        """Wait for all ranks, as deaf to an abort as the real one."""
        self.store.set(f"{place}-pid-{self.rank}", str(os.getpid()))
        self.store.add(f"{place}-arrived", 1)
        while self.store.add(f"{place}-arrived", 0) < self.size:
            if time.monotonic() > deadline:
                raise RuntimeError("NCCL timeout in communicator initialization")
            time.sleep(_LOOK_SECONDS)
        _peers.update(int(self.store.get(f"{place}-pid-{rank}")) for rank in range(self.size))


def install() -> None:
    """Have the groups of this process's sessions sum all tensors by it."""
    real = nccl.start_nccl

    def start(store, rank, size, device, timeout_seconds, make=None, **how):
        return real(store, rank, size, device, timeout_seconds, make or HardNccl, **how)

    process_group.start_nccl = start
    child_process.FACTORY = f"{__name__}:HardNccl"
    process_group.backend_for = lambda names: "nccl"
    process_group._on_gpu = lambda tensors: True
    lost_context.context_error = context_error
