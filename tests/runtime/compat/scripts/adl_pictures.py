"""A training in the manner of AdaptDL's example of CIFAR: its calls in their order, on pictures of that format.

What that example takes from torchvision stands here, as small as it can be: a dataset that one replica writes and all
read, random crops and flips, normalization. So does a writer of scalars in TensorBoard's place.
"""

import argparse
import json
import os
import pickle
import time
from pathlib import Path

import adaptdl
import adaptdl.torch as adl
import numpy
import torch
from adaptdl.torch.scaling_rules import AdaScale
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import MultiStepLR

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--samples", type=int, default=210)
parser.add_argument("--bs", type=int, default=50)
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
options = parser.parse_args()
hurry = Path(os.environ.get("DATA_DIR", "."), "hurry")
MEAN, DEVIATION = (torch.tensor(values).view(3, 1, 1) for values in ((0.49, 0.48, 0.45), (0.20, 0.20, 0.20)))


class Pictures(torch.utils.data.Dataset):
    """Rows of 3,072 bytes in pickled files: 32 x 32 of red, then of green, then of blue."""

    def __init__(self, root, name, augmented, download=False):
        path = Path(root, f"{name}.pickle")
        if download:
            draw = numpy.random.default_rng(1)
            rows = draw.integers(0, 256, (options.samples, 3072), dtype=numpy.uint8)
            path.write_bytes(pickle.dumps({"data": rows, "labels": draw.integers(0, 10, options.samples).tolist()}))
        content = pickle.loads(path.read_bytes())
        self.pictures = torch.from_numpy(content["data"]).view(-1, 3, 32, 32)
        self.labels, self.augmented = content["labels"], augmented

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = (self.pictures[index] / 255 - MEAN) / DEVIATION
        if self.augmented:
            top, left = torch.randint(0, 9, (2,)).tolist()
            picture = functional.pad(picture, (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
            picture = picture.flip(-1) if torch.rand(1) < 0.5 else picture
        return picture, self.labels[index]


class Writer:
    def __init__(self, folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._path = Path(folder, f"events.{os.getpid()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def add_scalar(self, tag, value, step):
        with self._path.open("a") as file:
            file.write(json.dumps([tag, float(value), step]) + "\n")


adl.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
root = adaptdl.env.share_path()
if adaptdl.env.replica_rank() == 0:
    trainset = Pictures(root, "pictures", augmented=True, download=True)
    trainloader = adl.AdaptiveDataLoader(trainset, batch_size=options.bs, shuffle=True, num_workers=1, drop_last=True)
    torch.distributed.barrier()
else:
    torch.distributed.barrier()
    trainset = Pictures(root, "pictures", augmented=True)
    trainloader = adl.AdaptiveDataLoader(trainset, batch_size=options.bs, shuffle=True, num_workers=1, drop_last=True)
validset = Pictures(root, "pictures", augmented=False)
validloader = adl.AdaptiveDataLoader(validset, batch_size=40, shuffle=False, num_workers=0)

torch.manual_seed(3)
net = nn.Sequential(nn.Conv2d(3, 4, 5, stride=3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, 10))
criterion = nn.CrossEntropyLoss()
groups = [{"params": [parameter]} for parameter in net.parameters()]
optimizer = torch.optim.SGD(groups, lr=0.02, momentum=0.9, weight_decay=5e-4)
lr_scheduler = MultiStepLR(optimizer, [2, 4], 0.1)
net = adl.AdaptiveDataParallel(net, optimizer, lr_scheduler, AdaScale())


def count(stats, outputs, targets):
    stats["loss_sum"] += criterion(outputs, targets).item() * targets.size(0)
    stats["total"] += targets.size(0)
    stats["correct"] += outputs.max(1)[1].eq(targets).sum().item()


def tell(stats, words, epoch):
    with stats.synchronized():
        stats["loss_avg"] = stats["loss_sum"] / stats["total"]
        writer.add_scalar(f"Loss/{words}", stats["loss_avg"], epoch)
        print(words, stats["total"], stats["correct"], flush=True)


def train(epoch):
    net.train()
    stats = adl.Accumulator()
    for inputs, targets in trainloader:
        if options.step_seconds and not hurry.exists():
            time.sleep(options.step_seconds)
        optimizer.zero_grad()
        outputs = net(inputs)
        criterion(outputs, targets).backward()
        optimizer.step()
        count(stats, outputs, targets)
    trainloader.to_tensorboard(writer, epoch, tag_prefix="AdaptDL/Data/")
    net.to_tensorboard(writer, epoch, tag_prefix="AdaptDL/Model/")
    tell(stats, "Train", epoch)


def valid(epoch):
    net.eval()
    stats = adl.Accumulator()
    with torch.no_grad():
        for inputs, targets in validloader:
            count(stats, net(inputs), targets)
    tell(stats, "Valid", epoch)


folder = os.environ["ADAPTDL_TENSORBOARD_LOGDIR"] if adaptdl.env.replica_rank() == 0 else str(hurry.parent)
with Writer(Path(folder, adaptdl.env.job_id())) as writer:
    for epoch in adl.remaining_epochs_until(options.epochs):
        train(epoch)
        valid(epoch)
        lr_scheduler.step()
