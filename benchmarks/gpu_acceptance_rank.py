"""Rank of `gpu_acceptance.py`: trains a network of a given width, and records what its groups and its memory cost.

    gpu_acceptance_rank.py DEVICE WIDTH [SHARE] [FILL]

SHARE: 1 lets NCCL take several ranks of one GPU. FILL: fraction of the GPU's memory that the first rank takes.
"""

import json
import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path

import torch
from networks import CLASSES, layers, samples
from tidepool.torch import Session
from tidepool.torch.comm import nccl, process_group
from tidepool.torch.rank import control
from torch.nn.functional import cross_entropy

device, width = torch.device(sys.argv[1]), int(sys.argv[2])
shares = len(sys.argv) > 3 and sys.argv[3] == "1"
fill = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
record = (Path(os.environ["LOG_DIR"]) / "acceptance.jsonl").open("a", buffering=1)


def tell(**values: object) -> None:
    record.write(json.dumps({"at": time.time(), **values}) + "\n")


if shares:  # NCCL looks for two ranks on one GPU among those of one host
    os.environ["NCCL_HOSTID"] = os.environ["TIDEPOOL_MEMBER_ID"]
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"  # from NCCL 2.30
    process_group.device_name = lambda device: os.environ["TIDEPOOL_MEMBER_ID"]

make_group, wait, abort = control.make_group, process_group.Group.wait, nccl.Nccl._abort
#: Generation -> number of its sums that were waited for.
sums: Counter[int] = Counter()


def free_bytes() -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


def measured_make(**words: object) -> object:
    begun, free = time.monotonic(), free_bytes()
    group = make_group(**words)
    figures = {"seconds": time.monotonic() - begun, "bytes": free - free_bytes()}
    tell(kind="group", size=group.size, nccl=group._nccl is not None, broadcasts=group.broadcasts, **figures)
    return group


def measured_wait(group: process_group.Group, work: object) -> None:
    begun = time.monotonic()
    wait(group, work)
    if work is not None:
        sums[group.generation] += 1
        if sums[group.generation] <= 2:
            tell(kind="sum", number=sums[group.generation], seconds=time.monotonic() - begun)


def measured_abort(communicator: nccl.Nccl) -> None:
    begun = time.monotonic()
    abort(communicator)
    tell(kind="abort", seconds=time.monotonic() - begun)


control.make_group = measured_make
process_group.Group.wait = measured_wait
nccl.Nccl._abort = measured_abort
torch.manual_seed(0)
model = layers(128, width, width, CLASSES).to(device)
if device.type == "cuda":
    tell(kind="product", value=(torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)).sum().item())
    if fill and os.environ["TIDEPOOL_SLOT"] == "0":
        free, total = torch.cuda.mem_get_info(device)
        ballast = torch.empty(max(0, int(free - (1 - fill) * total)), dtype=torch.uint8, device=device)
data = samples(128)
optimizer = torch.optim.Adam(model.parameters())


def warm_up() -> None:
    inputs, labels = data[:2]
    cross_entropy(model(inputs.to(device)), labels.to(device)).backward()


def peak_bytes() -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


every = float(os.environ.get("ACCEPTANCE_CHECKPOINT_SECONDS", "0"))
session = Session(model, optimizer, effective_batch_size=64, warm_up=warm_up, checkpoint_every=every)
size = 0
for _ in session.epochs(1_000_000):
    for step in session.steps(data):
        for inputs, labels in step:
            step.backward(cross_entropy(model(inputs), labels))
        if session.world_size != size:
            size = session.world_size
            tell(kind="memory", size=size, peak_bytes=peak_bytes(), leaked=len(nccl._leaked))
