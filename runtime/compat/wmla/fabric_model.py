"""`FabricModel`: IBM WMLA's elastic distributed training API, on Tidepool's session.

    from fabric_model import FabricModel
    FabricModel(model, datasets_fn, loss_fn, optimizer).train(epochs, batch_size, engines_number)

A script written for WMLA trains here unchanged, on however many GPUs its job holds at the moment. What differs from
WMLA is in runtime/README.md.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _wmla import export, schedules
from _wmla.driver import Driver, Plan, Progress, takes
from _wmla.hooks import Batches, HookedModel, accuracy, apart, are_classes, as_number, named_metrics, pair_of
from _wmla.options import datasets_of, parts_of, warn_of_unknown
from callbacks import Callback
from tidepool.env import rank_context, result_folder
from tidepool.torch import Session
from tidepool.torch.data import collate, sample_count, to_device
from tidepool.torch.rank.step import RECORDED, Step
from tidepool.torch.rank.validation import summed_loss
from tidepool.torch.state.checkpoint_files import WEIGHTS_FOLDER, write_weights
from torch.utils.data import DataLoader, Dataset

__all__ = ["FabricModel"]

#: The method of a callback that does nothing after an epoch.
_NO_END = Callback.on_epoch_end


class FabricModel:
    """A model that trains on a changing number of GPUs.

    datasets_fn: called without arguments on each rank; returns (training dataset, test dataset).
    loss_fn: (outputs, labels) -> the mean loss of the batch, a scalar tensor.
    optimizer: built on the model's parameters.
    driver_logger, worker_logger: told the metrics of each step, on one rank or on each. See `callbacks`.
    user_callback: one or several, called between epochs on one rank.
    enable_onnx: save the trained model as ONNX too, where the packages for it are there.
    fn_step_train: (model, batch, eva, train_loader, fn_args) -> (accuracy, loss). It computes gradients by itself, for
        one batch; they are averaged over all ranks, and the optimizer steps.
    fn_test: (model, batches, fn_args) -> the mean loss of these held-out batches.
    scaleup_function: (epoch, most GPUs) -> how many GPUs shall compute in that epoch.

    Later spellings: datasets_function, loss_function, driver_logger_callback, worker_logger_callback, save_to_onnx; and
    metrics, functions of (outputs, labels) that are recorded by their names; fn_batch_collate, which makes a batch of a
    list of samples.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        datasets_fn: Callable[[], Any] | None = None,
        loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        driver_logger: Any = None,
        worker_logger: Any = None,
        user_callback: Any = None,
        enable_onnx: bool | None = None,
        fn_step_train: Callable[..., Any] | None = None,
        fn_test: Callable[..., Any] | None = None,
        scaleup_function: Callable[[int, int], Any] | None = None,
        **later: Any,
    ) -> None:
        older = {name: value for name, value in locals().items() if name not in ("self", "model", "later")}
        self._parts = parts_of(model, {**older, **later})
        self.model = model.cuda() if torch.cuda.is_available() else model
        self.optimizer = self._parts.optimizer
        self._hooked = HookedModel(self.model, self.optimizer, self._parts.loss_fn)
        self._metrics = named_metrics(self._parts.metrics)
        self._session: Session | None = None

    def train(
        self,
        epoch_number: int,
        batch_size: int,
        engines_number: int | None = None,
        num_dataloader_threads: int = 0,
        validation_freq: int = 1,
        checkpoint_freq: int = 1,
        effective_batch_size: int | None = None,
        validation_batch_size: int | None = None,
        **unknown: Any,
    ) -> None:
        """Train to the end; returns on every rank that is there then.

        batch_size: samples that one GPU computes at once. engines_number: the most GPUs that the script asks for.
        num_dataloader_threads: processes of each rank that read samples ahead.
        validation_freq, checkpoint_freq: in epochs, 0 for never.
        effective_batch_size: samples per optimizer step over all GPUs; by default batch_size x the most GPUs the job
        may have. It never changes while training, whatever the number of GPUs: fewer of them take several turns.
        An optimizer of `pth_parameter_mgr` follows the learning rate policy of the model's form.
        """
        warn_of_unknown(sorted(unknown), "train()")
        training, held_out = datasets_of(self._parts.datasets_fn)
        schedule = schedules.schedule_of(self.optimizer)
        if schedules.needs_results(schedule) and not validation_freq:
            raise ValueError("The learning rate policy reducelronplateau needs a validation_freq above 0.")
        context = rank_context()
        limits = (engines_number, context.launch.max_slots if context else None)
        engines = min(filter(None, limits), default=1)
        saves_onnx = self._parts.enable_onnx and not (context and context.launch.validate)
        callbacks_export = self._callbacks_export()
        # Checked before the first step, so that a warning of what is missing does not come after days.
        can_export = (saves_onnx or callbacks_export) and export.can_write_onnx()
        exports = callbacks_export and can_export
        plan = Plan(epoch_number, batch_size, sample_count(training), engines, checkpoint_freq, exports)
        progress = Progress()
        step_size = effective_batch_size or batch_size * engines
        self._session = session = self._new_session(training, held_out, plan, progress, step_size)
        self._introduce_callbacks(plan)
        driver = Driver(session, self._parts, plan, progress)
        loader = DataLoader(training, batch_size, collate_fn=self._parts.fn_batch_collate)
        for epoch in session.epochs(epoch_number):
            driver.begin_epoch(epoch)
            self._train_epoch(session, driver, loader, num_dataloader_threads)
            results: dict[str, float] = {}
            if validation_freq and (epoch + 1) % validation_freq == 0:
                results = self._validate(session, held_out, validation_batch_size or batch_size)
            if results:
                session.report(**{f"test_{name}": value for name, value in results.items()})
                _say(session, f"Epoch {epoch + 1} of {epoch_number}", results)
            schedules.follow(schedule, results)
            self.model.eval()  # a callback may export it
            driver.end_epoch(epoch, results)
        driver.end()
        if saves_onnx and can_export and session.rank == 0:
            self._save_onnx(session, training)

    def download(self, out_dir: str | Path | None = None) -> Path | None:
        """Put the trained weights into a zip in `out_dir`, or among the results; on rank 0, elsewhere None."""
        if self._session is None:
            raise RuntimeError("There is nothing to download yet: call train() first.")
        if self._session.rank != 0:
            return None
        context = self._session.context
        results = self._session.folder or result_folder() or Path()
        if self._session.folder is None:  # off the cluster nobody has saved them
            write_weights(results, "model_epoch_final", self.model, self._session.optimizers, {})
        name = f"{context.job}.zip" if context else "model.zip"
        saved = export.zip_weights(results / WEIGHTS_FOLDER, Path(out_dir or results) / name)
        sys.stdout.write(f"Save model:  {saved}\n")
        return saved

    # --- steps ---

    def _new_session(
        self, training: Dataset[Any], held_out: Dataset[Any] | None, plan: Plan, progress: Progress, step_size: int
    ) -> Session:
        schedule = schedules.schedule_of(self.optimizer)
        session = Session(
            self.model,
            self.optimizer,
            effective_batch_size=step_size,
            rank_batch_size=plan.batch_size,
            registered={"wmla": progress, **({"schedule": schedule} if schedule else {})},
            warm_up=None if self._parts.fn_step_train else lambda: self._warm_up(training, plan.batch_size),
            checkpoint_every=plan.checkpoint_freq or None,
        )
        if held_out is not None and self._parts.loss_fn is not None:
            session.validate_on(held_out, self._parts.loss_fn, collate_fn=self._parts.fn_batch_collate)
        return session

    def _callbacks_export(self) -> bool:
        """Return whether callbacks want to be told in the end that they can export. WMLA's samples do it on a GPU."""
        own = [each for each in self._parts.callbacks if getattr(type(each), "on_epoch_end", None) is not _NO_END]
        is_requested = any(takes(each, "on_epoch_end", "save_model") for each in own)
        return is_requested and torch.cuda.is_available()

    def _introduce_callbacks(self, plan: Plan) -> None:
        for callback in self._parts.callbacks:
            callback.model = self.model
            callback.params = {
                "optimizer": self.optimizer,
                "epochs": plan.epochs,
                "batch_size": plan.batch_size,
                "steps": plan.batches,
                "samples": plan.samples,
            }

    def _train_epoch(self, session: Session, driver: Driver, loader: DataLoader[Any], workers: int) -> None:
        self.model.train()
        for step in session.steps(loader.dataset, num_workers=workers, collate_fn=self._parts.fn_batch_collate):
            driver.follow()
            for batch in step:
                if self._parts.fn_step_train is None:
                    self._step(step, batch)
                else:
                    self._step_by_hook(session, step, batch, loader)

    def _step(self, step: Step, batch: Any) -> None:
        assert self._parts.loss_fn is not None
        inputs, labels = batch
        outputs = self.model(inputs)
        step.backward(self._parts.loss_fn(outputs, labels))
        recorded = RECORDED
        if are_classes(outputs, labels):
            step.log(accuracy=accuracy(outputs, labels))
            recorded |= {"accuracy"}
        for name, metric in self._metrics.items():
            step.log(**{apart(name, recorded): metric(outputs.detach(), labels)})

    def _step_by_hook(self, session: Session, step: Step, batch: Any, loader: DataLoader[Any]) -> None:
        hook = self._parts.fn_step_train
        assert hook is not None
        found: list[float] = []

        def compute() -> Any:
            score, loss = pair_of(hook(self._hooked, batch, accuracy, loader, _hook_arguments(session)))
            found.append(score)
            return loss

        step.run(compute)
        if math.isfinite(found[0]):
            step.log(accuracy=found[0])

    def _save_onnx(self, session: Session, training: Dataset[Any]) -> None:
        def sample() -> Any:
            return to_device(collate(training, [0, 0], self._parts.fn_batch_collate), session.device)[0]

        folder = session.folder or result_folder() or Path()
        export.write_onnx(self.model, sample, folder / "model" / "trained_model.onnx")

    # --- validation ---

    def _validate(self, session: Session, held_out: Dataset[Any] | None, batch_size: int) -> dict[str, float]:
        """Mean loss, and accuracy in percent where outputs are scores of classes; empty if there are no such data."""
        self.model.eval()
        if held_out is None:
            return {}
        if self._parts.fn_test is not None:
            return self._validate_by_hook(session, held_out, batch_size)
        if self._parts.loss_fn is None:
            return {}
        loss, correct, total, classified = session.sum_over(
            held_out, self._measure, width=4, batch_size=batch_size, collate_fn=self._parts.fn_batch_collate
        )
        results = {"loss": loss / total if total else math.nan}
        if classified:
            results["accuracy"] = 100.0 * correct / classified
        return results

    def _validate_by_hook(self, session: Session, held_out: Dataset[Any], batch_size: int) -> dict[str, float]:
        """Mean over the batches of all ranks, as the hook would have it over all of them alone."""
        hook = self._parts.fn_test
        assert hook is not None
        batches = Batches(held_out, batch_size, self._parts.fn_batch_collate, session.device)

        def measure(numbers: list[int]) -> torch.Tensor:
            loss = as_number(hook(self._hooked, batches.read(numbers), _hook_arguments(session)), "fn_test's loss")
            return torch.tensor([loss * len(numbers), len(numbers)], dtype=torch.float64)

        loss, count = session.sum_over(batches, measure, width=2, batch_size=len(batches), collate_fn=list)
        return {"loss": loss / count}

    def _measure(self, batch: Any) -> torch.Tensor:
        """Return [sum of losses, correct answers, what the losses count, samples that are answered by a class]."""
        assert self._parts.loss_fn is not None
        inputs, labels = batch
        outputs = self.model(inputs)
        loss, count = summed_loss(self._parts.loss_fn, outputs, labels, len(labels))
        if not are_classes(outputs, labels):
            return torch.tensor([loss, 0.0, count, 0.0], dtype=torch.float64)
        correct = (outputs.argmax(1) == labels).sum()
        return torch.tensor([loss, float(correct), count, len(labels)], dtype=torch.float64)

    def _warm_up(self, training: Dataset[Any], batch_size: int) -> None:
        """Run one forward and backward: the first of a process is many times slower than the rest."""
        assert self._parts.loss_fn is not None
        self.model.train()
        batch = collate(training, [0] * min(batch_size, 2), self._parts.fn_batch_collate)
        inputs, labels = to_device(batch, next(self.model.parameters()).device)
        self._parts.loss_fn(self.model(inputs), labels).backward()  # type: ignore[no-untyped-call]


def _hook_arguments(session: Session) -> dict[str, Any]:
    """Return the `fn_args` of hooks."""
    position = session.position
    return {
        "epoch": position.epoch,
        "step": position.step,
        "device": session.device,
        "rank": session.rank,
        "world_size": session.world_size,
    }


def _say(session: Session, what: str, results: dict[str, float]) -> None:
    """Print a line in the log of whoever is rank 0."""
    if session.rank == 0:
        shown = ", ".join(f"test {name} {value:.4g}" for name, value in results.items())
        sys.stdout.write(f"{what} on {session.world_size} GPUs: {shown}\n")
