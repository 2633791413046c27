"""The process beside a rank that has its NCCL: see `child_process.py`.

Three threads: one reads, and ends the process with the rank; one makes the communicator and launches the operations;
one waits for them, in their order, and tells the rank.
"""

import importlib
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import torch
import torch.multiprocessing
from torch._C._distributed_c10d import AllreduceOptions, PrefixStore, ReduceOp

from tidepool.env import prepare_nccl
from tidepool.procfs import set_title
from tidepool.torch.comm.meeting import StorePlace, meet_at

__all__ = ["Start", "serve", "sum_options"]

_LOOK_SECONDS = 0.00005
#: Interval of looking whether the rank is alive. Its own processes may keep the connection open.
_RANK_SECONDS = 1.0
#: Operations whose tensors stay mapped: the buckets of a step come again, and mapping takes long.
_MAPPED = 32


@dataclass(frozen=True)
class Start:
    """First message to a child. It travels through the connection, because it holds a secret."""

    place: StorePlace
    rank: int
    size: int
    device: str
    timeout_seconds: float
    factory: str
    #: Import path of the rank.
    path: list[str]
    #: Key of the connections by which Python passes descriptors on.
    authkey: bytes = field(repr=False)


def serve(descriptor: int) -> NoReturn:
    """Serve the rank at the other end of this connection until it has no more to do."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the rank says when it ends
    set_title(f"tidepool nccl: rank {os.getppid()}")
    torch.set_num_threads(1)
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        _Operations(connection, inbox).run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _read(connection: Connection, inbox: "queue.SimpleQueue[bytes]") -> None:
    rank = os.getppid()
    try:
        while True:
            while not connection.poll(_RANK_SECONDS):
                if os.getppid() != rank:
                    os._exit(1)
            inbox.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(1)


class _Operations:
    def __init__(self, connection: Connection, inbox: "queue.SimpleQueue[bytes]") -> None:
        self._connection, self._inbox = connection, inbox
        self._send_lock = threading.Lock()
        self._launched: queue.SimpleQueue[tuple[int, Any, Any] | None] = queue.SimpleQueue()

    def run(self) -> None:
        """Serve one communicator until the rank says that it leaves."""
        start: Start = pickle.loads(self._inbox.get())  # noqa: S301  # the rank's own
        sys.path[:] = start.path
        multiprocessing.current_process().authkey = start.authkey
        with ExitStack() as opened:
            try:
                backend = _connected(start, opened)
            except Exception as error:  # the rank reports it
                self._tell(0, str(error) or type(error).__name__)
                return
            self._tell(0, "")
            waiter = threading.Thread(target=self._wait, daemon=True)
            waiter.start()
            while (message := pickle.loads(self._inbox.get())) is not None:  # noqa: S301
                self._launch(backend, *message)
            self._launched.put(None)
            waiter.join()
            backend.shutdown()

    def _launch(self, backend: Any, number: int, operation: str, arguments: Any, handle: bytes | None) -> None:
        try:
            if handle is not None:
                device = torch.device("cuda", torch.cuda.current_device())
                torch.cuda.Event.from_ipc_handle(device, handle).wait()  # type: ignore[no-untyped-call]
            more = [sum_options()] if operation == "allreduce" else []
            work = getattr(backend, operation)(*arguments, *more)
        except RuntimeError as error:
            self._tell(number, str(error))
            return
        self._launched.put((number, work, arguments))

    def _wait(self) -> None:
        mapped: deque[Any] = deque(maxlen=_MAPPED)
        while (launched := self._launched.get()) is not None:
            number, work, arguments = launched
            try:
                while not work.is_completed():
                    time.sleep(_LOOK_SECONDS)
                error = work.exception()
                if error is None:
                    work.wait()
            except RuntimeError as failure:
                error = failure
            mapped.append(arguments)
            self._tell(number, "" if error is None else str(error) or type(error).__name__)

    def _tell(self, number: int, error: str) -> None:
        with self._send_lock:
            self._connection.send((number, error))


def _connected(start: Start, opened: ExitStack) -> Any:
    """Make the communicator, and wait for the other ranks."""
    prepare_nccl(start.timeout_seconds)
    device = torch.device(start.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    module, _, name = start.factory.partition(":")
    store, _ = meet_at(start.place, timedelta(seconds=start.timeout_seconds), opened)
    backend = getattr(importlib.import_module(module), name)(PrefixStore("nccl", store), start.rank, start.size)
    backend.eager_connect_single_device(device)
    if not backend._is_initialized():  # a torch whose call does not wait
        backend._comm_ptr()
    return backend


def sum_options() -> AllreduceOptions:
    options = AllreduceOptions()
    options.reduceOp = ReduceOp(ReduceOp.SUM)
    return options
