"""A training in the manner of AdaptDL's tutorials: a regression, with statistics and an evaluation in each epoch."""

import argparse
import os
import time
from pathlib import Path

import adaptdl
import adaptdl.torch as adl
import torch
from torch.nn import functional
from torch.optim.lr_scheduler import MultiStepLR

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--samples", type=int, default=290)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--drop-last", action="store_true")
parser.add_argument("--autoscale", type=int, default=0)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--by-range", action="store_true", help="no remaining_epochs_until")
parser.add_argument("--scaler", action="store_true", help="scale losses, as for mixed precision")
parser.add_argument("--never-zero", action="store_true", help="no zero_grad")
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
parser.add_argument("--out", default=None)
options = parser.parse_args()
hurry = Path(os.environ.get("DATA_DIR", "."), "hurry")

adl.init_process_group("gloo")
torch.manual_seed(3)


class Samples(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(count, 6, generator=generator)
        self.targets = self.inputs.square().sum(1, keepdim=True)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.last = torch.nn.Linear(6, 32), torch.nn.Linear(32, 1)

    def forward(self, inputs):
        return self.last(torch.tanh(self.hidden(inputs)))


class Counter(adaptdl.checkpoint.State):
    """Steps that this training has made, whoever made them."""

    def __init__(self):
        super().__init__("counter")
        self.steps = self.total = 0

    def sync(self):
        self.total = adaptdl.collective.allreduce(self.steps, max)

    def save(self, fileobj):
        fileobj.write(str(self.total).encode())

    def load(self, fileobj):
        self.steps = self.total = int(fileobj.read())


loader = adl.AdaptiveDataLoader(
    Samples(options.samples, 1),
    batch_size=options.batch,
    shuffle=True,
    drop_last=options.drop_last,
    num_workers=options.workers,
)
held_out = adl.AdaptiveDataLoader(Samples(101, 2), batch_size=20)
if options.autoscale:
    loader.autoscale_batch_size(options.autoscale, local_bsz_bounds=(8, options.batch), gradient_accumulation=True)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
schedule = MultiStepLR(optimizer, [2, 3], 0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=options.scaler)
net = adl.AdaptiveDataParallel(net, optimizer, schedule, scaler if options.scaler else None)
counter = Counter()
adaptdl.checkpoint.load_state(counter)


def train():
    net.train()
    stats = adl.Accumulator()
    for inputs, targets in loader:
        if options.step_seconds and not hurry.exists():
            time.sleep(options.step_seconds)
        if not options.never_zero:
            optimizer.zero_grad()
        loss = functional.mse_loss(net(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        counter.steps += 1
        stats["samples"] += len(inputs)
        stats["loss"] += loss.item() * len(inputs)
    with stats.synchronized():
        print("trained", stats["samples"], f"{stats['loss'] / stats['samples']:.5f}", flush=True)


def evaluate():
    net.eval()
    stats = adl.Accumulator()
    with torch.no_grad():
        for inputs, targets in held_out:
            stats["samples"] += len(inputs)
            stats["loss"] += functional.mse_loss(net(inputs), targets, reduction="sum").item()
    with stats.synchronized():
        print("evaluated", stats["samples"], f"{stats['loss'] / stats['samples']:.5f}", flush=True)


for _epoch in range(options.epochs) if options.by_range else adl.remaining_epochs_until(options.epochs):
    train()
    evaluate()
    schedule.step()

if options.out and adaptdl.env.replica_rank() == 0:
    torch.save(net.module.state_dict(), options.out)
