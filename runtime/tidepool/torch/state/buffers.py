"""A model's buffers (such as BatchNorm's statistics) in a distributed step: all ranks take those of the first part.

Each part of a step sees its own samples and would produce its own statistics. Only the buffers of part 0 count; they
travel to all ranks in the same sum as the gradients, to which the other parts add zeros.
A float32 carries each number of a narrow type exactly (but for the sign of a zero); wider ones travel as 16-bit pieces.
A buffer that has another shape than at the beginning, as a memory bank that grows, travels by itself after the sum.

Non-persistent buffers are not sent: they are caches, which each rank fills for itself.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["Buffers", "normalizes_batches", "set_buffer"]

#: Module that holds a buffer, and the buffer's name there.
_Place = tuple[torch.nn.Module, str]


def normalizes_batches(model: torch.nn.Module) -> bool:
    """Return whether a layer normalizes over its batch, which takes two samples at least."""
    return any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules())


def set_buffer(model: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Replace a buffer, given by its full name, by one of another shape."""
    path, _, leaf = name.rpartition(".")
    model.get_submodule(path)._buffers[leaf] = tensor


class Buffers:
    """The buffers of `model`, whose number must not change any more (a forward may replace and reshape them)."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        by_type: dict[tuple[torch.dtype, torch.device], list[_Place]] = {}
        #: Persistent ones: full name -> shape in the block.
        self._shapes: dict[str, torch.Size] = {}
        for path, module in model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                if name not in module._non_persistent_buffers_set:
                    self._shapes[f"{path}.{name}" if path else name] = buffer.shape
                    if buffer.numel():
                        by_type.setdefault((buffer.dtype, buffer.device), []).append((module, name))
        self._travellers = [_Travellers(places) for places in by_type.values()]
        #: float32 places that `pack` fills.
        self.size = sum(travellers.size for travellers in self._travellers)
        self._saved: list[torch.Tensor] = []
        self._divided = False
        #: After `pack`, on the rank of the first part: buffers that have another shape than in the block.
        self.reshaped: dict[str, torch.Tensor] = {}

    def begin_step(self, *, divided: bool) -> None:
        """divided: there are other parts than this rank's, or may have to be another attempt."""
        self._divided, self.reshaped = divided, {}
        self._saved = [buffer.detach().clone() for buffer in self._model.buffers()] if divided else []

    def saved(self) -> list[torch.Tensor]:
        """Copies of all buffers as they were when the step under way began; none if it is not divided."""
        return self._saved

    def put_back(self, saved: list[torch.Tensor]) -> None:
        for (name, buffer), before in zip([*self._model.named_buffers()], saved, strict=False):
            if buffer.shape == before.shape:
                buffer.detach().copy_(before)
            else:
                set_buffer(self._model, name, before.clone())

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
            self.put_back(saved)

    @torch.no_grad()
    def pack(self, block: torch.Tensor) -> None:
        """Write the persistent ones into `block`, float32 of shape (size,); nothing in a step that is not divided."""
        if not self._divided:
            return
        now = {name: self._model.get_buffer(name) for name in self._shapes}
        self.reshaped = {
            name: buffer.detach().clone() for name, buffer in now.items() if buffer.shape != self._shapes[name]
        }
        for travellers, piece in self._pieces(block):
            travellers.pack(piece)

    def packed_reshaped(self) -> bytes:
        """Return the reshaped buffers of the first part; nothing on a rank that has not computed it."""
        if not self.reshaped:
            return b""
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.reshaped.items()}
        header = json.dumps([[name, list(tensor.shape)] for name, tensor in tensors.items()]).encode()
        pieces = [bytes(tensor.view(-1).view(torch.uint8).numpy().data) for tensor in tensors.values()]
        return b"".join([len(header).to_bytes(8, "big"), header, *pieces])

    def unpack_reshaped(self, packed: bytes) -> None:
        """Take the buffers that another rank has packed."""
        start = 8 + int.from_bytes(packed[:8], "big")
        for name, shape in json.loads(packed[8:start]):
            own = self._model.get_buffer(name)
            tensor = torch.empty(shape, dtype=own.dtype)
            size = tensor.numel() * tensor.element_size()
            if size:
                content = torch.frombuffer(bytearray(packed[start : start + size]), dtype=torch.uint8)
                tensor.view(-1).view(torch.uint8).copy_(content)
            start += size
            set_buffer(self._model, name, tensor.to(own.device))

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
        views, buffers = self._alike()
        torch._foreach_copy_(views, buffers)
        block.copy_(self._numbers)

    def unpack(self, block: torch.Tensor) -> None:
        self._numbers.copy_(block)
        views, buffers = self._alike()
        torch._foreach_copy_(buffers, views)

    def _alike(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the views and the buffers of the same shapes. The others travel by themselves."""
        pairs = [pair for pair in zip(self._views, self._buffers(), strict=True) if pair[0].shape == pair[1].shape]
        return [view for view, _ in pairs], [buffer for _, buffer in pairs]

    def _buffers(self) -> list[torch.Tensor]:
        return [module.get_buffer(name).detach() for module, name in self._places]
