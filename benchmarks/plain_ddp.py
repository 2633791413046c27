"""The competitors of `resize` and `recovery`: DistributedDataParallel, which changes by stopping and starting again.

    plain_ddp.py FOLDER TRAINING DATA        SIGTERM: checkpoint after the step under way, and exit (AdaptDL's way)
    plain_ddp.py FOLDER TRAINING DATA 5      under torchrun, which ends it at any moment: a checkpoint every 5 steps

A rank of the usual kind: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell it who it is. The next start, at whatever
size, continues from the checkpoint. Each rank writes its process id to pid-<rank>; rank 0 appends
`time step world_size` to steps.txt after each step.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from networks import TRAININGS
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

folder, training, data = Path(sys.argv[1]), TRAININGS[sys.argv[2]], sys.argv[3]
every = int(sys.argv[4]) if len(sys.argv) > 4 else 0
stop = torch.zeros(1)
if not every:
    signal.signal(signal.SIGTERM, lambda number, frame: stop.fill_(1))
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
(folder / f"pid-{rank}").write_text(str(os.getpid()))

torch.manual_seed(0)
model = training.network()
optimizer = torch.optim.Adam(model.parameters())
step, checkpoint = 0, folder / "checkpoint.pth"
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
parallel = DistributedDataParallel(model)
inputs, labels = training.data(data).tensors


def save() -> None:
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, folder / "checkpoint.new")
        (folder / "checkpoint.new").rename(checkpoint)


while True:
    generator = torch.Generator().manual_seed(step)
    chosen = torch.randint(len(labels), (training.batch,), generator=generator)[rank::size]
    optimizer.zero_grad()
    cross_entropy(parallel(inputs[chosen]), labels[chosen]).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        with (folder / "steps.txt").open("a") as file:
            file.write(f"{time.time()} {step} {size}\n")
    if every:
        if step % every == 0:
            save()
        continue
    asked = stop.clone()
    dist.all_reduce(asked)
    if asked.item():
        break

save()
dist.barrier()
dist.destroy_process_group()
