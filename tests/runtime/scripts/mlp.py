"""A small training in the native API. It records each sample that it reads, and its final weights."""

import argparse
import os
import time
from pathlib import Path

import torch
from tidepool.torch import Session
from tidepool.torch.comm import process_group
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--samples", type=int, default=1030)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--rank-batch", type=int, default=None)
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
parser.add_argument("--every", type=int, default=None)
parser.add_argument("--bad-sample", type=int, default=None)
parser.add_argument("--no-evaluation", action="store_true")
parser.add_argument("--device", default="cpu")
parser.add_argument("--compile", default=None, help="a backend of torch.compile")
parser.add_argument("--out", default=None)
parser.add_argument(
    "--never-ready", default=None, help="ranks whose member_id begins so hang before they have a session"
)
parser.add_argument("--former", default=None, help="ranks whose member_id begins so know no routes")
options = parser.parse_args()
if options.former and os.environ["TIDEPOOL_MEMBER_ID"].startswith(options.former):
    process_group._ROUTES = "-former"
hurry = Path(os.environ.get("DATA_DIR", "."), "hurry")
if options.never_ready and os.environ["TIDEPOOL_MEMBER_ID"].startswith(options.never_ready):
    time.sleep(3600)


class Samples(torch.utils.data.Dataset):
    """Writes a line `epoch index` for each sample that is read for training."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(options.samples, 20, generator=generator)
        self.labels = (self.inputs[:, :10].sum(1) > self.inputs[:, 10:].sum(1)).long()
        self.epoch = -1
        folder = os.environ.get("LOG_DIR")
        self.record = open(Path(folder) / "samples", "a", buffering=1) if folder else None  # noqa: SIM115

    def __len__(self):
        return options.samples

    def __getitem__(self, index):
        if self.record and self.epoch >= 0:
            self.record.write(f"{self.epoch} {index}\n")
        if self.epoch >= 0 and index == options.bad_sample:
            raise ValueError(f"sample {index} is broken")
        return self.inputs[index], self.labels[index]


torch.manual_seed(3)
model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2)).to(options.device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
samples = Samples()
network = torch.compile(model, backend=options.compile) if options.compile else model


def warm_up():
    inputs, labels = samples.inputs[: options.batch], samples.labels[: options.batch]
    nn.functional.cross_entropy(network(inputs), labels).backward()


session = Session(
    network,
    optimizer,
    effective_batch_size=options.batch,
    rank_batch_size=options.rank_batch,
    seed=7,
    registered={"schedule": schedule},
    warm_up=warm_up if options.compile else None,
    checkpoint_every=options.every,
)


def correct(batch):
    inputs, labels = batch
    return torch.stack([(model(inputs).argmax(1) == labels).sum(), torch.tensor(len(labels), device=labels.device)])


for epoch in session.epochs(options.epochs):
    samples.epoch = epoch
    for step in session.steps(samples):
        for inputs, labels in step:
            outputs = network(inputs)
            step.backward(nn.functional.cross_entropy(outputs, labels))
            step.log(accuracy=(outputs.argmax(1) == labels).float().mean() * 100)
        if options.step_seconds and not hurry.exists():
            # A test that is late on a busy machine finds the training in its last epoch, and not at its end.
            time.sleep(options.step_seconds * (10 if epoch == options.epochs - 1 else 1))
    samples.epoch = -1
    if not options.no_evaluation:
        right, total = session.sum_over(samples, correct, width=2)
        session.report(test_accuracy=100 * right / total)
    schedule.step()

if options.out:
    torch.save(model.state_dict(), options.out)
