"""A training whose batch adapts: on labels that are pure chance, so that larger batches are always worth it."""

import argparse
import time

import torch
from tidepool.torch import Adaptive, Session

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--samples", type=int, default=1600)
parser.add_argument("--step-seconds", type=float, default=0.0)
parser.add_argument("--fits", type=int, default=64, help="samples of a micro-batch that the memory has room for")
options = parser.parse_args()

torch.manual_seed(3)
model = torch.nn.Linear(20, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(options.samples, 20, generator=generator)
labels = torch.randint(2, (options.samples,), generator=generator)
session = Session(
    model,
    optimizer,
    effective_batch_size=8,
    seed=7,
    checkpoint_seconds=0,
    adaptive=Adaptive(64, rank_bounds=(1, 64), rule="sqrt", every_seconds=0.5),
)
for _ in session.epochs(options.epochs):
    for step in session.steps(torch.utils.data.TensorDataset(inputs, labels)):
        for batch, wanted in step:
            if len(batch) > options.fits:
                raise torch.cuda.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {len(batch)} MiB.")
            step.backward(torch.nn.functional.cross_entropy(model(batch), wanted))
        time.sleep(options.step_seconds)
