"""NCCL in a process beside the rank, which holds no state: what ends it does not end the rank.

An error that sticks to a CUDA context, as after the death of a rank whose memory was mapped, ends the child alone, and
to break an operation off is to kill the child, which never hangs. The child gets the rank's tensors by CUDA's handles
for other processes, so nothing is copied. It costs a second CUDA context on the GPU, a message each way for an
operation. Never run on a GPU.

Importing torch takes seconds, and a process with a CUDA context cannot be forked. So a rank forks a nursery as it
begins, before its script, and that one forks the children. `ChildBackend` has the methods of torch's ProcessGroupNCCL
that a group calls. `child.py` is the process.
"""

import json
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing  # registers how tensors are sent
from torch._C._distributed_c10d import Store

from tidepool.procfs import set_title
from tidepool.torch.comm.child import Start, serve
from tidepool.torch.comm.meeting import StorePlace

__all__ = ["ChildBackend", "maker", "open_nursery"]

#: Function that makes the communicator in the child, as `module:name`.
FACTORY = "tidepool.torch.comm.nccl:make_backend"
#: Time for a child to leave its communicator in order.
_LEAVE_SECONDS = 10.0
#: First byte of the nursery's last message, which says why it ends; and the most bytes of its text.
_FAILED = b"!"
_MOST_BYTES = 500
#: Interval of looking whether the rank is alive.
_RANK_SECONDS = 1.0
_COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tidepool.torch.comm import child; child.serve(int(sys.argv[2]))"
)


class _Child:
    """A process that waits for its start."""

    def __init__(self) -> None:
        own, other = socket.socketpair()
        with other:
            self.pid = _nursery.start(other) if _nursery is not None else _spawned(other)
        #: Descriptor of the process; None where it had ended before.
        self._handle = _handle_of(self.pid)
        if self._handle is not None:
            weakref.finalize(self, os.close, self._handle)
        self.connection = Connection(own.detach())

    def send(self, message: object) -> None:
        """Raises OSError when the child has ended."""
        self.connection.send_bytes(ForkingPickler.dumps(message))

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the process is gone, and its kernels with it; return whether it is."""
        return self._handle is None or bool(select.select([self._handle], [], [], seconds)[0])

    def kill(self) -> None:
        """Return when the process is gone, and its kernels with it."""
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self.wait()


class Nursery:
    """A process that forks children, which then have torch loaded at once. Made before the rank has threads or CUDA."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _nurse(theirs)
            except BaseException as error:
                with suppress(OSError):  # the rank has ended
                    theirs.send(_FAILED + f"{type(error).__name__}: {error}".encode()[:_MOST_BYTES])
                traceback.print_exc()
            else:
                os._exit(0)
            finally:  # nothing of the rank's may run a second time
                os._exit(1)
        theirs.close()

    def start(self, connection: socket.socket) -> int:
        """Fork a child with this connection; return its process id. Raises RuntimeError when the nursery has ended."""
        with self._lock:
            try:
                with suppress(BrokenPipeError):  # it may have told why before it ended
                    socket.send_fds(self._connection, [b"1"], [connection.fileno()])
                answer = self._connection.recv(len(_FAILED) + _MOST_BYTES)
            except OSError as error:
                raise RuntimeError(f"the process that starts NCCL's has ended: {error}") from error
        if not answer.isdigit():
            why = answer.removeprefix(_FAILED).decode(errors="replace") or "it was killed"
            raise RuntimeError(f"the process that starts NCCL's has ended: {why}")
        return int(answer)

    def close(self) -> None:
        """End the nursery; its children stay."""
        self._connection.close()


_nursery: Nursery | None = None


def open_nursery() -> None:
    """Have this process's children forked. It must have a single thread, and no CUDA."""
    global _nursery
    _nursery = Nursery()


def _nurse(connection: socket.socket) -> None:
    """Fork children until the rank ends."""
    rank = os.getppid()
    _close_all_but(connection.fileno())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    set_title(f"tidepool nccl: waits for rank {rank}")
    while os.getppid() == rank:
        if not select.select([connection], [], [], _RANK_SECONDS)[0]:
            continue
        word, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if not word:
            break
        pid = os.fork()
        if pid == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            serve(descriptors[0])
        os.close(descriptors[0])
        connection.send(str(pid).encode())


