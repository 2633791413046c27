"""A loop of its own that continues from its own snapshot, and what scripts do around it."""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
from tidepool.torch import epochs, is_first, prepare, report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--by-range", action="store_true", help="the loop over epochs is a plain range")
parser.add_argument("--second-loop", type=int, default=0, help="epochs of a loop that follows")
parser.add_argument("--snapshot", default="", help="continue from this file of the results")
parser.add_argument("--writer", action="store_true", help="the first process opens a file before the loop")
parser.add_argument(
    "--leave", default="", help="leave the loop after this epoch, in ranks whose name begins so: 2@a.1."
)
parser.add_argument("--end", choices=["", "os_exit", "error", "exit_0"], default="")
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
options = parser.parse_args()
results, data = Path(os.environ.get("RESULT_DIR", ".")), Path(os.environ.get("DATA_DIR", "."))
rank = os.environ.get("TIDEPOOL_MEMBER_ID", "off the cluster")

generator = torch.Generator().manual_seed(1)
inputs = torch.randn(96, 8, generator=generator)
torch.manual_seed(3)
model = nn.Linear(8, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(inputs, inputs[:, :3].argmax(1)), batch_size=24, shuffle=True)
snapshot, start = results / options.snapshot, 0
if options.snapshot and snapshot.exists():
    saved = torch.load(snapshot, weights_only=True)
    model.load_state_dict(saved["model"])
    start = saved["epoch"] + 1
early = is_first()
loader, model, optimizer = prepare(loader, model, optimizer, seed=7)
writer = None
if is_first():
    assert early, "asked before and after prepare"
    writer = (results / "written").open("a")


def note(line):
    with (results / "epochs").open("a") as file:
        file.write(f"{rank} {line}\n")


def train(epoch):
    for features, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
        if options.step_seconds and not (data / "hurry").exists():
            time.sleep(options.step_seconds)
    note(epoch)
    if is_first():
        if options.writer:
            writer.write(f"{epoch}\n")
            writer.flush()
        if options.snapshot:
            fresh = snapshot.with_suffix(".new")
            torch.save({"model": model.state_dict(), "epoch": epoch}, fresh)
            fresh.rename(snapshot)


leave_after, _, leavers = options.leave.partition("@")
numbers = range(start, options.epochs)
for epoch in numbers if options.by_range else epochs(numbers):
    train(epoch)
    if leave_after == str(epoch) and rank.startswith(leavers):
        break
if options.second_loop:
    for epoch in epochs(range(options.epochs, options.epochs + options.second_loop)):
        train(epoch)
report(after=1.0)
note("end")
if options.end == "os_exit":
    os._exit(0)
elif options.end == "error":
    raise RuntimeError("no module matplotlib")
elif options.end == "exit_0":
    sys.exit(0)
