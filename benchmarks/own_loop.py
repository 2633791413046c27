"""A training with a loop of its own, plain or prepared, for `overhead.py`: blocks of steps in turns with the other one.

    own_loop.py plain|prepared FOLDER WIDTH BLOCKS STEPS_OF_A_BLOCK

The folder has a file `turn` with the name of the one whose turn it is. Each writes its blocks into a file of its name.
"""

import json
import sys
import time
from pathlib import Path

import torch
from networks import CLASSES, layers, samples
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

name, folder = sys.argv[1], Path(sys.argv[2])
width, block_count, block_steps = map(int, sys.argv[3:])
INPUTS, BATCH = 256, 64
OTHER = {"plain": "prepared", "prepared": "plain"}[name]


def wait_for_the_turn() -> None:
    while (folder / "turn").read_text() != name:
        time.sleep(0.001)


def end_the_turn(seconds: list[float], cpu: float) -> None:
    with (folder / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps({"seconds": seconds, "cpu": cpu / len(seconds)}) + "\n")
    file = folder / "turn.new"
    file.write_text(OTHER)
    file.replace(folder / "turn")


torch.set_num_threads(1)
torch.manual_seed(0)
model = layers(INPUTS, width, width, CLASSES)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(samples(INPUTS), BATCH, shuffle=True)
if name == "prepared":
    from tidepool.torch import prepare

    model, optimizer, loader = prepare(model, optimizer, loader)
seconds: list[float] = []
blocks, begun, cpu = 0, 0.0, 0.0
for _ in range(1_000_000):
    for inputs, labels in loader:
        now = time.perf_counter()
        if begun:
            seconds.append(now - begun)
        if len(seconds) == block_steps:
            end_the_turn(seconds, time.process_time() - cpu)
            seconds, blocks = [], blocks + 1
        if blocks == block_count:
            sys.exit(0)
        if not seconds:
            wait_for_the_turn()
            cpu = time.process_time()
        begun = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
