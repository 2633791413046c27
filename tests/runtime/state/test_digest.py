"""Digests of models."""

import copy

import pytest
import torch
from tidepool.torch.state.digest import digest
from torch import nn

KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
KINDS += [torch.int64, torch.int8, torch.uint8, torch.uint16, torch.bool]


class Tensors(nn.Module):
    """Buffers of a kind, whose lengths in bytes are any."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        for length in (0, 1, 3, 8, 21):
            self.register_buffer(f"of_{length}", torch.arange(length).to(kind))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_bit_of_each_tensor_counts(kind: torch.dtype) -> None:
    one = Tensors(kind)
    assert digest(one).equal(digest(copy.deepcopy(one)))
    for name, buffer in one.named_buffers():
        for byte in range(buffer.numel() * buffer.element_size()):
            other = copy.deepcopy(one)
            other.get_buffer(name).view(-1).view(torch.uint8)[byte] ^= 1
            assert not digest(other).equal(digest(one)), f"byte {byte} of {name}"


def test_the_same_numbers_elsewhere_are_another_model() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.weight.data.copy_(one.weight.detach())
    other.bias.data.copy_(one.bias.detach())
    assert digest(one).equal(digest(other))
    one.bias.data, other.bias.data = torch.tensor([1.0, 0.0]), torch.zeros(2)
    one.weight.data[0, 0], other.weight.data[0, 0] = 0.0, 1.0
    assert not digest(one).equal(digest(other))


def test_views_that_begin_anywhere_and_transposed_tensors() -> None:
    whole, model, other = torch.randn(9), nn.Module(), nn.Module()
    model.register_buffer("piece", whole[1:7].view(2, 3).t())
    other.register_buffer("piece", whole[1:7].view(2, 3).t().contiguous())
    assert digest(model).equal(digest(other))
