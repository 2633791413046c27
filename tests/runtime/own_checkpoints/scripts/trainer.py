"""Two trainings of Hugging Face's Trainer, which nobody has told to continue."""

import os
import signal
import sys

import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

DIES_AT, DIES_IN_SAVE_OF = int(sys.argv[1]), int(sys.argv[2])


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.layer(self.dropout(x)), labels)}


class Dying(Trainer):
    """A Trainer whose machine fails."""

    def _save_optimizer_and_scheduler(self, output_dir):
        if self.state.global_step == DIES_IN_SAVE_OF:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._save_optimizer_and_scheduler(output_dir)


class Steps(TrainerCallback):
    def on_step_end(self, args, state, control, **rest):
        print("step", args.output_dir, state.global_step, flush=True)
        if state.global_step == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)


def collate(samples):
    x, labels = zip(*samples, strict=True)
    return {"x": torch.stack(x), "labels": torch.stack(labels)}


def train(folder, steps):
    set_seed(7)
    x = torch.linspace(0, 1, 64).unsqueeze(1)
    arguments = TrainingArguments(
        folder,
        max_steps=steps,
        save_steps=5,
        save_total_limit=2,
        logging_steps=5,
        per_device_train_batch_size=8,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    model = Line()
    Dying(
        model, arguments, train_dataset=TensorDataset(x, 3 * x + 1), data_collator=collate, callbacks=[Steps()]
    ).train()
    return model


train("first", 8)
print("weights", [value.tolist() for value in train("second", 20).state_dict().values()], flush=True)
