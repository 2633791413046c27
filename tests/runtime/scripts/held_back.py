"""A training that its surroundings hold back: a slow disk or network, few cores, a tiny batch, reads of a busy device.

Each rank writes the seconds that it took up to each step for reading samples, computing, summing gradients, updating
and reading numbers.
"""

import argparse
import json
import mmap
import os
import statistics
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from tidepool.torch import Session
from torch import nn
from torch.utils.data import Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--file", type=Path, default=None, help="that samples are read from, past the cache")
parser.add_argument("--sample-bytes", type=int, default=65536)
parser.add_argument("--samples", type=int, default=64)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--late", type=float, default=0.0, help="seconds after which the device has a step's loss")
parser.add_argument("--read-every", type=int, default=1, help="steps after which the loss is read")
parser.add_argument("--train-steps", type=int, default=40)
parser.add_argument("--train-seconds", type=float, default=8.0)
options = parser.parse_args()
spent = dict.fromkeys(("reading", "computing", "summing", "updating", "asking"), 0.0)
#: The same after each step.
sums = []


@contextmanager
def counted(what):
    start = time.monotonic()
    yield
    spent[what] += time.monotonic() - start


class Samples(Dataset):
    """Samples whose bytes are in a file, and others that are in memory."""

    def __init__(self):
        self._file = None if options.file is None else os.open(options.file, os.O_RDONLY | os.O_DIRECT)
        self._buffer = mmap.mmap(-1, options.sample_bytes)
        self._inputs = torch.randn(options.samples, options.width)

    def __len__(self):
        return options.samples

    def __getitem__(self, index):
        with counted("reading"):
            if self._file is not None:
                assert os.preadv(self._file, [self._buffer], index * options.sample_bytes) == options.sample_bytes
        return self._inputs[index], self._inputs[index].mean()


class OnDevice(torch.Tensor):
    """A number of a device that computes beside the host: whoever reads it waits for it."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function.__name__ == "item":
            time.sleep(max(0.0, arguments[0].ready_at - time.monotonic()))
        return super().__torch_function__(function, types, arguments, named or {})


class Descent(torch.optim.Adam):
    #: Time at which the newest gradients were computed.
    computed_at = 0.0

    def step(self, closure=None):
        spent["summing"] += time.monotonic() - self.computed_at
        with counted("updating"):
            return super().step(closure)


torch.manual_seed(1)
layers = [layer for _ in range(options.layers) for layer in (nn.Linear(options.width, options.width), nn.Tanh())]
model = nn.Sequential(*layers, nn.Linear(options.width, 1))


def seconds_of(count):
    """Return the seconds in which a process on its own computes so many samples."""
    inputs, times = torch.randn(count, options.width), []
    for _ in range(15):
        start = time.monotonic()
        model(inputs).square().mean().backward()
        times.append(time.monotonic() - start)
    model.zero_grad()
    return statistics.median(times)


def fixed_seconds():
    """Return what computing takes for each batch, however small, in seconds, and the same for each sample."""
    small, large = options.batch // 2, options.batch * 16
    few, many = seconds_of(small), seconds_of(large)
    per_sample = (many - few) / (large - small)
    return few - per_sample * small, per_sample


base, per_sample = fixed_seconds()
descent = Descent(model.parameters(), lr=0.01)
session = Session(model, descent, effective_batch_size=options.batch)


def train(step):
    began, losses = time.monotonic(), []
    for inputs, targets in step:
        with counted("computing"):
            loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets)
            step.backward(loss)
            losses.append(loss.detach())
    if options.late and losses and step.number % options.read_every == 0:  # one that joins has no batch at first
        answer = losses[-1].as_subclass(OnDevice)
        answer.ready_at = began + options.late
        with counted("asking"):
            answer.item()
    descent.computed_at = time.monotonic()


begun_at = time.monotonic()
place = Path(os.environ["LOG_DIR"], "truth.json")
for _ in session.epochs(100_000):
    for step in session.steps(Samples()):
        train(step)
        sums.append(dict(spent))
    # Time is told every two seconds: a quick training makes more steps. It goes on afterwards: the other rank may need
    # some more, and the test ends both.
    if len(sums) >= options.train_steps and time.monotonic() - begun_at >= options.train_seconds and not place.exists():
        parameters = sum(parameter.numel() for parameter in model.parameters())
        found = {"sums": sums, "bytes": 4 * parameters, "base": base, "per_sample": per_sample}
        place.with_suffix(".part").write_text(json.dumps(found))
        place.with_suffix(".part").rename(place)
