"""A script in the way of WMLA 4: strict arguments, later spellings, hooks for steps and tests, a callback for rates."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from callbacks import Callback, LoggerCallback

sys.path.append(str(Path(__file__).parents[4] / "examples" / "mnist-edt"))
from idx import read
from pyedt.fabric_model import FabricModel
from torch.nn.functional import cross_entropy

DATA, RESULTS = Path(os.environ["DATA_DIR"]), Path(os.environ["RESULT_DIR"])
hurry = None


class Halving(Callback):
    def __init__(self, fails, dies):
        super().__init__()
        self.fails, self.dies = fails, dies
        self.history = []

    def on_epoch_begin(self, epoch):
        if epoch > 0:
            for group in self.params["optimizer"].param_groups:
                group["lr"] *= 0.5
        if self.dies and epoch == 1 and not (RESULTS / "died").exists():
            (RESULTS / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.note("begin", epoch)

    def on_epoch_end(self, epoch, save_model=False):
        self.note("end", epoch)
        if self.fails:
            epoch / 0

    def note(self, kind, epoch):
        """Carry along what came before, whichever process this is."""
        self.history.append([kind, epoch])
        with (RESULTS / "calls").open("a") as file:
            file.write(json.dumps([kind, epoch, self.history]) + "\n")


class Log(LoggerCallback):
    def log_train_metrics(self, metrics, completed_batch, epoch, worker=0):
        assert list(metrics) == ["loss", "accuracy"]
        assert 0 <= metrics["accuracy"] <= 100

    def log_test_metrics(self, metrics, completed_batch, epoch):
        assert metrics["loss"] > 0


class WorkerLog(LoggerCallback):
    def log_train_metrics(self, metrics, completed_batch, epoch, worker=0):
        with Path(os.environ["LOG_DIR"], "worker").open("a") as file:
            file.write(f"{worker} {epoch} {completed_batch} {metrics['loss']}\n")


def datasets():
    return read(DATA, "train"), read(DATA, "t10k")


def custom_train(model, data, eva, train_loader, fn_args):
    inputs, labels = data
    Path(os.environ["LOG_DIR"], "computes").touch()
    optimizer = model.get_optimizer()
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    if hurry and not hurry.exists():
        time.sleep(0.1)
    return eva(outputs, labels), loss


def custom_test(model, test_iter, fn_args):
    criterion = model.get_loss_function()
    losses = [criterion(model(inputs), labels).item() for inputs, labels in test_iter]
    return sum(losses) / len(losses)


def main():
    global hurry
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--die", action="store_true", help="in a callback, once")
    parser.add_argument("--most", type=int)
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--hurry", type=Path, help="steps are drawn out until this file is there")
    args = parser.parse_args()
    hurry = args.hurry
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    fabric = FabricModel(
        model,
        datasets_function=datasets,
        loss_function=cross_entropy,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5),
        driver_logger_callback=Log(),
        worker_logger_callback=WorkerLog(),
        user_callback=[Halving(args.fail, args.die)],
        scaleup_function=(lambda epoch, most: min(most, args.most)) if args.most else None,
        fn_step_train=custom_train,
        fn_test=custom_test,
        save_to_onnx=args.onnx,
    )
    fabric.train(args.epochs, args.batch_size, 16, validation_freq=2, checkpoint_freq=2, validation_batch_size=100)


if __name__ == "__main__":
    main()
