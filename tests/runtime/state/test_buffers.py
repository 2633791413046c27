"""Buffers that ride in a sum of float32 numbers: exactly, whatever their type."""

import torch
from tidepool.torch.state.buffers import Buffers

VALUES = {
    "a_bool": torch.tensor([[True, False], [False, True]]),
    "int8": torch.tensor([-128, 127], dtype=torch.int8),
    "int64": torch.tensor([2**63 - 1, -(2**63), 0, -1, 2**53 + 1]),
    "a_half": torch.tensor([0.1, 65504.0, -0.0], dtype=torch.float16),
    "a_bfloat": torch.tensor([0.1, 3e38], dtype=torch.bfloat16),
    "a_single": torch.tensor([[0.1], [1e-42], [3e38]]),
    "a_double": torch.tensor([0.1, 1e300, -0.0, float("inf")], dtype=torch.float64),
    "a_complex": torch.tensor([0.1 + 0.7j, -1e300j], dtype=torch.complex128),
    "scalar": torch.tensor(41),
    "nothing": torch.zeros(0),
}


class Holder(torch.nn.Module):
    def __init__(self, *, blank: bool) -> None:
        super().__init__()
        for name, value in VALUES.items():
            self.register_buffer(name, torch.zeros_like(value) if blank else value.clone())
        self.register_buffer("local", torch.tensor(0.0 if blank else 5.0), persistent=False)


def test_every_type_arrives_as_it_left_after_zeros_were_added() -> None:
    sender, taker = Buffers(Holder(blank=False)), Buffers(model := Holder(blank=True))
    block = torch.zeros(sender.size)
    sender.begin_step(divided=True)
    sender.pack(block)
    taker.begin_step(divided=True)
    taker.unpack(torch.zeros(sender.size) + block + torch.zeros(sender.size))
    for name, value in VALUES.items():
        assert model.get_buffer(name).equal(value), name
    assert float(model.local) == 0.0, "what is not persistent stays where it is"


def test_a_forward_may_replace_its_buffers() -> None:
    buffers = Buffers(model := Holder(blank=True))
    buffers.begin_step(divided=True)
    model.a_single = model.a_single + 1.0
    block = torch.zeros(buffers.size)
    buffers.pack(block)
    buffers.restore()
    assert model.a_single.eq(0.0).all()
    buffers.unpack(block)
    assert model.a_single.eq(1.0).all()


def test_what_happens_in_an_evaluation_leaves_no_trace() -> None:
    model = torch.nn.BatchNorm1d(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with Buffers(model).kept():
        model(torch.randn(4, 2))
        assert int(model.num_batches_tracked) == 1
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_a_model_without_buffers_needs_no_place() -> None:
    buffers = Buffers(torch.nn.Linear(2, 2))
    buffers.begin_step(divided=True)
    buffers.pack(torch.zeros(0))
    buffers.unpack(torch.zeros(0))
    assert buffers.size == 0
