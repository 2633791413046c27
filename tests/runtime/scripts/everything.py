"""A training that uses all that scripts may: two optimizers, a scaler, hooks, averaged weights, rare parameters."""

import argparse
import json
import os
import random
import time
from pathlib import Path

import numpy
import torch
from tidepool.torch import Session, data
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--samples", type=int, default=1030)
parser.add_argument("--step-seconds", type=float, default=0.0)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--look-ahead", action="store_true", help="take batches ahead, as on a GPU")
parser.add_argument("--out", default=None)
options = parser.parse_args()
if options.look_ahead:
    data._looks_ahead = lambda device, reading: reading.workers > 0
hurry = Path(os.environ.get("DATA_DIR", ".")) / "hurry"


class Network(nn.Module):
    """Layers of several dtypes; `rare` sees one sample in a hundred; `follower` is moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 32, dtype=torch.float64)
        self.skip = nn.Linear(20, 2)
        self.rare = nn.Linear(20, 32)
        self.last = nn.Linear(32, 2)
        self.follower = nn.Linear(32, 2).requires_grad_(False)
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, inputs):
        hidden = self.first(inputs.double()).float()
        chosen = inputs[:, 0] > 2.3
        if chosen.any():
            hidden = hidden.index_add(0, chosen.nonzero().flatten(), self.rare(inputs[chosen]))
        return self.last(hidden.tanh()) + self.skip(inputs)


torch.manual_seed(3)
numpy.random.seed(3)
random.seed(3)
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(options.samples, 20, generator=generator)
samples = torch.utils.data.TensorDataset(inputs, (inputs[:, :10].sum(1) > inputs[:, 10:].sum(1)).long())

model = Network()
head = [*model.last.parameters(), *model.skip.parameters()]
body = [{"params": model.first.parameters(), "lr": 0.002}, {"params": model.rare.parameters(), "weight_decay": 0.1}]
optimizers = {"head": torch.optim.SGD(head, lr=0.05, momentum=0.9), "body": torch.optim.AdamW(body, lr=0.01)}
schedule = torch.optim.lr_scheduler.StepLR(optimizers["head"], 1, 0.99)
per_epoch = torch.optim.lr_scheduler.ExponentialLR(optimizers["body"], 0.9)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7)


def clip():
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def after_update():
    """Not one of these may be done twice, or left out, for the same step."""
    schedule.step()
    average.update_parameters(model)
    with torch.no_grad():
        for follower, leader in zip(model.follower.parameters(), model.last.parameters(), strict=True):
            follower.lerp_(leader, 0.1)
        model.scratch.add_(1)


session = Session(
    model,
    optimizers,
    effective_batch_size=64,
    rank_batch_size=24,
    seed=7,
    registered={"schedule": schedule, "per_epoch": per_epoch, "average": average},
    before_update=clip,
    after_update=after_update,
    scaler=scaler,
)
drawn = []
for _ in session.epochs(options.epochs):
    drawn.append([random.random(), numpy.random.random(), float(torch.rand(()))])
    for step in session.steps(samples, num_workers=options.workers):
        numpy.random.random()  # a draw in a step leaves no trace in draws outside
        for inputs, labels in step:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            step.backward(loss * float("inf") if step.number % 10 == 9 else loss)
        if options.step_seconds and not hurry.exists():
            time.sleep(options.step_seconds)
    per_epoch.step()

result = {
    "model": model.state_dict(),
    "scratch": model.scratch,
    "optimizers": {name: optimizer.state_dict() for name, optimizer in optimizers.items()},
    "schedule": schedule.last_epoch,
    "per_epoch": per_epoch.last_epoch,
    "average": average.state_dict(),
    "scaler": scaler.state_dict(),
}
out = options.out or session.folder / f"result-{session.rank}.pth"
torch.save(result, out)
with open(f"{out}.json", "w") as file:
    json.dump(drawn, file)
