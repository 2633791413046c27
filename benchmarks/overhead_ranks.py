"""A rank of `overhead.py`: steps of an elastic session and of plain DistributedDataParallel, block by block, in turns.

Both train the same network on the same data with the same optimizer and batch. The session's steps do all that they do
on a cluster: sums with a control block, records, a coordinator that may change their number at any time. DDP is what
its tutorial shows: a DataLoader with a DistributedSampler, no record of anything. Rank 0 writes down each block.

    overhead_ranks.py WIDTH BLOCKS STEPS_OF_A_BLOCK
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from networks import CLASSES, layers, samples
from tidepool.torch import Session
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

width, block_count, block_steps = map(int, sys.argv[1:4])
device = torch.device(sys.argv[4] if len(sys.argv) > 4 else "cpu")
INPUTS, BATCH = 256, 64
folder = Path(os.environ["RESULT_DIR"])


def network():
    torch.manual_seed(0)
    return layers(INPUTS, width, width, CLASSES).to(device)


def settle():
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def counted(seconds):
    """Seconds of each step; on a GPU, of their mean."""
    return [sum(seconds) / len(seconds)] if device.type == "cuda" else seconds


class Competitor:
    def __init__(self, data, rank, size):
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/ddp", rank=rank, world_size=size)
        self.model = DistributedDataParallel(network())
        self.optimizer = torch.optim.Adam(self.model.parameters())
        sampler = DistributedSampler(data, size, rank)
        self.loader = DataLoader(data, BATCH // size, sampler=sampler, pin_memory=device.type == "cuda")
        self.batches = iter(())

    def step(self):
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        inputs, labels = (each.to(device, non_blocking=True) for each in batch)
        self.optimizer.zero_grad()
        cross_entropy(self.model(inputs), labels).backward()
        self.optimizer.step()

    def block(self):
        """Seconds of each step, and of the processor in all of them; all ranks begin and end it together."""
        dist.barrier()
        settle()
        seconds, cpu = [], time.process_time()
        for number in range(block_steps):
            begun = time.perf_counter()
            self.step()
            if number + 1 == block_steps:
                settle()
            seconds.append(time.perf_counter() - begun)
        cpu = time.process_time() - cpu
        dist.barrier()
        return seconds, cpu


def main():
    data, model = samples(INPUTS), network()
    session = Session(model, torch.optim.Adam(model.parameters()), effective_batch_size=BATCH)
    competitor, ours, blocks, cpu = None, [], 0, 0.0
    for _ in session.epochs(1_000_000):
        begun = None
        for step in session.steps(data):
            if len(ours) + 1 == block_steps:
                settle()
            now = time.perf_counter()
            if begun is not None:
                ours.append(now - begun)
            if competitor is None:
                competitor = Competitor(data, session.rank, session.world_size)
            if len(ours) == block_steps:
                cpu = time.process_time() - cpu
                ddp, ddp_cpu = competitor.block()
                record = {"ours": counted(ours), "ddp": counted(ddp)}
                record |= {"ours_cpu": [cpu / len(ours)], "ddp_cpu": [ddp_cpu / len(ddp)]}
                if session.rank == 0:
                    with (folder / "blocks.jsonl").open("a") as file:
                        file.write(json.dumps(record) + "\n")
                ours, blocks = [], blocks + 1
            if blocks == block_count:
                sys.exit(0)
            if not ours:
                settle()
                cpu = time.process_time()
            begun = time.perf_counter()
            for inputs, labels in step:
                step.backward(cross_entropy(model(inputs), labels))


main()
