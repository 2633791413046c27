"""A training in AdaptDL's manner that goes by `current_index`: it notes it, and sums by it within the epoch."""

import argparse
import os
import time
from pathlib import Path

import adaptdl.env
import adaptdl.torch as adl
import torch
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--step-seconds", type=float, default=0.0, help="draw steps out, until there is a file `hurry`")
parser.add_argument("--every", type=int, default=64, help="samples between two sums")
parser.add_argument("--alone", action="store_true", help="sum once more in the replica of rank 1")
options = parser.parse_args()
hurry = Path(os.environ.get("DATA_DIR", "."), "hurry")

adl.init_process_group("gloo")
torch.manual_seed(3)
inputs = torch.randn(2048, 4)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
loader = adl.AdaptiveDataLoader(data, batch_size=16, shuffle=True, drop_last=True)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
net = adl.AdaptiveDataParallel(net, optimizer)

for epoch in adl.remaining_epochs_until(1):
    stats = adl.Accumulator()
    for features, targets in loader:
        place = adl.current_dataloader()
        at = place.current_index
        size = adaptdl.env.num_replicas()
        print("at", epoch, at, place.current_batch_size, place.current_local_bsz, size, flush=True)
        optimizer.zero_grad()
        functional.mse_loss(net(features), targets).backward()
        optimizer.step()
        stats["samples"] += len(features)
        if at % options.every == 0:
            with stats.synchronized():
                print("sum", epoch, at, stats["samples"], flush=True)
        if options.alone and adaptdl.env.replica_rank() == 1:
            with stats.synchronized():
                pass
        if options.step_seconds and not hurry.exists():
            time.sleep(options.step_seconds)
