"""Hand-over of the state by several holders at once, along the routes of `routes.py`.

What a sender writes on the connection of a route: the route's number as one byte; a header (JSON) with the digest by
which holders are compared, and on the first route the structure, types and shapes; the bytes of the pieces in order;
and one byte that confirms that nothing has changed on the way. A joiner connects to the ones after it before anything
comes, and passes on what it receives piece by piece.

Where the group has a communicator on GPUs, tensors there go by its broadcasts (`broadcasts.py`), and only the others
take the routes.
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import torch

from tidepool.faults import fault
from tidepool.refusal import Refusal
from tidepool.torch.comm.broadcasts import Broadcast, broadcasts_of, hand_out, take_in
from tidepool.torch.comm.process_group import CommunicationError, Group
from tidepool.torch.comm.routes import Piece, Route, fingerprint, names_of, routes_of, shares
from tidepool.torch.comm.staging import Ring, outgoing, size_of
from tidepool.torch.comm.state_transfer import WHOLE, fill, spec_of, use_live_tensors
from tidepool.torch.state.training_state import Snapshot, TrainingState

__all__ = ["Room", "announced", "receive_shares", "room_for", "send_share"]

#: Places for tensors of the coming state: number -> (what `_spec` returns, the tensor).
Room = dict[int, tuple[list[Any], torch.Tensor]]


def send_share(
    group: Group, snapshot: Snapshot, joiners: Sequence[int], member_id: str = "", ring: Ring | None = None
) -> None:
    """Send this holder's share of the state, if it has one. All ranks that are not among `joiners` are holders.

    Raises CommunicationError; RuntimeError if the state was changed while it was sent: nobody uses it then.
    """
    routes, ring = _routes(group, joiners), ring or Ring(snapshot.mark)
    route = next((route for route in routes if route.holder == group.rank), None)
    pairs = zip(snapshot.tensors, snapshot.is_shared, strict=True)
    are_broadcast = [shared and group.is_broadcast(tensor) for tensor, shared in pairs]
    sizes = [*map(size_of, snapshot.tensors)]
    planned = _planned(sizes, are_broadcast, routes)
    if route is None:
        hand_out(group, snapshot.tensors, planned, ring, member_id)
        return
    specs = [_spec(tensor) for tensor in snapshot.tensors]
    header: dict[str, Any] = {"digest": fingerprint(snapshot.structure, specs, snapshot.is_shared)}
    if route.number == 0:
        header |= {"structure": snapshot.structure, "tensors": specs, "shared": snapshot.is_shared}
        header["broadcast"] = are_broadcast
    pieces = shares(_rest(sizes, are_broadcast), snapshot.is_shared, len(routes))[route.number]
    to = route.joiners[0]
    with _connected(group, route) as connection:
        try:
            connection.sendall(_framed(json.dumps(header).encode()))
            for number, view in enumerate(outgoing(snapshot.tensors, pieces, ring)):
                if number == len(pieces) // 2:
                    fault("transfer", member_id)
                connection.sendall(view)
            hand_out(group, snapshot.tensors, planned, ring, member_id)
            snapshot.check()
            connection.sendall(WHOLE)
        except OSError as error:
            raise CommunicationError(f"rank {to} went away while it received the state: {error}") from error


def receive_shares(
    group: Group,
    state: TrainingState,
    joiners: Sequence[int],
    *,
    in_place: bool,
    member_id: str = "",
    ring: Ring | None = None,
    room: Room | None = None,
) -> None:
    """Take the state from the holders, and pass it on to the joiners that come after this one.

    in_place: straight into the model, which is spoilt if a sender dies meanwhile. Raises CommunicationError, and
    Refusal if the holders do not have the same state. room: as `room_for` has made it.
    """
    receipt = _Receipt(group, _routes(group, joiners), state, in_place, member_id, ring, room or {})
    state.load(*receipt.run())


def announced(structure: Any, tensors: Sequence[torch.Tensor]) -> str:
    """Return what joiners are told ahead of the state: types and shapes of the tensors of optimizers, as JSON."""
    names = names_of(structure)
    own = {number: _spec(tensor) for number, tensor in enumerate(tensors) if names[number].startswith("/optimizers/")}
    return json.dumps(own)


def room_for(announcement: str, device: torch.device) -> Room:
    """Return places for the tensors that are announced. The first write to new memory is slow, and made here.

    None at all where memory is short: then whoever receives the state meets the error.
    """
    specs = json.loads(announcement or "{}")
    try:
        return {int(number): (spec, _empty(spec, device).zero_()) for number, spec in specs.items()}
    except torch.OutOfMemoryError:
        return {}


@dataclass(frozen=True)
class _Layout:
    """The state as the header of the first route describes it, with places for all of it."""

    digest: str
    structure: Any
    tensors: list[torch.Tensor]
    #: Pieces of each route.
    pieces: list[list[Piece]]
    broadcasts: list[Broadcast]


class _Receipt:
    """One joiner's part in a hand-over: a thread for each route."""

    def __init__(
        self,
        group: Group,
        routes: list[Route],
        state: TrainingState,
        in_place: bool,
        member_id: str,
        ring: Ring | None,
        room: Room,
    ) -> None:
        self._group, self._routes, self._state, self._in_place = group, routes, state, in_place
        self._member_id, self._ring = member_id, ring
        self._changed = threading.Condition()
        self._arrived: dict[int, socket.socket] = {}
        self._layout: _Layout | None = None
        #: Number of routes whose holder has the state that is laid out.
        self._alike = 0
        self._error: BaseException | None = None
        self._open: list[socket.socket] = []
        self._room = room

    @property
    def _device(self) -> torch.device:
        return next(self._state.model.parameters()).device

    def run(self) -> tuple[Any, list[torch.Tensor]]:
        """Return structure and tensors once all routes are complete."""
        names = [f"receive-{self._group.generation}-{route.number}" for route in self._routes]
        threads = [
            threading.Thread(target=self._guarded, args=(route,), name=name, daemon=True)
            for route, name in zip(self._routes, names, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            self._accept_all()
            self._take_broadcasts()
        except BaseException as error:
            self._fail(error)
        for thread in threads:
            thread.join()
        for connection in self._open:
            connection.close()
        if self._error is not None:
            raise self._error
        assert self._layout is not None
        return self._layout.structure, self._layout.tensors

    def _accept_all(self) -> None:
        with closing(self._group.callers(lambda: self._error is not None)) as callers:
            for _ in self._routes:
                connection = next(callers, None)
                if connection is None:  # a route has failed
                    return
                self._note(connection)
                number = bytearray(1)
                fill(connection, memoryview(number))
                with self._changed:
                    self._arrived[number[0]] = connection
                    self._changed.notify_all()

    def _take_broadcasts(self) -> None:
        """Receive what is broadcast, once all holders are known to have the same to broadcast."""
        if self._group.broadcasts and self._error is None:
            layout = self._awaited(lambda: self._layout if self._alike == len(self._routes) else None)
            take_in(self._group, layout.tensors, layout.broadcasts, self._member_id)

    def _guarded(self, route: Route) -> None:
        try:
            self._receive(route)
        except BaseException as error:
            self._fail(error)

    def _receive(self, route: Route) -> None:
        following = route.after(self._group.rank) is not None
        with _Onward(self._note(_connected(self._group, route)) if following else None) as onward:
            connection = self._awaited(lambda: self._arrived.get(route.number))
            length = bytearray(8)
            fill(connection, memoryview(length))
            header = bytearray(int.from_bytes(length, "big"))
            fill(connection, memoryview(header))
            onward.send(_framed(header))
            values = json.loads(header)
            if route.number == 0:
                self._lay_out(values)
            layout = self._awaited(lambda: self._layout)
            if values["digest"] != layout.digest:
                raise Refusal(
                    "processes of this training have different parameters or optimizer states, by names, types or "
                    "shapes: what a script makes while it trains has to be made in the same order in all processes"
                )
            with self._changed:
                self._alike += 1
                self._changed.notify_all()
            self._receive_pieces(route, layout, connection, onward)

    def _receive_pieces(self, route: Route, layout: _Layout, connection: socket.socket, onward: "_Onward") -> None:
        ring, pieces = self._ring or Ring(), layout.pieces[route.number]
        for number, piece in enumerate(pieces):
            if route.number == 0 and number == len(pieces) // 2:
                fault("transfer", self._member_id)
            place = layout.tensors[piece.tensor].detach().view(-1).view(torch.uint8)[piece.start : piece.end]
            if ring.stages(place):
                onward.wait(1)  # the buffer that comes next holds the piece before the last one
            memory, settle = ring.room(place)
            fill(connection, memory)
            settle()
            onward.send(memory)
        whole = bytearray(len(WHOLE))
        fill(connection, memoryview(whole))
        ring.settle()
        onward.send(whole)
        onward.wait(0)

    def _lay_out(self, values: dict[str, Any]) -> None:
        tensors = [
            place[1] if (place := self._room.get(number)) and place[0] == spec else _empty(spec, self._device)
            for number, spec in enumerate(values["tensors"])
        ]
        self._room = {}
        if self._in_place:
            use_live_tensors(self._state.model, values["structure"], tensors)
        sizes, are_broadcast = [*map(size_of, tensors)], values.get("broadcast") or [False] * len(tensors)
        pieces = shares(_rest(sizes, are_broadcast), values["shared"], len(self._routes))
        planned = _planned(sizes, are_broadcast, self._routes)
        with self._changed:
            self._layout = _Layout(values["digest"], values["structure"], tensors, pieces, planned)
            self._changed.notify_all()

    def _awaited(self, look: Any) -> Any:
        """Return what `look` returns as soon as it is something. Raises CommunicationError once a route has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or look() is not None)
            if self._error is not None:
                raise CommunicationError("another part of the state was not received to its end")
            return look()

    def _note(self, connection: socket.socket) -> socket.socket:
        """Keep the connection, which a failure of any route shuts down."""
        with self._changed:
            self._open.append(connection)
            failed = self._error is not None
        if failed:
            _shut(connection)
        return connection

    def _fail(self, error: BaseException) -> None:
        """Keep the first error, and release the threads of the other routes."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
            connections = [*self._open]
        for connection in connections:
            _shut(connection)
        if self._group.broadcasts:  # nothing else ends one that has begun
            self._group.break_off()


class _Onward:
    """A thread that sends to the next joiner what this one has received, while more of it comes. None: nobody follows.

    Methods raise CommunicationError once the next one has gone.
    """

    def __init__(self, connection: socket.socket | None) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        #: Contents that are not sent yet, the one under way included.
        self._left: deque[bytes | bytearray | memoryview] = deque()
        self._is_over = False
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="pass-on", daemon=True)

    def __enter__(self) -> "_Onward":
        if self._connection is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def send(self, content: bytes | bytearray | memoryview) -> None:
        """Send this after what was given before. It must not change until it is sent."""
        if self._connection is not None:
            with self._changed:
                self._left.append(content)
                self._changed.notify_all()
            self._check()

    def wait(self, most: int) -> None:
        """Wait until at most so many contents are left."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or len(self._left) <= most)
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise CommunicationError(f"the next rank went away while it received the state: {self._error}")

    def _run(self) -> None:
        assert self._connection is not None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._left or self._is_over)
                if self._is_over:
                    return
                content = self._left[0]
            try:
                self._connection.sendall(content)
            except OSError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._left.popleft()
                self._changed.notify_all()


def _spec(tensor: torch.Tensor) -> list[Any]:
    """Return type and shape, and whether it is on a device."""
    return [*spec_of(tensor), tensor.device.type != "cpu"]


def _empty(spec: list[Any], device: torch.device) -> torch.Tensor:
    dtype, shape, on_device = spec
    return torch.empty(shape, dtype=getattr(torch, dtype), device=device if on_device else "cpu")


def _routes(group: Group, joiners: Sequence[int]) -> list[Route]:
    return routes_of([rank for rank in range(group.size) if rank not in joiners], joiners)


def _connected(group: Group, route: Route) -> socket.socket:
    """Return a connection to the next rank of the route, which has been told the route's number."""
    to = route.after(group.rank)
    assert to is not None
    connection = group.connect(to)
    try:
        connection.sendall(bytes([route.number]))
    except OSError as error:
        connection.close()
        raise CommunicationError(f"rank {to} does not take the state: {error}") from error
    return connection


def _planned(sizes: Sequence[int], are_broadcast: Sequence[bool], routes: Sequence[Route]) -> list[Broadcast]:
    pairs = zip(sizes, are_broadcast, strict=True)
    return broadcasts_of([size if chosen else 0 for size, chosen in pairs], routes)


def _rest(sizes: Sequence[int], are_broadcast: Sequence[bool]) -> list[int]:
    """Return the sizes of what takes the routes; 0 for what is broadcast."""
    return [0 if chosen else size for size, chosen in zip(sizes, are_broadcast, strict=True)]


def _framed(header: bytes | bytearray) -> bytes:
    return len(header).to_bytes(8, "big") + header


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
