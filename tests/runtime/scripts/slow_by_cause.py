"""A training that is slow by one cause of a known size. Each rank writes the seconds that it took up to each step."""

import argparse
import json
import os
import time
from pathlib import Path

import tidepool.torch
import torch
from tidepool.torch import Session
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CAUSES = ("data", "compute", "optimizer", "script", "checkpoint", "validation", "nothing")
parser = argparse.ArgumentParser()
parser.add_argument("--cause", choices=CAUSES, default="nothing")
parser.add_argument("--seconds", type=float, default=0.25, help="of each step or epoch")
parser.add_argument("--slot", type=int, default=None, help="of the only rank that is slow")
parser.add_argument("--train-steps", type=int, default=40)
parser.add_argument("--samples", type=int, default=64)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--checkpoint-every", type=int, default=1, help="steps, where checkpoints are the cause")
parser.add_argument("--validate-every", type=int, default=1, help="epochs, where validation is the cause")
parser.add_argument("--prepare", action="store_true", help="keep a loop of the script's own")
options = parser.parse_args()
is_slow = options.slot is None or os.environ["TIDEPOOL_MEMBER_ID"].split(".")[1] == str(options.slot)
slept = 0.0
#: Seconds that the cause has taken, after each step.
sums = []


def slow(cause):
    global slept
    if cause == options.cause and is_slow:
        start = time.monotonic()
        time.sleep(options.seconds)
        slept += time.monotonic() - start


class Network(nn.Linear):
    def forward(self, inputs):
        if self.training:
            slow("compute")
        return super().forward(inputs)


class Descent(torch.optim.SGD):
    def step(self, closure=None):
        slow("optimizer")
        return super().step(closure)


class Counter:
    """State whose copy takes long, once no rank joins any more: those who join compare it, too."""

    def state_dict(self):
        if sums:
            slow("checkpoint")
        return {}

    def load_state_dict(self, state):
        pass


def collate(samples):
    slow("data")
    return torch.utils.data.default_collate(samples)


def measure(batch):
    slow("validation")
    return torch.zeros(1)


begun_at = time.monotonic()
torch.manual_seed(1)
samples = TensorDataset(torch.randn(options.samples, 8), torch.randn(options.samples, 1))
model = Network(8, 1)
optimizer = Descent(model.parameters(), lr=0.01)


def step_of_session(step):
    for inputs, targets in step:
        step.backward(nn.functional.mse_loss(model(inputs), targets))
    slow("script")


def with_session():
    every = options.checkpoint_every if options.cause == "checkpoint" else 0
    session = Session(
        model, optimizer, effective_batch_size=options.batch, registered={"counter": Counter()}, checkpoint_every=every
    )
    for epoch in session.epochs(100_000):
        for step in session.steps(samples, collate_fn=collate):
            step_of_session(step)
            sums.append(slept)
        if options.cause == "validation" and epoch % options.validate_every == 0:
            session.sum_over(samples, measure, width=1)
        tell_at_the_end()


def with_prepare():
    prepared, descent, loader = tidepool.torch.prepare(
        model, optimizer, DataLoader(samples, batch_size=options.batch, collate_fn=collate)
    )
    for _ in range(100_000):
        for inputs, targets in loader:
            descent.zero_grad()
            nn.functional.mse_loss(prepared(inputs), targets).backward()
            descent.step()
            slow("script")
            sums.append(slept)
            tell_at_the_end()


def tell_at_the_end():
    """Write what was measured, once, and go on: the other rank may need a step more, and the test ends both."""
    place = Path(os.environ["LOG_DIR"], "truth.json")
    # Time is told every two seconds: a quick training makes more steps.
    if len(sums) >= options.train_steps and time.monotonic() - begun_at >= 8 and not place.exists():
        place.with_suffix(".part").write_text(json.dumps(sums))
        place.with_suffix(".part").rename(place)


with_prepare() if options.prepare else with_session()
