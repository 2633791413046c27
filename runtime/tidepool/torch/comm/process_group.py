"""The process group of a generation: collectives, and TCP connections for state. Any thread can break both off.

`make_group` is the only place that creates a process group: gloo always, and NCCL for tensors on GPUs where each rank
has a GPU to itself (`nccl.py`).

When a peer dies, gloo raises at once in the ring's neighbours, the other ranks hang until the timeout, and `abort()`
does nothing (torch 2.13, measured). shutdown(2) on the group's own TCP sockets releases every waiting thread within
milliseconds. `Group.break_off` does that; it finds the sockets by the listening ports of the members, which they
publish in the store. Once a group is formed, nobody else can connect to where its gloo listens: gloo knows no secret,
and ends the process when it has too many connections.

State does not travel over gloo: a gloo `send` that is posted at the moment in which its connection breaks is never
released (seen once among a few dozen deaths of a sender), and nothing reachable from Python can end it.
"""

import hmac
import logging
import select
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllreduceOptions,
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    ReduceOp,
    Store,
)

from tidepool.env import nccl_recovery
from tidepool.handshake import Gate, introduce
from tidepool.json_sockets import tcp_sockets
from tidepool.network_interfaces import with_port_hint
from tidepool.socket_filters import refuse_callers
from tidepool.torch.comm.child_process import maker
from tidepool.torch.comm.job_store import JobStore
from tidepool.torch.comm.meeting import BROADCASTS, ROUTES, Doors, Place, StorePlace, exchange_places, meet_at
from tidepool.torch.comm.nccl import (
    Nccl,
    NcclError,
    backend_for,
    device_name,
    start_nccl,
    takes_broadcasts,
)
from tidepool.torch.comm.shrinking import Parent, excluded_ranks, offer, shrunk

__all__ = ["CommunicationError", "Group", "make_group"]

logger = logging.getLogger(__name__)

#: The coordinator reports dead and stuck peers; this timeout only bounds unforeseen hangs.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)
#: Interval at which a waiting thread checks whether its group was broken off.
LOOK = timedelta(seconds=0.5)
#: A broken collective is released within milliseconds; one that is not released by then never will be.
RELEASE_SECONDS = 2.0
CONNECT_SECONDS = 10.0
#: Limit of the orderly end of a communicator in a process that leaves.
LEAVE_SECONDS = 5.0
#: Time for a peer that connects to hand state over to send the token of the group, in a group without a secret.
WORD_SECONDS = 10.0
#: Longest pause of a rank that waits for state between two looks whether its group was broken off.
_GATE_SECONDS = 0.2
#: Collectives that were never released, with the objects that they refer to: destroying those would block.
_entombed: list[Any] = []


class CommunicationError(RuntimeError):
    """A collective of this generation failed, or was broken off: recover, do not retry."""


