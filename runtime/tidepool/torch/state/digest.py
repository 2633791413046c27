"""A digest of a model's weights and buffers, equal on ranks that hold the same bits."""

import torch

__all__ = ["digest"]

#: Odd multipliers, one for each place of a tensor, follow from this one (of splitmix64, as a signed number).
_STRIDE = 0x9E3779B97F4A7C15 - 2**64


@torch.no_grad()
def digest(model: torch.nn.Module) -> torch.Tensor:
    """Return an int64 scalar on the model's device, from all parameters and those buffers that a checkpoint holds.

    Each tensor is summed as whole numbers of 64 bits, which takes as long as to read it; no order of additions changes
    such a sum.
    """
    tensors = [value for value in model.state_dict().values() if isinstance(value, torch.Tensor) and value.numel()]
    sums = torch.stack([part for tensor in tensors for part in _sums(tensor)])
    odds = torch.arange(1, 2 * len(sums), 2, device=sums.device) * _STRIDE
    mixed = (sums * odds).sum()
    return mixed ^ (mixed >> 29)


def _sums(tensor: torch.Tensor) -> list[torch.Tensor]:
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    if plain.storage_offset() * plain.element_size() % 8:
        plain = plain.clone()
    content = plain.view(-1).view(torch.uint8)
    whole = content.numel() // 8 * 8
    words = [content[:whole].view(torch.int64).sum()] if whole else []
    return [*words, content[whole:].sum()] if whole < content.numel() else words
