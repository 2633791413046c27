"""Counts what would have the host wait for a GPU in each step of a training: numbers that are read, and numbers of
Python's that are made tensors, which a GPU gets by a copy from pageable memory.

    host_waits.py FILE [DEVICE] [WAY]

WAY: `session`, the default, or `prepared`, a loop of the script's own.

On a GPU it also counts what CUDA itself says to have waited for.
"""

import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
from tidepool.torch import Session, prepare
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, operation, types, args=(), named=None):
        name = operation.overloadpacket.__name__
        if name in {"_local_scalar_dense", "nonzero"}:
            self.found["read"] += 1
        return operation(*args, **(named or {}))


counting, make, read = Counting(), torch.tensor, torch.Tensor.tolist


def counted_make(*args, **named):
    counting.found["made"] += 1
    return make(*args, **named)


def counted_read(tensor):
    counting.found["read"] += 1
    return read(tensor)


def counted_warning(message, *place, **named):
    counting.found["waited"] += "synchronizing" in str(message)


torch.tensor, torch.Tensor.tolist = counted_make, counted_read
torch.manual_seed(0)
device = torch.device(sys.argv[2] if len(sys.argv) > 2 else "cpu")
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 2)).to(device)
if device.type == "cuda":
    warnings.simplefilter("always")
    warnings.showwarning = counted_warning
    torch.cuda.set_sync_debug_mode("warn")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randint(0, 2, (640,)))
counts = []


def note():
    counts.append(dict(counting.found))
    counting.found.clear()


def by_session():
    session = Session(model, optimizer, effective_batch_size=64)
    with counting:
        for _ in session.epochs(1):
            for step in session.steps(data):
                for inputs, labels in step:
                    step.backward(nn.functional.cross_entropy(model(inputs), labels))
                note()


def by_own_loop():
    loader, own, its = prepare(torch.utils.data.DataLoader(data, 64, shuffle=True), model, optimizer)
    with counting:
        for inputs, labels in loader:
            its.zero_grad()
            nn.functional.cross_entropy(own(inputs.to(device)), labels.to(device)).backward()
            its.step()
            note()


by_own_loop() if sys.argv[3:] == ["prepared"] else by_session()
Path(sys.argv[1]).write_text(json.dumps(counts))
