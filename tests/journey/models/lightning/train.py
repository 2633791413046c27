"""A line learned by Lightning, which goes on from the last of its own checkpoints."""

import argparse
import os
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--folder", help="where it saves; without it: CHECKPOINT_DIR")
parser.add_argument("--steps", type=int)
parser.add_argument("--forgets", action="store_true", help="that there are checkpoints")
options = parser.parse_args()
folder = options.folder or os.environ["CHECKPOINT_DIR"]


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch, number):
        time.sleep(0.02)
        x, labels = batch
        return nn.functional.mse_loss(self.layer(x), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    last = Path(folder, "last.ckpt")
    begins = options.forgets or not last.exists()
    print("from", torch.load(last, weights_only=False)["global_step"] if not begins else None, flush=True)
    x = torch.linspace(0, 1, 256).unsqueeze(1)
    trainer = lightning.Trainer(
        max_steps=options.steps,
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=10, save_last=True)],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Line(), DataLoader(TensorDataset(x, 3 * x + 1), batch_size=8), ckpt_path=None if begins else last)
    print("to", trainer.global_step, flush=True)


if __name__ == "__main__":
    main()
