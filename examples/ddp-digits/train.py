"""Handwritten digits with plain DistributedDataParallel: a script that knows nothing of Tidepool.

It runs unchanged by `torchrun --nproc-per-node 2 train.py`, by `python train.py` (one process) and as a fixed-size job.
The data are train.npz and test.npz in DATA_DIR, or scikit-learn's bundled digits where there is no DATA_DIR.

Told to end (SIGTERM), it finishes the step under way, saves, and exits with 0, which says "I can be resumed from
CHECKPOINT_DIR". The next run finds the file there and goes on.
"""

import argparse
import os
import signal
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINT = Path(os.environ.get("CHECKPOINT_DIR", ".")) / "ddp-digits.pt"


def read(name: str) -> TensorDataset:
    if "DATA_DIR" in os.environ:
        with numpy.load(Path(os.environ["DATA_DIR"]) / f"{name}.npz") as arrays:
            return TensorDataset(torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"]))
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    part = slice(0, 1500) if name == "train" else slice(1500, None)
    pixels = torch.from_numpy(images[part] / 16.0).float().reshape(-1, 1, 8, 8)
    return TensorDataset(pixels, torch.from_numpy(labels[part]).long())


class Stop:
    """Whether this process was told to end; what one has heard, all act upon after the same step."""

    def __init__(self) -> None:
        self.told = False
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number, frame) -> None:
        self.told = True

    def agreed(self, device: torch.device) -> bool:
        told = torch.tensor(float(self.told), device=device)
        dist.all_reduce(told)
        return told.item() > 0


def save(model, optimizer, epoch: int, step: int) -> None:
    """Beside, and then renamed: a process that is killed meanwhile leaves the file before it whole."""
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "step": step}
    torch.save(state, f"{CHECKPOINT}.new")
    os.replace(f"{CHECKPOINT}.new", CHECKPOINT)


def accuracy(model, dataset: TensorDataset, device: torch.device) -> float:
    images, labels = (tensor.to(device) for tensor in dataset.tensors)
    with torch.no_grad():
        return (model.module(images).argmax(1) == labels).float().mean().item() * 100


def train(options: argparse.Namespace, stop: Stop, device: torch.device) -> None:
    """The model must be gone before the process group is: DDP's parts of it cannot end without the group."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    model = DistributedDataParallel(network.to(device), device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    train_set, test_set = read("train"), read("test")
    sampler = DistributedSampler(train_set, num_replicas=size, rank=rank, seed=0)
    loader = DataLoader(train_set, batch_size=options.batch_size, sampler=sampler)

    first_epoch, done = 0, 0
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch, done = state["epoch"], state["step"]
        if done >= len(loader):  # the stop came after the epoch's last step
            first_epoch, done = first_epoch + 1, 0
        print(f"rank {rank} goes on at epoch {first_epoch}, step {done}")

    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(loader):
            if number < done:
                continue  # this step was made before the stop
            loss = cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if stop.agreed(device):
                if rank == 0:
                    save(model, optimizer, epoch, number + 1)
                    print(f"saved after epoch {epoch}, step {number + 1}")
                return
        done = 0
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy(model, test_set, device):.2f} %")
            save(model, optimizer, epoch + 1, 0)
    if rank == 0 and "SAVED_MODEL_DIR" in os.environ:
        torch.save(model.module.state_dict(), Path(os.environ["SAVED_MODEL_DIR"]) / "digits.pth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per process and step")
    parser.add_argument("--learning-rate", type=float, default=0.001)
    options = parser.parse_args()

    stop = Stop()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    if "RANK" not in os.environ:  # not under torchrun: alone
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    train(options, stop, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
