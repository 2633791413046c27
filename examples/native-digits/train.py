"""Handwritten digits with what real trainings need, in the native API.

Clipped gradients, a learning rate that follows the steps, averaged weights, workers that read and augment the images,
micro-batches of a bounded size, and accuracy on held-out images after each epoch. Runs by `python train.py` (one
process) and as a Tidepool job (any number of GPUs). train.npz and test.npz are in DATA_DIR.
"""

import argparse
import os
from pathlib import Path

import numpy
import torch
from tidepool.torch import Session
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset

BATCH = 64


class Digits(Dataset):
    """[1, 8, 8] grey images in 0..1, moved by a pixel at random where `moving`."""

    def __init__(self, name: str, moving: bool = False) -> None:
        with numpy.load(Path(os.environ.get("DATA_DIR", ".")) / name) as arrays:
            self.images, self.labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])
        self.moving = moving

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.images[index]
        if self.moving:
            down, right = torch.randint(0, 3, (2,)).tolist()
            image = nn.functional.pad(image, (1, 1, 1, 1))[:, down : down + 8, right : right + 8]
        return image, self.labels[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    train_set, test_set = Digits("train.npz", moving=True), Digits("test.npz")
    steps = options.epochs * -(-len(train_set) // BATCH)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.005, total_steps=steps)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))

    def clip() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def follow() -> None:
        schedule.step()
        average.update_parameters(model)

    def measure(batch) -> torch.Tensor:
        images, labels = batch
        return torch.stack([(average(images).argmax(1) == labels).sum(), torch.tensor(len(labels), device=device)])

    session = Session(
        model,
        optimizer,
        effective_batch_size=BATCH,
        rank_batch_size=32,
        registered={"schedule": schedule, "average": average},
        before_update=clip,
        after_update=follow,
    )
    session.validate_on(test_set, cross_entropy)  # when somebody validates what was trained
    for epoch in session.epochs(options.epochs):
        for step in session.steps(train_set, num_workers=options.workers):
            for images, labels in step:
                outputs = model(images)
                step.backward(cross_entropy(outputs, labels, label_smoothing=0.05))
                step.log(accuracy=(outputs.argmax(1) == labels).float().mean() * 100)
        right, total = session.sum_over(test_set, measure, width=2)
        session.report(test_accuracy=100 * right / total)
        if session.rank == 0:
            print(
                f"Epoch {epoch + 1}: {100 * right / total:.1f} % of the held-out images, on {session.world_size} GPUs"
            )


if __name__ == "__main__":
    main()
