"""A training of Lightning with its own checkpoints and logger, which nobody has told to continue."""

import os
import signal
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DIES_AT = int(sys.argv[1])


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch, number):
        x, labels = batch
        loss = nn.functional.mse_loss(self.layer(x), labels)
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, number):
        print("step", self.global_step, flush=True)
        if self.global_step == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


lightning.seed_everything(7, verbose=False)
x = torch.linspace(0, 1, 64).unsqueeze(1)
model = Line()
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    devices=1,
    callbacks=[ModelCheckpoint(every_n_train_steps=8)],
    log_every_n_steps=2,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(TensorDataset(x, 3 * x + 1), batch_size=8))
print("weights", [value.tolist() for value in model.state_dict().values()], flush=True)
