"""NCCL beside a generation's gloo group, for tensors on GPUs. Written from the documents and source of NCCL and torch;
never run on a GPU.

Gloo serves tensors on the host, and tensors on GPUs where NCCL cannot be used: NCCL takes one rank per GPU, so where
several ranks share a GPU (virtual slots), gloo sums through the host's memory.

NCCL's own error handling ends the process, so it is switched off: the coordinator reports who has died. A waiting
thread polls the operation instead of blocking in CUDA. `break_off` aborts the communicator and with it the kernels;
they may write until the abort is complete, so the waiting thread does not go on before. `drop` calls `shutdown`, which
lets the last data reach the peers; a communicator that was aborted is not shut down.

An abort may take long or for ever, so where torch can shrink a communicator (`shrinking.py`), `break_off` leaves its
kernels to that: tensors of unfinished operations are kept, and the waiting thread goes on at once. It must not touch
what it has given to them until the next group is built, which ends them one way or the other.
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

from tidepool.env import nccl_recovery, nccl_state, prepare_nccl, uses_gpu_part
from tidepool.procfs import end_at_once
from tidepool.protocol import GPU_IS_FULL

__all__ = [
    "FEW_CHANNELS",
    "GPU_PART",
    "HOST_MEMORY",
    "Nccl",
    "NcclError",
    "backend_for",
    "device_name",
    "make_backend",
    "most_channels",
    "refuse_broadcasts",
    "start_nccl",
    "takes_broadcasts",
]

#: The name of every device that is no GPU.
HOST_MEMORY = "cpu"
#: The name of every MIG instance.
GPU_PART = "part-of-a-gpu"
#: Interval of polling an operation.
_ASK_SECONDS = 0.00005
#: Limit of an abort: one that takes longer never returns, and leaves kernels that may write at any time.
_ABORT_SECONDS = 30.0
#: Time for the plan of a recovery, after which a communicator that could be shrunk is aborted.
_HEIR_SECONDS = 10.0
#: Flag of torch.distributed.SHRINK_ABORT: the operations are ended first.
_SHRINK_ABORT = 1
#: Memory of a communicator, outside of torch's allocator.
COMMUNICATOR_BYTES = 700_000_000
#: Memory that the first exchange of pieces adds for each peer (NCCL's issue 1685: 3.3 GB among eight ranks).
EXCHANGE_BYTES = 470_000_000
#: Channels of a communicator on a GPU that has no such room: slower sums, and less memory.
FEW_CHANNELS = 2
#: Connects that never ended, each with its thread and memory, after which a rank ends.
MOST_LEAKED = 3
_leaked: list["Nccl"] = []
#: Failures of broadcasts of the state in this process.
_failed_broadcasts: list[str] = []


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


def takes_broadcasts() -> bool:
    """Return whether this process hands state over by broadcasts, where the others do. Raises RuntimeError.

    A communicator in a child would need the buffers of each broadcast mapped there.
    """
    return nccl_state() == "broadcast" and nccl_recovery() != "process" and not _failed_broadcasts


def refuse_broadcasts(why: str) -> None:
    """Hand state over by sockets from now on."""
    if not _failed_broadcasts:
        text = f"tidepool: the state goes by sockets from now on, because a broadcast of it has failed: {why}"
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    _failed_broadcasts.append(why)


@dataclass
class Nccl:
    """A communicator around torch's ProcessGroupNCCL. Any thread may call `break_off`."""

    backend: Any
    #: Whether the survivors of a death may shrink it.
    shrinks: bool = False
    _broken: threading.Event = field(default_factory=threading.Event)
    _aborted: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    #: A shrink is to end the operations, so no abort begins after a while.
    _is_reserved: bool = False
    #: A shrink or an abort has begun.
    _is_ending: bool = False
    _is_aborting: bool = False
    #: Operations that may still write, with their tensors, by id.
    _unfinished: dict[int, Any] = field(default_factory=dict)

    @property
    def is_aborted(self) -> bool:
        return self._aborted.is_set()

    def begin(self, operation: str, *arguments: Any) -> Any:
        """Launch an operation of the backend's; returns a handle for `wait`."""
        work = getattr(self.backend, operation)(*arguments)
        self._unfinished[id(work)] = work, arguments
        return work

    def wait(self, work: Any) -> None:
        """Wait until the operation is over on the GPU. Raises NcclError; see above for what may be done then."""
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
            if not self.shrinks:
                self.end()
            raise NcclError("the operation failed or was broken off")
        self._unfinished.pop(id(work), None)

    def break_off(self) -> None:
        with self._lock:
            if self._broken.is_set():
                return
            self._broken.set()
        if not self.shrinks:
            self._begin_abort()
            return
        patience = threading.Timer(_HEIR_SECONDS, self._abort_unless_reserved)
        patience.daemon = True
        patience.start()

    def reserve(self) -> bool:
        """Leave the operations to a shrink. False: they are being ended already, or a shrink has failed."""
        with self._lock:
            self._is_reserved = self.shrinks and self._broken.is_set() and not self._is_ending
            return self._is_reserved

    def shrink(self, excluded: Sequence[int]) -> "Nccl":
        """End the operations and return a communicator without these ranks, which have to be dead.

        All others call it at the same time. Raises RuntimeError.
        """
        with self._lock:
            self._is_ending = True
        return Nccl(self.backend.shrink(list(excluded), _SHRINK_ABORT), shrinks=True)

    def forget_operations(self) -> None:
        """Release the tensors of the operations, which a shrink has ended."""
        self._unfinished.clear()

    def end(self) -> None:
        """End all operations by an abort; ends the process if that never comes back."""
        self.break_off()
        self._begin_abort()
        if not self._aborted.wait(_ABORT_SECONDS):
            end_at_once("NCCL does not come back from an abort")
        self._unfinished.clear()

    def drop(self) -> None:
        """Free the communicator, which may take long. No thread may be waiting in it."""
        if self._broken.is_set():
            self._begin_abort()
        else:
            self.backend.shutdown()

    def discard(self) -> None:
        """Abort a communicator in which nothing was begun."""
        self._broken.set()
        self._begin_abort()

    def _abort_unless_reserved(self) -> None:
        if not self._is_reserved:
            self._begin_abort()

    def _begin_abort(self) -> None:
        with self._lock:
            self._is_ending = True
            if self._is_aborting:
                return
            self._is_aborting = True
        threading.Thread(target=self._abort, name="abort-nccl", daemon=True).start()

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
    *,
    exchanges: bool = False,
) -> Nccl:
    """Connect to the other ranks, without a collective, which would hold up those that still train.

    `make` builds the backend. exchanges: the ranks will send pieces to each other. Raises NcclError when the others do
    not come in time.
    """
    prepare_nccl(timeout_seconds)
    try:
        room = COMMUNICATOR_BYTES + EXCHANGE_BYTES * (size - 1) * exchanges
        channels = most_channels(device, room) if make is None else None
        backend = make(store, rank, size) if make else make_backend(store, rank, size, channels)
        nccl = Nccl(backend, shrinks=nccl_recovery() == "shrink" and getattr(backend, "supports_shrinking", False))
    except RuntimeError as error:
        raise NcclError(_in_words(error)) from error
    connect = _Connect(nccl.backend, device)
    if not connect.over.wait(timeout_seconds):
        # The thread waits inside NCCL with the lock that an abort needs: neither may ever end.
        nccl.discard()
        _leaked[:] = [*(each for each in _leaked if not each.is_aborted), nccl]
        if len(_leaked) > MOST_LEAKED:
            end_at_once(f"{len(_leaked)} connects of NCCL never ended")
        raise NcclError(f"NCCL did not connect {size} ranks within {timeout_seconds:g} s")
    if connect.error is not None:
        nccl.discard()
        raise NcclError(_in_words(connect.error)) from connect.error
    return nccl


