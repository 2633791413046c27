"""The bytes of tensors, piece by piece, for sockets.

Tensors in main memory are sent from their own memory and received into it. Those on a device pass through two buffers
of main memory, pinned where CUDA copies to them: one is filled while the other one is sent, on a stream beside the
training's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from tidepool.torch.comm.routes import PIECE_BYTES, Piece

__all__ = ["Ring", "SideStream", "bytes_of", "outgoing", "size_of"]


def size_of(tensor: torch.Tensor) -> int:
    """Return the bytes of the tensor's numbers."""
    return tensor.numel() * tensor.element_size()


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of the tensor's numbers: a view, or a copy where it is not contiguous."""
    return tensor.contiguous().view(-1).view(torch.uint8)


class _Buffer:
    """A place in main memory for one piece, and the copy that uses it at present."""

    def __init__(self, pinned: bool) -> None:
        self.memory = torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=pinned)
        self.event: Any = None

    def wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()
            self.event = None


class SideStream:
    """A stream beside the training's. after: event that it begins with; None: what the thread has launched."""

    def __init__(self, after: Any = None) -> None:
        self._after = after
        self._stream: Any = None

    def beside(self, tensor: torch.Tensor) -> AbstractContextManager[Any]:
        """Let what is computed of the tensor in the block come before this stream's next copies."""
        if not tensor.is_cuda:
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]
            self._stream.wait_event(self._after or torch.cuda.current_stream(tensor.device).record_event())
        return torch.cuda.stream(self._stream)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Any:
        """Begin a copy; return the event at which it is over, None if it is."""
        on_device = source if source.is_cuda else target
        with self.beside(on_device), torch.no_grad():
            target.copy_(source, non_blocking=on_device.is_cuda)
            return self._stream.record_event() if on_device.is_cuda else None


class Ring:
    """Two buffers through which pieces of tensors on a device pass in turn.

    after: event that the device's copies wait for. stages: whether a tensor passes through the buffers. stream: for the
    copies; None: one that begins with `after`.
    """

    def __init__(
        self,
        after: Any = None,
        stages: Callable[[torch.Tensor], bool] = lambda tensor: tensor.device.type != "cpu",
        stream: SideStream | None = None,
    ) -> None:
        self.stages, self._stream = stages, stream or SideStream(after)
        self._buffers: list[_Buffer] = []
        self._turn = 0

    def load(self, source: torch.Tensor) -> Callable[[], memoryview]:
        """Begin to bring the bytes to main memory; returns what waits for them. They last until two more are loaded."""
        if not self.stages(source):
            return lambda: source.numpy().data
        buffer = self._next(source.is_cuda)
        buffer.event = self._stream.copy(buffer.memory[: source.numel()], source)

        def loaded() -> memoryview:
            buffer.wait()
            return buffer.memory[: source.numel()].numpy().data

        return loaded

    def room(self, target: torch.Tensor) -> tuple[memoryview, Callable[[], None]]:
        """Return memory for a piece that comes, and what puts the piece in its place in `target`."""
        if not self.stages(target):
            return target.numpy().data, lambda: None
        buffer = self._next(target.is_cuda)
        memory = buffer.memory[: target.numel()]

        def put() -> None:
            buffer.event = self._stream.copy(target, memory)

        return memory.numpy().data, put

    def settle(self) -> None:
        """Wait until all copies are over."""
        for buffer in self._buffers:
            buffer.wait()

    def beside(self, tensor: torch.Tensor) -> AbstractContextManager[Any]:
        """Let what is computed of the tensor in the block come before this ring's next copies."""
        return self._stream.beside(tensor)

    def _next(self, pinned: bool) -> _Buffer:
        if not self._buffers:
            self._buffers = [_Buffer(pinned), _Buffer(pinned)]
        self._turn = 1 - self._turn
        buffer = self._buffers[self._turn]
        buffer.wait()
        return buffer


def outgoing(tensors: Sequence[torch.Tensor], pieces: Iterable[Piece], ring: Ring) -> Iterator[memoryview]:
    """Yield the bytes of each piece, one ahead of which is loaded already. A view lasts until the next one is taken."""
    held, number = torch.empty(0, dtype=torch.uint8), -1
    loaded: Callable[[], memoryview] | None = None
    for piece in pieces:
        if piece.tensor != number:
            number = piece.tensor
            with ring.beside(tensors[number]):
                held = bytes_of(tensors[number])
        following = ring.load(held[piece.start : piece.end])
        if loaded is not None:
            yield loaded()
        loaded = following
    if loaded is not None:
        yield loaded()
