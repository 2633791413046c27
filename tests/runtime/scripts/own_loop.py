"""A loop of its own in plain PyTorch, prepared; or, for comparison, the same in a Session or without any of it."""

import argparse
import json
import os
import time
from pathlib import Path

import tidepool.torch
import torch
from tidepool.torch.rank.prepared import current
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--samples", type=int, default=290)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--rank-batch", type=int, default=None)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
parser.add_argument("--kind", choices=["prepared", "session", "plain"], default="prepared")
parser.add_argument("--by-range", action="store_true", help="the loop over epochs stays as it is")
parser.add_argument("--by-hand", action="store_true", help="decay the learning rate above each pass, too")
parser.add_argument("--closure", action="store_true")
parser.add_argument("--two", action="store_true", help="two models, two optimizers, in turn on each batch")
parser.add_argument("--ignored", action="store_true", help="two of three samples have no label, in uneven numbers")
parser.add_argument("--virtual-ranks", type=int, default=None)
parser.add_argument("--note-forwards", action="store_true", help="a line in the log folder for each call of the model")
parser.add_argument("--out", default=None)
options = parser.parse_args()
hurry = Path(os.environ.get("DATA_DIR", "."), "hurry")


class Samples(torch.utils.data.Dataset):
    """Writes a line `index` for each sample that is read."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(options.samples, 20, generator=generator)
        self.labels = (self.inputs[:, :10].sum(1) > self.inputs[:, 10:].sum(1)).long()
        if options.ignored:
            self.labels[torch.rand(options.samples, generator=generator) > 0.3] = -100

    def __len__(self):
        return options.samples

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


def network():
    return nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 2))


torch.manual_seed(3)
model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2)) if not options.virtual_ranks else network()
if options.note_forwards:

    def note(_model, inputs):
        line = {"is_zero": not inputs[0].any().item(), "has_joined": current().has_joined}
        with Path(os.environ["LOG_DIR"], "forwards").open("a") as file:
            print(json.dumps(line), file=file)

    model.register_forward_pre_hook(note)
other = nn.Linear(2, 2) if options.two else None
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
second = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9) if other else None
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
loader = DataLoader(Samples(), batch_size=options.batch, shuffle=True)
exact = {"exactness": "bitwise", "virtual_ranks": options.virtual_ranks} if options.virtual_ranks else {}


def loss_of(inputs, labels):
    return nn.functional.cross_entropy(model(inputs), labels)


def draw_out():
    if options.step_seconds and not hurry.exists():
        time.sleep(options.step_seconds)


def session_loop():
    session = tidepool.torch.Session(
        model,
        optimizer,
        effective_batch_size=options.batch,
        rank_batch_size=options.rank_batch,
        seed=7,
        registered={"schedule": schedule, "warm": warm},
        before_update=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        after_update=warm.step,
        **exact,
    )
    for _ in session.epochs(options.epochs):
        for step in session.steps(loader.dataset):
            for inputs, labels in step:
                step.backward(loss_of(inputs, labels))
        schedule.step()


def own_loop(loader):
    epochs = range(options.epochs)
    for _ in epochs if options.by_range or options.kind == "plain" else tidepool.torch.epochs(epochs):
        if options.by_hand:
            optimizer.param_groups[0]["lr"] *= 0.9
        for place, (inputs, labels) in enumerate(loader):

            def compute(inputs=inputs, labels=labels):
                optimizer.zero_grad()
                loss = loss_of(inputs, labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                return loss

            draw_out()
            if options.closure:
                optimizer.step(compute)
                warm.step()
                continue
            if options.two:
                compute()
                optimizer.step()
                second.zero_grad()
                nn.functional.cross_entropy(other(model(inputs)), labels).backward()
                second.step()
                continue
            loss = loss_of(inputs, labels) / options.accumulate
            loss.backward()
            if (place + 1) % options.accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                warm.step()
                optimizer.zero_grad()
        schedule.step()


if options.kind == "session":
    session_loop()
elif options.kind == "plain":
    own_loop(loader)
else:
    objects = [model, other, optimizer, second, schedule, warm]
    prepared, *_ = tidepool.torch.prepare(
        loader, *[item for item in objects if item], seed=7, rank_batch_size=options.rank_batch, **exact
    )
    own_loop(prepared)

if options.out:
    torch.save({"model": model.state_dict(), "lr": optimizer.param_groups[0]["lr"]}, options.out)
