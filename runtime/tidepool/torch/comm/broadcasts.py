"""The state on GPUs by broadcasts of the new group's communicator, while the holders compute the coming step.

All ranks of the group begin the same broadcasts in the same order, and sums only after them, so no two operations can
wait for each other. Each holder is the root for its share of the bytes. What is on its way is in two buffers on the
device: an operation that a death leaves unfinished writes into nothing else. Never run on a GPU.

A process in which a broadcast has failed hands state over by sockets from then on, and so does each group with it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tidepool.faults import fault
from tidepool.torch.comm.nccl import refuse_broadcasts
from tidepool.torch.comm.process_group import Group
from tidepool.torch.comm.routes import Piece, Route, shares
from tidepool.torch.comm.staging import Ring, bytes_of

__all__ = ["Broadcast", "broadcasts_of", "hand_out", "take_in"]

#: Size of a buffer. Large broadcasts use the whole bandwidth of a link.
BUFFER_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Broadcast:
    """Pieces of tensors that rank `root` sends to all others, packed one behind the other."""

    root: int
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return sum(piece.end - piece.start for piece in self.pieces)


def broadcasts_of(sizes: Sequence[int], routes: Sequence[Route]) -> list[Broadcast]:
    """Return the broadcasts in their order, the same on all ranks.

    sizes: of the tensors, in bytes; 0 for one that goes another way.
    """
    found: list[Broadcast] = []
    by_route = shares(sizes, [True] * len(sizes), len(routes), BUFFER_BYTES)
    for route, pieces in zip(routes, by_route, strict=True):
        packed: list[Piece] = []
        for piece in pieces:
            if Broadcast(route.holder, (*packed, piece)).size > BUFFER_BYTES:
                found.append(Broadcast(route.holder, tuple(packed)))
                packed = []
            packed.append(piece)
        found += [Broadcast(route.holder, tuple(packed))] if packed else []
    return found


def hand_out(
    group: Group, tensors: Sequence[torch.Tensor], planned: Sequence[Broadcast], ring: Ring, member_id: str = ""
) -> None:
    """Take part as a holder, on the ring's stream beside the training's. Raises CommunicationError."""
    if not planned:
        return
    first = tensors[planned[0].pieces[0].tensor]

    def fill(broadcast: Broadcast, memory: torch.Tensor) -> None:
        if broadcast.root == group.rank:
            for piece, place in _places(broadcast, memory):
                place.copy_(bytes_of(tensors[piece.tensor])[piece.start : piece.end])

    with ring.beside(first):
        _run(group, planned, first.device, fill, lambda broadcast, memory: None, member_id)


def take_in(group: Group, tensors: Sequence[torch.Tensor], planned: Sequence[Broadcast], member_id: str = "") -> None:
    """Receive the tensors' bytes as a joiner. Raises CommunicationError."""
    if not planned:
        return

    def empty(broadcast: Broadcast, memory: torch.Tensor) -> None:
        for piece, place in _places(broadcast, memory):
            tensors[piece.tensor].detach().view(-1).view(torch.uint8)[piece.start : piece.end].copy_(place)

    device = tensors[planned[0].pieces[0].tensor].device
    _run(group, planned, device, lambda broadcast, memory: None, empty, member_id)


def _run(
    group: Group,
    planned: Sequence[Broadcast],
    device: torch.device,
    fill: Callable[[Broadcast, torch.Tensor], None],
    empty: Callable[[Broadcast, torch.Tensor], None],
    member_id: str,
) -> None:
    """Run the broadcasts, two at a time. fill, empty: called with a broadcast's memory before and after it."""
    under_way: deque[Callable[[], None]] = deque()
    with _sockets_after_a_failure(), torch.no_grad():
        most = max(broadcast.size for broadcast in planned)
        buffers = [torch.empty(most, dtype=torch.uint8, device=device) for _ in planned[:2]]
        for number, broadcast in enumerate(planned):
            if number == len(planned) // 2:
                fault("broadcast", member_id)
            if number >= len(buffers):
                under_way.popleft()()
            memory = buffers[number % len(buffers)][: broadcast.size]
            fill(broadcast, memory)
            under_way.append(_begun(group, broadcast, memory, empty))
        while under_way:
            under_way.popleft()()


def _begun(
    group: Group, broadcast: Broadcast, memory: torch.Tensor, empty: Callable[[Broadcast, torch.Tensor], None]
) -> Callable[[], None]:
    """Begin the broadcast; return what waits for it and empties its memory."""
    wait = group.begin_broadcast(memory, broadcast.root)

    def end() -> None:
        wait()
        empty(broadcast, memory)

    return end


def _places(broadcast: Broadcast, memory: torch.Tensor) -> Iterator[tuple[Piece, torch.Tensor]]:
    """Yield each piece with its place in the memory."""
    start = 0
    for piece in broadcast.pieces:
        size = piece.end - piece.start
        yield piece, memory[start : start + size]
        start += size


@contextmanager
def _sockets_after_a_failure() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        refuse_broadcasts(str(error) or type(error).__name__)
        raise
