"""A loop with Accelerate that saves with automatic names, and loads the newest state if there is one."""

import os
import signal
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DIES_AT, DIES_IN_SAVE_AT, LOADS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "loads"


class Position:
    """The step, as a part of each state."""

    step = 0

    def state_dict(self):
        if self.step == DIES_IN_SAVE_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


set_seed(7)
accelerator = Accelerator(
    cpu=True, project_config=ProjectConfiguration(project_dir="run", automatic_checkpoint_naming=True)
)
x = torch.linspace(0, 1, 64).unsqueeze(1)
layer = nn.Linear(1, 1)
position = Position()
model, optimizer, loader = accelerator.prepare(
    layer,
    torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9),
    DataLoader(TensorDataset(x, 3 * x + 1), batch_size=8),
)
accelerator.register_for_checkpointing(position)
if LOADS and os.path.isdir("run/checkpoints"):
    accelerator.load_state()
while position.step < 20:
    for inputs, labels in accelerator.skip_first_batches(loader, position.step % 8):
        accelerator.backward(nn.functional.mse_loss(model(inputs), labels))
        optimizer.step()
        optimizer.zero_grad()
        position.step += 1
        print("step", position.step, flush=True)
        if position.step == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        if position.step % 5 == 0:
            accelerator.save_state()
        if position.step == 20:
            break
print("weights", [value.tolist() for value in layer.state_dict().values()], flush=True)
