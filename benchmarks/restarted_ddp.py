"""The competitor of `resize.py`: plain DistributedDataParallel that changes its size by stopping and starting again.

A rank of the usual kind: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell it who it is. SIGTERM makes rank 0 write
a checkpoint after the step under way and all ranks end; the next start, at whatever size, continues from it.
Appends `time step world_size` to steps.txt after each step.
"""

import signal
import sys
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

folder, data, example = (Path(argument) for argument in sys.argv[1:4])
sys.path.insert(0, str(example))
from digits_cnn import DigitsCNN  # noqa: E402

BATCH = 64
stop = torch.zeros(1)
signal.signal(signal.SIGTERM, lambda number, frame: stop.fill_(1))
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DigitsCNN()
optimizer = torch.optim.Adam(model.parameters())
step, checkpoint = 0, folder / "checkpoint.pth"
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
parallel = DistributedDataParallel(model)
with numpy.load(data / "train.npz") as arrays:
    images, labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])

while True:
    generator = torch.Generator().manual_seed(step)
    chosen = torch.randint(len(labels), (BATCH,), generator=generator)[rank::size]
    optimizer.zero_grad()
    cross_entropy(parallel(images[chosen]), labels[chosen]).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        with (folder / "steps.txt").open("a") as file:
            file.write(f"{time.time()} {step} {size}\n")
    asked = stop.clone()
    dist.all_reduce(asked)
    if asked.item():
        break

if rank == 0:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, checkpoint)
dist.barrier()
dist.destroy_process_group()