@dataclass(frozen=True)
class _OnGpu:
    """A handle of an NCCL operation."""

    work: Any


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Group:
    """The process group of one generation, seen by one of its members."""

    generation: int
    rank: int
    size: int
    _backend: ProcessGroupGloo | None = None
    _nccl: Nccl | None = None
    #: Address and holder of each member's state transfer, by rank.
    _places: list[Place] = field(default_factory=list)
    _listener: socket.socket | None = None
    #: (address, port) where the members' gloo listens.
    _gloo_places: frozenset[tuple[str, int]] = frozenset()
    #: Connections that carry state; threads add to it.
    _transfers: list[socket.socket] = field(default_factory=list)
    _transfers_lock: threading.Lock = field(default_factory=threading.Lock)
    broken: bool = False
    #: Since when (monotonic) the training thread has waited for the other members; None: it does not.
    waiting_since: float | None = None
    #: Number and kind of the newest collective that the training thread has entered.
    entered: tuple[int, str] = (0, "")
    #: Why the group was broken off, if its members have come to different collectives.
    why_broken: str = ""
    #: Store in which the members have met.
    store: Store | None = None
    #: Secret of the attempt; "": a group off the cluster, or an attempt without one.
    _secret: str = field(default="", repr=False)
    #: This member's connection to the attempt's store, which keeps its keys there. Nothing in torch keeps it open.
    _connection: JobStore | None = None
    #: Words of a holder to joiners, about the state that they will receive; "": none.
    announcement: str = ""
    #: Names of the members, by rank; empty off the cluster.
    members: tuple[str, ...] = ()
    #: Whether its ranks send pieces of gradients to each other, as in exactness bitwise.
    exchanges: bool = False
    #: Not set while the state is broadcast: sums of tensors on GPUs come after it on all ranks.
    sums_may_begin: threading.Event = field(default_factory=_set)

    def enter(self, kind: str) -> None:
        """Note that this rank comes to a collective of all ranks. kind: in words that are the same on all of them."""
        self.entered = self.entered[0] + 1, kind

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the block as waiting for other members: a rank in it holds nobody up. Blocks may be in each other."""
        before = self.waiting_since
        self.waiting_since = before or time.monotonic()
        try:
            yield
        finally:
            self.waiting_since = before

    def all_reduce(self, tensor: torch.Tensor) -> Any:
        """Sum `tensor` over all ranks in place, in the background; returns a handle for `wait`."""
        if self.size == 1:  # no peer's death could break it: an announced recovery waits for the next step
            return None
        options = AllreduceOptions()
        options.reduceOp = ReduceOp(ReduceOp.SUM)
        return self._begin("allreduce", [tensor], options)

    def exchange(
        self, received: torch.Tensor, sent: torch.Tensor, received_sizes: list[int], sent_sizes: list[int]
    ) -> Any:
        """Send each rank its piece of `sent` and take one from each, in the background; returns a handle for `wait`.

        Both tensors are of one dimension, their pieces of the given sizes in the order of the ranks.
        """
        return self._begin("alltoall_base", received, sent, received_sizes, sent_sizes)

    def gather(self, gathered: torch.Tensor, piece: torch.Tensor) -> Any:
        """Gather every rank's `piece`, all of one size, in the order of the ranks; returns a handle for `wait`."""
        return self._begin("_allgather_base", gathered, piece)

    def _begin(self, operation: str, *arguments: Any) -> Any:
        if self.broken or self._backend is None:
            raise CommunicationError(self._broken_words)
        try:
            if self._nccl is not None and _on_gpu(arguments[0]):
                with self.waiting():  # for broadcasts; and a launch may connect to peers first
                    self.sums_may_begin.wait()
                    if self.broken:
                        raise CommunicationError(self._broken_words)
                    return _OnGpu(self._nccl.begin(operation, *arguments))
            return getattr(self._backend, operation)(*arguments)
        except RuntimeError as error:
            raise CommunicationError(str(error)) from error

    @property
    def broadcasts(self) -> bool:
        """Return whether tensors on GPUs are handed over by broadcasts."""
        return self._nccl is not None and all(BROADCASTS in place.token for place in self._places)

    def is_broadcast(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor that all holders have alike is handed over by broadcasts."""
        return self.broadcasts and _on_gpu(tensor)

    def begin_broadcast(self, tensor: torch.Tensor, root: int) -> Callable[[], None]:
        """Send a tensor on a GPU from rank `root` to all others, behind what this thread's stream has to do.

        Returns what waits until it is over. Both raise CommunicationError. Any thread may call it, one at a time.
        """
        if self.broken or self._nccl is None:
            raise CommunicationError(self._broken_words)
        options, nccl = BroadcastOptions(), self._nccl
        options.rootRank = root
        try:
            work = nccl.begin("broadcast", [tensor], options)
        except RuntimeError as error:
            raise CommunicationError(str(error)) from error

        def wait() -> None:
            try:
                nccl.wait(work)
            except NcclError as error:
                raise CommunicationError(f"generation {self.generation}: {error}") from error

        return wait

    def wait(self, work: Any) -> None:
        """Wait until an operation is over. Raises CommunicationError: leave its tensors alone until the next group."""
        if work is None:
            return
        with self.waiting():
            if not isinstance(work, _OnGpu):
                self._wait(work)
                return
            assert self._nccl is not None
            try:
                self._nccl.wait(work.work)
            except NcclError as error:
                raise CommunicationError(f"generation {self.generation}: {error}") from error

    def _wait(self, work: Any) -> None:
        broken_at: float | None = None
        while True:
            over = work.is_completed()  # checked first: it may succeed at the moment when a wait times out
            try:
                work.wait(LOOK)
                return
            except RuntimeError as error:
                if over:
                    raise CommunicationError(self.why_broken or str(error)) from error
            if not self.broken:
                continue
            broken_at = broken_at or time.monotonic()
            if time.monotonic() - broken_at > RELEASE_SECONDS:
                _entombed.append((self._backend, work))
                self._backend = None
                raise CommunicationError(self._broken_words)

    @property
    def _broken_words(self) -> str:
        return self.why_broken or f"generation {self.generation} was broken off"

    def connect(self, rank: int) -> socket.socket:
        """Open a connection to hand state to `rank`; the caller closes it.

        A member that is slow to take it is waited for as long as it takes, or until broken off.
        """
        place = self._places[rank]
        try:
            connection = self._transfer(socket.create_connection((place.address, place.taker), CONNECT_SECONDS))
            try:
                if self._secret:
                    introduce(connection, self._secret + place.token, "state", limit_seconds=None)
                else:
                    connection.sendall(place.token.encode())
            except OSError:
                connection.close()
                raise
        except OSError as error:
            raise CommunicationError(f"rank {rank} does not take the state: {error}") from error
        return connection

    @property
    def has_routes(self) -> bool:
        """Return whether all members hand state over along routes; those of former releases do not."""
        return all(place.token.endswith(ROUTES) for place in self._places)

    def accept(self) -> socket.socket:
        """Wait for a member that hands state to this one, as long as it takes or until broken off."""
        with closing(self.callers()) as callers:
            return next(callers)

    def callers(self, is_over: Callable[[], bool] = lambda: False) -> Generator[socket.socket]:
        """Yield connections of members that hand state to this one, until `is_over`. Raises CommunicationError.

        Other callers are refused: the port may have belonged to another process before.
        """
        if self._listener is None:
            raise CommunicationError("a group of one has nobody to receive from")
        if not self._secret:
            yield from self._callers_by_token(self._listener, is_over)
            return
        admitted: deque[socket.socket] = deque()
        with selectors.DefaultSelector() as selector:
            secret = self._secret + self._places[self.rank].token
            gate = Gate(self._listener, secret, ("state",), selector, lambda one, _: admitted.append(one))
            try:
                while not is_over():
                    while admitted:
                        yield self._transfer(admitted.popleft())
                    if self.broken or self._listener.fileno() < 0:
                        raise CommunicationError(f"generation {self.generation} was broken off")
                    try:
                        for key, _ in selector.select(_GATE_SECONDS):
                            key.data()
                    except OSError as error:
                        raise CommunicationError(f"generation {self.generation} was broken off") from error
                    gate.turn()
            finally:
                gate.close()
                for other in admitted:
                    other.close()

    def _callers_by_token(self, listener: socket.socket, is_over: Callable[[], bool]) -> Generator[socket.socket]:
        """Yield callers as under former releases, whose ranks may take part in an attempt without a secret."""
        while not is_over():
            try:
                if not select.select([listener], [], [], _GATE_SECONDS)[0]:
                    continue
                connection, _ = listener.accept()
            except (OSError, ValueError) as error:
                raise CommunicationError(f"generation {self.generation} was broken off") from error
            connection = self._transfer(connection)
            if _sends_token(connection, self._places[self.rank].token.encode()):
                yield connection
            else:
                connection.close()

    def break_off(self) -> None:
        """Release every thread that waits for this group's members; they raise CommunicationError. Thread-safe."""
        with self._transfers_lock:
            self.broken = True
            transfers = [*self._transfers]
        self.sums_may_begin.set()
        if self._nccl is not None:
            self._nccl.break_off()
        for transfer in [self._listener, *transfers]:
            if transfer is not None:
                with suppress(OSError):  # not connected, or closed already
                    transfer.shutdown(socket.SHUT_RDWR)
        for _, connection in tcp_sockets():
            _shut_down_if_ours(connection, self._gloo_places)

    def leave(self) -> None:
        """Let the last data reach the peers, for a while, before this process ends. No thread may be waiting in it."""
        if self._nccl is not None:
            thread = threading.Thread(target=self._nccl.drop, name="leave-nccl", daemon=True)
            thread.start()
            thread.join(LEAVE_SECONDS)
            self._nccl = None

    def drop(self, *, at_once: bool = False) -> None:
        """Destroy the group, most often in the background: it takes 20 to 40 ms. No thread may be waiting in it."""
        if self._listener is not None:
            self._listener.close()
        if self._backend is None:
            return
        holder = [self._backend]
        self._backend = None

        def release() -> None:
            if self._nccl is not None:
                self._nccl.drop()
            holder.clear()
            if self._connection is not None:
                self._connection.close()

        if at_once:
            release()
        else:
            threading.Thread(target=release, name=f"drop-generation-{self.generation}", daemon=True).start()

    def _transfer(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._transfers_lock:
            self._transfers = [*(one for one in self._transfers if one.fileno() >= 0), connection]
            broken = self.broken
        if broken:  # between the connection and its registration
            connection.close()
            raise CommunicationError(f"generation {self.generation} was broken off")
        return connection


def make_group(
    *,
    address: str,
    store_address: str,
    store_port: int,
    prefix: str,
    generation: int,
    rank: int,
    size: int,
    device: torch.device,
    timeout_seconds: float = 30.0,
    secret: str = "",
    announcement: str = "",
    members: Sequence[str] = (),
    previous: Group | None = None,
    exchanges: bool = False,
) -> Group:
    """Connect to the other members of a generation. Raises CommunicationError when they do not come in time.

    A group of one has no sockets. `prefix` must be unique to the generation: TCPStores are never cleaned.
    `device` is the model's. `secret`: the attempt's; "": a TCPStore listens at the store's address. announcement: what
    this member tells all others; one at most tells something. members: their names, by rank. previous: the group that
    was broken off by a death; nothing writes into the tensors of its operations any more when this returns.
    """
    group = Group(generation, rank, size, _secret=secret, members=tuple(members), exchanges=exchanges)
    if size == 1:
        _end_operations(previous)
        return group
    place = StorePlace(store_address, store_port, secret, prefix)
    with ExitStack() as opened:
        try:
            _connect(group, opened, place, address, device, timeout_seconds, announcement, previous)
        except (RuntimeError, OSError) as error:
            raise CommunicationError(with_port_hint(str(error))) from error
        opened.pop_all()
    return group


def _connect(
    group: Group,
    opened: ExitStack,
    place: StorePlace,
    address: str,
    device: torch.device,
    timeout_seconds: float,
    announcement: str,
    previous: Group | None,
) -> None:
    """Connect a group of several members. opened: takes what is to be closed if the group does not come about."""
    rank, size, timeout = group.rank, group.size, timedelta(seconds=timeout_seconds)
    group.store, group._connection = store, _ = meet_at(place, timeout, opened)
    doors = Doors(address, opened)
    if announcement:
        store.set("announcement", announcement)
    parent = _parent(previous, group.members)
    offer(store, rank, parent)
    group._places = exchange_places(store, rank, size, doors.words(device_name(device), broadcasts=takes_broadcasts()))
    group.announcement = store.get("announcement").decode() if store.check(["announcement"]) else ""
    group._backend = _gloo(PrefixStore("gloo", store), rank, size, doors, timeout)
    if backend_for([member.device for member in group._places]) == "nccl":
        group._nccl = shrunk(store, rank, size, parent) if parent else None
        if group._nccl is None:
            _end_operations(previous)
            make = maker(place, timeout_seconds) if nccl_recovery() == "process" else None
            group._nccl = start_nccl(
                PrefixStore("nccl", store), rank, size, device, timeout_seconds, make, exchanges=group.exchanges
            )
    doors.gloo.close()
    group._listener = doors.state
    group._gloo_places = frozenset((member.address, member.gloo) for member in group._places)


def _parent(previous: Group | None, members: Sequence[str]) -> Parent | None:
    """Return the communicator of the group before, and which of its ranks have died."""
    if previous is None or previous._nccl is None:
        return None
    return Parent(previous._nccl, previous.generation, excluded_ranks(previous.members, members))


def _end_operations(previous: Group | None) -> None:
    if previous is not None and previous._nccl is not None:
        previous._nccl.end()


def _gloo(store: Store, rank: int, size: int, doors: Doors, timeout: timedelta) -> ProcessGroupGloo:
    """Return gloo's group, to which nobody else can connect any more. timeout: of its making."""
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = timeout
    options._devices = [doors.device]
    backend = ProcessGroupGloo(store, rank, size, options)
    refuse_callers(doors.gloo)  # all members are connected
    backend._set_default_timeout(COLLECTIVE_TIMEOUT)
    return backend


def _on_gpu(tensors: torch.Tensor | list[torch.Tensor]) -> bool:
    return tensors.is_cuda if isinstance(tensors, torch.Tensor) else tensors[0].is_cuda


def _sends_token(connection: socket.socket, token: bytes) -> bool:
    received = b""
    connection.settimeout(WORD_SECONDS)
    try:
        while len(received) < len(token) and (more := connection.recv(len(token) - len(received))):
            received += more
        connection.settimeout(None)
    except OSError:  # the peer sent nothing, or has closed
        return False
    return hmac.compare_digest(received, token)


def _shut_down_if_ours(connection: socket.socket, places: frozenset[tuple[str, int]]) -> None:
    """Shut a connection down if either end is where a member of the group listens."""
    with suppress(OSError):  # a listening socket has no peer; a dead connection is what we want
        if {connection.getsockname()[:2], connection.getpeername()[:2]} & places:
            connection.shutdown(socket.SHUT_RDWR)
