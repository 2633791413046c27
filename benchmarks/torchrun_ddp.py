"""The competitor of `recovery.py`: plain DistributedDataParallel under `torchrun`, which starts all ranks again.

Rank 0 writes a checkpoint after every tenth step; each start continues from it. Appends `time step` to steps.txt after
each step, and each rank its process id to pid-<rank>.
"""

import os
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
EVERY = 10
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
(folder / f"pid-{rank}").write_text(str(os.getpid()))

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
            file.write(f"{time.time()} {step}\n")
        if step % EVERY == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(saved, folder / ".checkpoint.pth")
            (folder / ".checkpoint.pth").rename(checkpoint)