def _close_all_but(kept: int) -> None:
    """Close what the rank has open, such as its connection to its shim, which would not see its end."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _spawned(connection: socket.socket) -> int:
    """Start a child in a process without a nursery; it has to import torch first."""
    command = [sys.executable, "-c", _COMMAND, json.dumps(sys.path), str(connection.fileno())]
    process = subprocess.Popen(command, pass_fds=[connection.fileno()], stdin=subprocess.DEVNULL)
    threading.Thread(target=process.wait, name="reap-nccl", daemon=True).start()
    return process.pid


def _handle_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


@dataclass
class _ChildWork:
    """An operation in the child."""

    number: int
    backend: "ChildBackend"
    #: Kept until the operation is over: the child waits for it.
    event: Any

    def is_completed(self) -> bool:
        return self.backend.result_of(self.number) is not None

    def exception(self) -> Exception | None:
        error = self.backend.result_of(self.number)
        return RuntimeError(error) if error else None

    def wait(self) -> None:
        """Nothing is left to wait for: the child tells of an operation when it is over on the device."""


class ChildBackend:
    """A communicator in a child. Any thread may call `abort`."""

    supports_shrinking = False

    def __init__(self, place: StorePlace, rank: int, size: int, timeout_seconds: float) -> None:
        self._described = place, rank, size
        self._timeout_seconds = timeout_seconds
        self._child = _Child()
        self._lock = threading.Lock()
        self._number = 0
        #: Error of each operation that is over; "": it succeeded.
        self._results: dict[int, str] = {}
        self._ended = ""
        self._connected = threading.Event()
        self._refusal = ""
        threading.Thread(target=self._read, name="nccl-child", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Wait for the other ranks. Raises RuntimeError."""
        authkey = bytes(multiprocessing.current_process().authkey)
        self._send(Start(*self._described, str(device), self._timeout_seconds, FACTORY, sys.path, authkey))
        self._connected.wait()
        if self._refusal or self._ended:
            raise RuntimeError(self._refusal or self._ended)

    def _is_initialized(self) -> bool:
        return self._connected.is_set()

    def allreduce(self, tensors: Sequence[torch.Tensor], options: object) -> _ChildWork:
        """Sum; a group knows no other operation."""
        return self._begin("allreduce", list(tensors))

    def alltoall_base(self, *arguments: Any) -> _ChildWork:
        return self._begin("alltoall_base", *arguments)

    def _allgather_base(self, *arguments: Any) -> _ChildWork:
        return self._begin("_allgather_base", *arguments)

    def abort(self) -> None:
        self._child.kill()

    def shutdown(self) -> None:
        """Let the child leave in order, or kill it."""
        with suppress(RuntimeError):  # the child has ended
            self._send(None)
        if not self._child.wait(_LEAVE_SECONDS):
            self._child.kill()

    def result_of(self, number: int) -> str | None:
        """Return the error of an operation; "": it succeeded; None: it is not over."""
        return self._results.get(number, self._ended or None)

    def _begin(self, operation: str, *arguments: Any) -> _ChildWork:
        event = _event_after(arguments)
        with self._lock:
            self._number += 1
            number = self._number
            handle = event.ipc_handle() if event is not None else None
            self._send((number, operation, _detached(arguments), handle))
        return _ChildWork(number, self, event)

    def _send(self, message: object) -> None:
        try:
            self._child.send(message)
        except OSError as error:
            raise RuntimeError(f"NCCL's process has ended: {error}") from error

    def _read(self) -> None:
        """Take what the child tells, until it ends."""
        try:
            while True:
                number, error = self._child.connection.recv()
                if number == 0:
                    self._refusal = error
                    self._connected.set()
                else:
                    self._results[number] = error
        except (EOFError, OSError):
            self._ended = f"NCCL's process {self.pid} has ended"
            self._connected.set()


def maker(place: StorePlace, timeout_seconds: float) -> Any:
    """Return a function that makes a backend in a child. place: where the child meets the others."""

    def make(store: Store, rank: int, size: int) -> ChildBackend:
        return ChildBackend(place, rank, size, timeout_seconds)

    return make


def _event_after(arguments: Sequence[Any]) -> Any:
    """Return an event behind what this thread has launched; None for tensors in main memory."""
    first = arguments[0][0] if isinstance(arguments[0], list) else arguments[0]
    if not first.is_cuda:
        return None
    event = torch.cuda.Event(interprocess=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(first.device))
    return event


def _detached(value: Any) -> Any:
    """Return the arguments without what gradients need, which no other process can have."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    return type(value)(map(_detached, value)) if isinstance(value, list | tuple) else value
