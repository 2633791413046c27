"""A model's buffers (such as BatchNorm's statistics) in a distributed step: all ranks take those of the first part.

Each part of a step sees its own samples and would produce its own statistics. Only the buffers of part 0 count; they
travel to all ranks in the same sum as the gradients, to which the other parts add zeros.
A float32 carries each number of a narrow type exactly (but for the sign of a zero); wider ones travel as 16-bit pieces.

Non-persistent buffers are not sent: they are caches, which each rank fills for itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["Buffers", "normalizes_batches"]

#: Module that holds a buffer, and the buffer's name there.
_Place = tuple[torch.nn.Module, str]


def normalizes_batches(model: torch.nn.Module) -> bool:
    """Return whether a layer normalizes over its batch, which takes two samples at least."""
    return any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules())


class Buffers:
    """The buffers of `model`, which must not change their number or shapes any more (a forward may replace them)."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        by_type: dict[tuple[torch.dtype, torch.device], list[_Place]] = {}
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if name not in module._non_persistent_buffers_set and buffer.numel():
                    by_type.setdefault((buffer.dtype, buffer.device), []).append((module, name))
        self._travellers = [_Travellers(places) for places in by_type.values()]
        #: float32 places that `pack` fills.
        self.size = sum(travellers.size for travellers in self._travellers)
        self._saved: list[torch.Tensor] = []
        self._divided = False

    def begin_step(self, *, divided: bool) -> None:
        """divided: there are other parts than this rank's, or may have to be another attempt."""
        self._divided = divided
        self._saved = [buffer.detach().clone() for buffer in self._model.buffers()] if divided else []

    def saved(self) -> list[torch.Tensor]:
        """Copies of all buffers as they were when the step under way began; none if it is not divided."""
        return self._saved

    def put_back(self, saved: list[torch.Tensor]) -> None:
        for buffer, before in zip(self._model.buffers(), saved, strict=False):
            buffer.detach().copy_(before)

    def restore(self) -> None:
        """Restore the buffers that the step began with, if one is under way."""
        self.put_back(self._saved)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the buffers after the block."""
        saved = [buffer.detach().clone() for buffer in self._model.buffers()]
        try:
            yield
        finally:
            for buffer, before in zip(self._model.buffers(), saved, strict=True):
                buffer.detach().copy_(before)

    @torch.no_grad()
    def pack(self, block: torch.Tensor) -> None:
        """Write the persistent ones into `block`, float32 of shape (size,); nothing in a step that is not divided."""
        if not self._divided:
            return
        for travellers, piece in self._pieces(block):
            travellers.pack(piece)

    @torch.no_grad()
    def unpack(self, block: torch.Tensor) -> None:
        """Take the persistent ones from `block`, exactly as they were packed; the step is complete."""
        self._saved = []
        if not self._divided:
            return
        for travellers, piece in self._pieces(block):
            travellers.unpack(piece)

    def _pieces(self, block: torch.Tensor) -> list[tuple["_Travellers", torch.Tensor]]:
        sizes = [travellers.size for travellers in self._travellers]
        return list(zip(self._travellers, torch.split(block, sizes) if sizes else [], strict=True))


class _Travellers:
    """Buffers of one type, gathered in `_flat`, which the block carries number by number or piece by piece."""

    def __init__(self, places: list[_Place]) -> None:
        self._places = places
        buffers = self._buffers()
        sizes = [buffer.numel() for buffer in buffers]
        self._flat = torch.zeros(sum(sizes), dtype=buffers[0].dtype, device=buffers[0].device)
        self._views = [
            view.view_as(buffer) for view, buffer in zip(torch.split(self._flat, sizes), buffers, strict=True)
        ]
        narrow = self._flat.element_size() <= 2 or self._flat.dtype == torch.float32
        self._numbers = self._flat if narrow else self._flat.view(torch.int16)
        self.size = self._numbers.numel()

    def pack(self, block: torch.Tensor) -> None:
        torch._foreach_copy_(self._views, self._buffers())
        block.copy_(self._numbers)

    def unpack(self, block: torch.Tensor) -> None:
        self._numbers.copy_(block)
        torch._foreach_copy_(self._buffers(), self._views)

    def _buffers(self) -> list[torch.Tensor]:
        return [module.get_buffer(name).detach() for module, name in self._places]
