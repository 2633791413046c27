"""A training whose layers look at their batch (BatchNorm) and draw random numbers (Dropout); sizes divide badly."""

import argparse
import random
import time

import numpy
import torch
from tidepool.torch import Session
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--rank-batch", type=int, default=None)
parser.add_argument("--slow-until", default=None, help="a file of the job; until it exists each step takes time")
parser.add_argument("--virtual-ranks", type=int, default=None)
parser.add_argument("--device", default="cpu")
parser.add_argument("--plain", action="store_true", help="nothing that looks at its batch, nothing random")
parser.add_argument("--out", default=None)
options = parser.parse_args()

SAMPLES, BATCH = 159, 30


class Images(torch.utils.data.Dataset):
    """Augmented with random numbers of Python and numpy, as scripts do."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(SAMPLES, 1, 8, 8, generator=generator)
        self.labels = (self.images.mean((1, 2, 3)) > 0).long()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        image = self.images[index]
        if options.plain:
            return image, self.labels[index]
        if random.random() < 0.5:
            image = image.flip(2)
        return image + float(numpy.random.normal(0.0, 0.01)), self.labels[index]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(128, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, images):
        if self.training:
            self.seen = self.seen * 0.9 + images.mean().double() / 3  # replaced, not changed in place; of another type
        return self.head(self.features(images).flatten(1))


torch.manual_seed(3)
plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
model = (plain if options.plain else Network()).to(options.device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.7, patience=0)
images = Images()
session = Session(
    model,
    optimizer,
    effective_batch_size=BATCH,
    rank_batch_size=options.rank_batch,
    seed=7,
    registered={"schedule": schedule},
    checkpoint_every=1,
    exactness="bitwise" if options.virtual_ranks else None,
    virtual_ranks=options.virtual_ranks,
)


def measure(batch):
    inputs, labels = batch
    loss = nn.functional.cross_entropy(model(inputs), labels, reduction="sum")
    return torch.stack([loss, torch.tensor(len(labels), device=loss.device)])


for _ in session.epochs(options.epochs):
    model.train()
    for step in session.steps(images):
        for inputs, labels in step:
            outputs = model(inputs)
            step.backward(nn.functional.cross_entropy(outputs, labels))
            step.log(accuracy=(outputs.argmax(1) == labels).float().mean() * 100)
        if options.slow_until and not (session.folder / options.slow_until).exists():
            time.sleep(0.3)
    model.eval()
    loss, count = session.sum_over(images, measure, width=2, batch_size=50)
    session.report(test_loss=loss / count)
    schedule.step(loss)  # depends on the sum over all ranks

if options.out:
    losses = [record["loss"] for record in session.position.records]
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}, options.out)
