"""A copy of the state in main memory, for a thread that writes it while training goes on.

Parameters and optimizer state, which only an update changes, are copied behind the forward and backward passes that
follow: by the thread that writes, or on a GPU by a stream beside the training's. The update waits for that. All else is
copied at once.
"""

import threading
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["StateCopy"]


class StateCopy:
    """The state as it was at a step boundary, in buffers that are used again and again; pinned if a GPU fills them."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        #: Pairs of buffer and tensor that are still to be copied, by `finish`.
        self._left: list[tuple[torch.Tensor, torch.Tensor]] = []
        #: Tensors that must not change before they are copied, each with its number of writes at the boundary.
        self._versions: list[tuple[torch.Tensor, int]] = []
        self._is_intact = True
        self._is_settled = True
        self._lock = threading.Lock()
        self._copied = threading.Event()
        self._copied.set()
        self._stream: Any = None
        self._event: Any = None

    def fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        return [(t.shape, t.dtype) for t in self.tensors] == [(t.shape, t.dtype) for t in tensors]

    def make_room(self, tensors: Sequence[torch.Tensor]) -> None:
        """Make buffers for copies of `tensors`, with their pages touched."""
        self.tensors = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda).zero_() for tensor in tensors
        ]

    def begin(self, tensors: Sequence[torch.Tensor], can_wait: Sequence[bool]) -> None:
        """Begin to copy the tensors; `finish` ends it. Those that cannot wait may change when this returns."""
        pairs = [*zip(self.tensors, tensors, strict=True)]
        for (buffer, tensor), waits in zip(pairs, can_wait, strict=True):
            if not waits:
                buffer.copy_(tensor, non_blocking=tensor.is_cuda)
        later = [pair for pair, waits in zip(pairs, can_wait, strict=True) if waits]
        self._left = [(buffer, tensor) for buffer, tensor in later if not tensor.is_cuda]
        self._versions = [(tensor, tensor._version) for _, tensor in later]
        self._is_settled, self._is_intact = False, True
        self._copied.clear()
        self._event = self._copy_beside([(buffer, tensor) for buffer, tensor in pairs if tensor.is_cuda], later)

    def finish(self) -> bool:
        """End the copy, on the thread that writes it. False: the script has changed a tensor meanwhile."""
        try:
            for buffer, tensor in self._left:
                buffer.copy_(tensor)
            if self._event is not None:
                self._event.synchronize()
            with self._lock:
                return self._is_intact if self._is_settled else self._is_unchanged()
        finally:
            self._left, self._versions = [], []
            self._copied.set()

    def settle(self) -> None:
        """Wait, on the training thread, until all tensors may change. On a GPU, what it computes next waits."""
        if self._is_settled:
            return
        with self._lock:
            self._is_settled, self._is_intact = True, self._is_unchanged()
        if self._event is not None:
            torch.cuda.current_stream(self._stream.device).wait_event(self._event)
        if self._left:
            self._copied.wait()

    def _is_unchanged(self) -> bool:
        return all(tensor._version == version for tensor, version in self._versions)

    def _copy_beside(self, on_gpu: list[tuple[torch.Tensor, torch.Tensor]], later: Sequence[Any]) -> Any:
        """Return the event at which the buffers hold the tensors of a GPU; None if there are none."""
        if not on_gpu:
            return None
        device = on_gpu[0][1].device
        self._stream = self._stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream), torch.no_grad():
            for buffer, tensor in later:
                if tensor.is_cuda:
                    buffer.copy_(tensor, non_blocking=True)
            return self._stream.record_event()
