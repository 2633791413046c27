"""Loops in which one rank makes a call that the others do not make."""

import argparse
import os

import torch
from tidepool.torch import Session, add_up, epochs, from_first, prepare, totals
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--session", action="store_true")
parser.add_argument("--call", choices=["totals", "from_first", "sum_over", "both"], default="totals")
options = parser.parse_args()
is_odd = os.environ.get("TIDEPOOL_MEMBER_ID", "").startswith("a.1.")

generator = torch.Generator().manual_seed(1)
inputs = torch.randn(96, 8, generator=generator)
data = TensorDataset(inputs, inputs[:, :1])
torch.manual_seed(3)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def own_loop():
    loader, net, steps = prepare(DataLoader(data, batch_size=24, shuffle=True), model, optimizer)
    for _ in epochs(range(3)):
        for features, targets in loader:
            steps.zero_grad()
            nn.functional.mse_loss(net(features), targets).backward()
            steps.step()
            add_up(samples=len(features))
            if options.call == "both" and not is_odd:
                from_first(lambda: 1)
            elif is_odd:
                from_first(lambda: 1) if options.call == "from_first" else totals()


def session_loop():
    session = Session(model, optimizer, effective_batch_size=24)
    for _ in session.epochs(3):
        for step in session.steps(data):
            for features, targets in step:
                step.backward(nn.functional.mse_loss(model(features), targets))
            if is_odd:
                session.sum_over(data, lambda batch: torch.ones(1), width=1)


session_loop() if options.session else own_loop()
