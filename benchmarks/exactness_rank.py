"""A rank of `exactness.py`: steps in the exactnesses `sum` and `bitwise` in turn, in one process on one group.

    python -m benchmarks.exactness_rank NAME RANK SIZE STORE_PORT BLOCKS

Rank 0 prints a line of JSON for each block: the exactness, and the shortest of its steps in milliseconds.
"""

import json
import sys
import time
from collections.abc import Iterator

import torch
from tidepool.torch import Session
from tidepool.torch.comm.process_group import make_group
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.networks import layers

VIRTUAL_RANKS = 4
BATCH = 64
STEPS_PER_BLOCK = 6


def mlp() -> tuple[nn.Module, torch.Tensor]:
    """0.95 million parameters."""
    return layers(256, 768, 960, 10), torch.randn(BATCH * STEPS_PER_BLOCK, 256)


def conv() -> tuple[nn.Module, torch.Tensor]:
    """0.4 million parameters, with BatchNorm and dropout."""
    features: list[nn.Module] = []
    for before, after in [(3, 32), (32, 64), (64, 128)]:
        features += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Linear(128 * 4, 480), nn.BatchNorm1d(480), nn.ReLU(), nn.Dropout(0.3), nn.Linear(480, 10)]
    return nn.Sequential(*features, *head), torch.randn(BATCH * STEPS_PER_BLOCK, 3, 16, 16)


MODELS = {"mlp": mlp, "conv": conv}


def main() -> None:
    name, rank, size, port, blocks = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(1)
    in_turn = {exactness: training(name, exactness, rank, size, port) for exactness in ("sum", "bitwise")}
    for number in range(2 * blocks):
        exactness = ("sum", "bitwise")[number % 2]
        torch.use_deterministic_algorithms(exactness == "bitwise")
        shortest = next(in_turn[exactness])
        if rank == 0 and number > 1:  # the first block of each warms up
            sys.stdout.write(json.dumps([exactness, 1000 * shortest]) + "\n")
            sys.stdout.flush()


def training(name: str, exactness: str, rank: int, size: int, port: int) -> Iterator[float]:
    """Train an epoch for each number asked for: the shortest of its steps in seconds."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    data = TensorDataset(inputs, torch.randint(10, (len(inputs),)))
    optimizer = torch.optim.Adam(model.parameters())
    virtual = VIRTUAL_RANKS if exactness == "bitwise" else None
    session = Session(model, optimizer, effective_batch_size=BATCH, exactness=exactness, virtual_ranks=virtual)
    for epoch in session.epochs(1_000_000):
        if not epoch:  # the session has begun alone: give it others, as a switch does
            session._training_loop.transitions._group = make_group(
                address="127.0.0.1", store_address="127.0.0.1", store_port=port, prefix=exactness, generation=1,
                rank=rank, size=size, device=torch.device("cpu"),
            )  # fmt: skip
        taken, before = [], time.perf_counter()
        for step in session.steps(data):
            taken.append(time.perf_counter() - before)
            before = time.perf_counter()
            for images, labels in step:
                step.backward(nn.functional.cross_entropy(model(images), labels))
        yield min(taken[1:])


if __name__ == "__main__":
    main()
