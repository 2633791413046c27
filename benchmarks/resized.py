"""Script that `resize.py` resizes live. It contains no code for being resized."""

import sys

import torch
from networks import TRAININGS
from tidepool.torch import Session
from tidepool.torch.comm.process_group import Group
from torch.nn.functional import cross_entropy

training = TRAININGS[sys.argv[1]]
if "copies" in sys.argv:  # the state is handed over as to ranks of former releases
    Group.has_routes = False  # type: ignore[assignment, method-assign]
torch.manual_seed(0)
model, data = training.network(), training.data("")
optimizer = torch.optim.Adam(model.parameters())


def warm_up() -> None:
    inputs, labels = data[:2]
    cross_entropy(model(inputs), labels).backward()


session = Session(model, optimizer, effective_batch_size=training.batch, warm_up=warm_up, checkpoint_every=0)
for _ in session.epochs(1_000_000):
    for step in session.steps(data):
        for inputs, labels in step:
            step.backward(cross_entropy(model(inputs), labels))
