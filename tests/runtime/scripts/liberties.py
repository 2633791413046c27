"""A training that takes liberties: batch statistics, parameters changed in a step's body, an average swapped in."""

import argparse
import os
import time
from pathlib import Path

import torch
from tidepool.torch import Session
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--samples", type=int, default=384)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--step-seconds", type=float, default=0.1)
parser.add_argument("--batch-norm", action="store_true")
parser.add_argument("--decay", action="store_true", help="shrink the parameters in the body of each step")
parser.add_argument("--average", action="store_true", help="evaluate an average of the parameters after each epoch")
parser.add_argument("--untravelling", action="store_true", help="register state that cannot be carried elsewhere")
parser.add_argument("--out", default=None)
options = parser.parse_args()


class Register:
    """State of the script's own: an average of the parameters over the epochs."""

    def __init__(self, model):
        self.tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.seen = {1} if options.untravelling else [1]

    def state_dict(self):
        return {"tensors": self.tensors, "seen": self.seen}

    def load_state_dict(self, state):
        self.tensors = {name: tensor.clone() for name, tensor in state["tensors"].items()}

    def swap(self, model):
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                kept = tensor.clone()
                tensor.copy_(self.tensors[name])
                self.tensors[name] = kept

    def update(self, model):
        for name, tensor in model.state_dict().items():
            self.tensors[name].lerp_(tensor, 0.5)


torch.manual_seed(3)
# More than fits into the buffers of a connection: a holder is still sending when it goes on.
layers = [nn.Linear(20, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 2)]
if options.batch_norm:
    layers.insert(1, nn.BatchNorm1d(1024))
model = nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
average = Register(model)
inputs = torch.randn(options.samples, 20, generator=torch.Generator().manual_seed(1))
samples = torch.utils.data.TensorDataset(inputs, (inputs[:, :10].sum(1) > inputs[:, 10:].sum(1)).long())
session = Session(model, optimizer, effective_batch_size=options.batch, seed=7, registered={"average": average})


def correct(batch):
    features, labels = batch
    return torch.stack([(model(features).argmax(1) == labels).sum(), torch.tensor(len(labels))])


for _ in session.epochs(options.epochs):
    for step in session.steps(samples):
        if options.decay:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.98)
        for features, labels in step:
            step.backward(nn.functional.cross_entropy(model(features), labels))
        if "TIDEPOOL_MEMBER_ID" in os.environ and not Path(os.environ["DATA_DIR"], "hurry").exists():
            time.sleep(options.step_seconds)
    if options.average:
        average.update(model)
        average.swap(model)
        right, total = session.sum_over(samples, correct, width=2)
        session.report(test_accuracy=100 * right / total)
        average.swap(model)

if options.out:
    torch.save(model.state_dict(), Path(options.out))
