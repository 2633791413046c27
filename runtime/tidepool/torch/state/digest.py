"""A digest of a model's weights and buffers, equal on ranks that hold the same bits."""

import torch

__all__ = ["digest", "sums_of"]

#: Odd multipliers, one for each place of a tensor, follow from this one (of splitmix64, as a signed number).
_STRIDE = 0x9E3779B97F4A7C15 - 2**64

#: Number of factors.
_PLACES = 4093


@torch.no_grad()
def digest(model: torch.nn.Module) -> torch.Tensor:
    """Return an int64 scalar on the model's device, from all parameters and those buffers that a checkpoint holds.

    Each tensor is summed as whole numbers of 64 bits; no order of additions changes such a sum.
    """
    tensors = [value for value in model.state_dict().values() if isinstance(value, torch.Tensor) and value.numel()]
    sums = torch.stack([part for tensor in tensors for part in _sums(tensor)])
    odds = torch.arange(1, 2 * len(sums), 2, device=sums.device) * _STRIDE
    mixed = (sums * odds).sum()
    return mixed ^ (mixed >> 29)


def sums_of(tensor: torch.Tensor) -> list[int]:
    """Return numbers that differ where the bits of two tensors of one shape and type differ, in all likelihood."""
    return [int(part) for part in _sums(tensor)] if tensor.numel() else []


def _sums(tensor: torch.Tensor) -> list[torch.Tensor]:
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    if plain.storage_offset() * plain.element_size() % 8:
        plain = plain.clone()
    content = plain.view(-1).view(torch.uint8)
    whole = content.numel() // 8 * 8
    words = [_sum(content[:whole].view(torch.int64))] if whole else []
    return [*words, content[whole:].sum()] if whole < content.numel() else words


def _sum(words: torch.Tensor) -> torch.Tensor:
    """Sum words with factors by their places: weights that move by as much in opposite ways would cancel each other.

    The places come again after a prime number of words, which no two rows of a layer are apart.
    """
    whole = words.numel() // _PLACES * _PLACES
    sums = words[:whole].view(-1, _PLACES).sum(0)
    sums[: words.numel() - whole] += words[whole:]
    return (sums * (torch.arange(1, 2 * _PLACES, 2, device=sums.device) * _STRIDE)).sum()
