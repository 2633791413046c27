"""A fine-tuning in phases: the head alone, then with the body by another optimizer or a further group, then less."""

import argparse
import os
import time
from pathlib import Path

import torch
from tidepool.torch import epochs, prepare
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--way", choices=["another", "group", "alternating"], default="another")
parser.add_argument("--by-range", action="store_true", help="the loop over epochs is a plain range")
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
parser.add_argument("--out", default=None)
options = parser.parse_args()
data = Path(os.environ.get("DATA_DIR", "."))

torch.manual_seed(3)
body, head = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 3)
model = nn.Sequential(body, head)
body.requires_grad_(False)
inputs = torch.randn(48, 8, generator=torch.Generator().manual_seed(1))
optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
loader = DataLoader(TensorDataset(inputs, inputs[:, :3].argmax(1)), batch_size=12, shuffle=True)
loader, model, optimizer, schedule = prepare(loader, model, optimizer, schedule, seed=7)
of_head = optimizer

for epoch in range(8) if options.by_range else epochs(range(8)):
    if epoch == 2:
        body.requires_grad_(True)
        if options.way == "group":
            optimizer.add_param_group({"params": body.parameters(), "lr": 0.02})
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    if epoch == 6:
        head.requires_grad_(False)
    for features, labels in loader:
        stepping = of_head if options.way == "alternating" and epoch in (4, 5) else optimizer
        stepping.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        stepping.step()
        if options.step_seconds and not (data / "hurry").exists():
            time.sleep(options.step_seconds)
    if options.way != "group":
        schedule.step()

if options.out:
    torch.save(model.state_dict(), options.out)
