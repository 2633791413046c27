"""A line learned by Hugging Face's Trainer, which goes on from the newest of its own checkpoints."""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--folder", help="where it saves; without it: CHECKPOINT_DIR")
parser.add_argument("--steps", type=int)
parser.add_argument("--saves-when-told", action="store_true", help="on SIGTERM, and exits with 0")
parser.add_argument("--forgets", action="store_true", help="that there are checkpoints")
options = parser.parse_args()
folder = options.folder or os.environ["CHECKPOINT_DIR"]


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.layer(x), labels)}


class Slowly(TrainerCallback):
    def on_step_end(self, args, state, control, **rest):
        time.sleep(0.02)


def collate(samples):
    x, labels = zip(*samples, strict=True)
    return {"x": torch.stack(x), "labels": torch.stack(labels)}


def main():
    Path(folder).mkdir(parents=True, exist_ok=True)
    x = torch.linspace(0, 1, 256).unsqueeze(1)
    arguments = TrainingArguments(
        folder,
        max_steps=options.steps,
        save_steps=10,
        save_total_limit=2,
        enable_jit_checkpoint=options.saves_when_told,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(
        Line(), arguments, train_dataset=TensorDataset(x, 3 * x + 1), data_collator=collate, callbacks=[Slowly()]
    )
    last = None if options.forgets else get_last_checkpoint(folder)
    print("from", last and Path(last).name, flush=True)
    trainer.train(resume_from_checkpoint=last)
    print("to", trainer.state.global_step, flush=True)


if __name__ == "__main__":
    main()