class _Connect:
    """A connect in a thread: in torch 2.13 the call itself waits for the other ranks, and nothing can break it off."""

    def __init__(self, backend: Any, device: torch.device) -> None:
        self._backend, self._device = backend, device
        self.over = threading.Event()
        self.error: Exception | None = None
        threading.Thread(target=self._run, name="connect-nccl", daemon=True).start()

    def _run(self) -> None:
        try:
            self._backend.eager_connect_single_device(self._device)
            if not self._backend._is_initialized():  # a torch whose call does not wait
                self._backend._comm_ptr()
        except Exception as error:
            self.error = error
        self.over.set()


def most_channels(device: torch.device, room: int = COMMUNICATOR_BYTES) -> int | None:
    """Return how many channels a communicator may have, since each takes memory; None: as many as NCCL chooses.

    room: bytes that it takes with all of them. Where there are fewer, memory that torch keeps for later is given back.
    """
    if _free_bytes(device) < room:
        torch.cuda.empty_cache()
    if _free_bytes(device) >= room:
        return None
    print(f"tidepool: the GPU is nearly full: NCCL gets {FEW_CHANNELS} channels", file=sys.stderr)  # noqa: T201
    return FEW_CHANNELS


def _free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return free


def _in_words(error: Exception) -> str:
    text = str(error)
    if "out of memory" in text or "Cuda failure 2" in text:
        return (
            f"{GPU_IS_FULL}: a communicator takes up to {COMMUNICATOR_BYTES / 1e9:.1f} GB beside torch's "
            f"memory. Use smaller micro-batches, or let the script leave room. NCCL says: {text}"
        )
    return text


def make_backend(store: Store, rank: int, size: int, channels: int | None = None) -> Any:
    """Return torch's ProcessGroupNCCL, not connected yet. Raises ValueError where no GPU is.

    channels: the most that it may have; ranks use as many as the one with the fewest.
    """
    from torch._C._distributed_c10d import ProcessGroupNCCL  # only torch for CUDA has it

    options = ProcessGroupNCCL.Options()
    options.config.blocking = 0  # an init or an operation that cannot go on can be aborted
    if channels is not None:
        options.config.max_ctas = channels
    options._timeout = timedelta(minutes=30)
    return ProcessGroupNCCL(store, rank, size, options)
