"""`AdaptiveDataLoader`: a DataLoader whose batches are divided among the replicas."""

import math
from collections.abc import Iterator, Sized
from typing import Any, Protocol

from tidepool.torch.data import epoch_order, sample_count
from tidepool.torch.rank.training_loop import TrainingLoop
from torch.utils.data import DataLoader, Dataset, Sampler

from adaptdl import env
from adaptdl._loops import evaluated, trained, trains
from adaptdl._training import training

__all__ = ["AdaptiveDataLoader", "AdaptiveDataLoaderHelper", "ElasticSampler", "current_dataloader"]


class Writer(Protocol):
    """A SummaryWriter of torch.utils.tensorboard."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


class ElasticSampler(Sampler[int]):
    """Every n-th index of an epoch's order, for the n replicas that there are; filled up so that all get as many."""

    def __init__(self, dataset: Sized, shuffle: bool = True) -> None:
        self.dataset, self.shuffle = dataset, shuffle
        self.num_replicas, self.rank = env.num_replicas(), env.replica_rank()
        self.epoch = self.index = 0

    def __iter__(self) -> Iterator[int]:
        samples = len(self.dataset)
        order = epoch_order(0, self.epoch, samples, self.index // samples) if self.shuffle else list(range(samples))
        own = order[self.index % samples + self.rank :: self.num_replicas]
        return iter(own if len(own) == len(self) else [*own, order[self.rank]])

    def __len__(self) -> int:
        return math.ceil((len(self.dataset) - self.index % len(self.dataset)) / self.num_replicas)

    def set_epoch(self, epoch: int, index: int = 0) -> None:
        """index: of the sample to begin with; beyond the dataset's end it is of a further pass."""
        self.epoch, self.index = epoch, index


class AdaptiveDataLoaderHelper:
    """A loader as `current_dataloader()` returns it while it is iterated."""

    def __init__(self, batch_size: int = 1) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size is {batch_size!r}: give the samples of a batch over all replicas")
        ours = training()
        if ours.place.source is not None:
            raise RuntimeError("an AdaptiveDataLoader cannot be made in a loop over another one")
        self.batch_size = batch_size
        self.max_batch_size: int | None = None
        self.local_bsz_bounds: tuple[int | None, int | None] | None = None
        self.accumulates = False
        ours.first = ours.first or self

    @property
    def training(self) -> bool:
        return training().trained is self

    def train(self) -> None:
        """Be the loader of the training, if none is."""
        training().trained = training().trained or self

    def autoscale_batch_size(
        self,
        max_batch_size: int,
        local_bsz_bounds: tuple[int | None, int | None] | None = None,
        gradient_accumulation: bool = False,
    ) -> None:
        if not isinstance(max_batch_size, int) or max_batch_size < self.batch_size:
            raise ValueError(f"max_batch_size is {max_batch_size!r}: it is at least the batch_size, {self.batch_size}")
        low, high = local_bsz_bounds or (None, None)
        if (low or 0) > self.batch_size or (high is not None and high < self.batch_size):
            raise ValueError(f"local_bsz_bounds are {local_bsz_bounds}: they include the batch_size, {self.batch_size}")
        if training().training_loop is not None:
            raise RuntimeError("call autoscale_batch_size before the first epoch, or loop over a loader, begins")
        self.max_batch_size, self.local_bsz_bounds = max_batch_size, local_bsz_bounds
        self.accumulates = gradient_accumulation
        self.train()

    @property
    def is_iterated(self) -> bool:
        return training().place.source is self

    @property
    def _training_loop(self) -> TrainingLoop | None:
        """The training, if this loader is the training's, or may become it in the loop under way."""
        ours = training()
        return ours.training_loop if self.training or (self.is_iterated and ours.place.trains) else None

    @property
    def current_index(self) -> int | None:
        """Samples that the loop has used so far, over all replicas."""
        training_loop = self._training_loop
        if not self.is_iterated:
            return None
        return training_loop.position.cursor if training_loop is not None else 0

    @property
    def current_batch_size(self) -> int | None:
        return self._batch_size_now if self.is_iterated else None

    @property
    def _batch_size_now(self) -> int:
        training_loop = self._training_loop
        return training_loop.position.effective_batch_size if training_loop is not None else self.batch_size

    @property
    def current_local_bsz(self) -> int | None:
        """Samples of the largest batch that a replica has in a step."""
        training_loop, batch = self._training_loop, self.current_batch_size
        if batch is None:
            return None
        if training_loop is None:
            return self.batch_size
        share = -(-batch // training_loop.world_size)
        return min(
            share, training_loop.division.largest(batch, training_loop.position.step, training_loop.world_size) or share
        )

    @property
    def accumulation_steps(self) -> int:
        """Batches of a step, on each replica, before the last one."""
        training_loop = training().training_loop
        return (
            training_loop.adaptation.choice.accumulation
            if training_loop is not None and training_loop.adaptation is not None
            else 0
        )

    def is_optim_step(self) -> bool:
        """The batch under way is the last one of its step."""
        script_loop = training().script_loop
        return script_loop is None or script_loop.is_whole

    def is_accum_step(self) -> bool:
        return not self.is_optim_step()

    def to_tensorboard(self, writer: Writer, global_step: int, tag_prefix: str = "") -> None:
        """Write the batch's sizes as they are now."""
        batch = self._batch_size_now
        pieces = env.num_replicas() * (self.accumulation_steps + 1)
        prefix = tag_prefix if not tag_prefix or tag_prefix.endswith("/") else f"{tag_prefix}/"
        writer.add_scalar(f"{prefix}Total_Batch_Size", batch, global_step)
        writer.add_scalar(f"{prefix}Local_Batch_Size", -(-batch // pieces), global_step)
        writer.add_scalar(f"{prefix}Accumulation_Steps", self.accumulation_steps, global_step)


def __getattr__(name: str) -> Any:
    """Refuse, as a missing name is refused, what loaders of one's own were built on."""
    if name == "AdaptiveDataLoaderMixin":
        raise ImportError(
            "adaptdl.torch.data.AdaptiveDataLoaderMixin is not here: loops are divided and steps are measured by the "
            "training itself. Make a Dataset, and take an AdaptiveDataLoader"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def current_dataloader() -> AdaptiveDataLoaderHelper | None:
    """Return the loader of the loop under way; None outside of one."""
    source = training().place.source
    return source if isinstance(source, AdaptiveDataLoaderHelper) else None


class AdaptiveDataLoader(DataLoader[Any]):
    """`batch_size` is of all replicas together; each gets its share, and the batches of an evaluation are shared out.

    The loader is the training's if it is the first that is iterated while the model is in train mode, or the one whose
    batch size may change. Raises ValueError for a sampler or batch_sampler.
    """

    def __init__(self, dataset: Dataset[Any], batch_size: int = 1, shuffle: bool = False, **kwargs: Any) -> None:
        for name in ("sampler", "batch_sampler"):
            if kwargs.get(name) is not None:
                raise ValueError(f"an AdaptiveDataLoader takes no {name}: it divides the samples itself")
        sample_count(dataset)
        self._elastic = AdaptiveDataLoaderHelper(batch_size)
        self._shuffle = shuffle
        kwargs |= {"sampler": ElasticSampler(dataset, shuffle=shuffle), "batch_sampler": None}  # type: ignore[arg-type]
        super().__init__(dataset, batch_size, shuffle=False, **kwargs)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """The batches that are left to do, of those that this replica gets."""
        ours, source = training(), self._elastic
        ours.settle()
        joins = ours.joins()
        if not ours.begins_loop(source):
            return
        ours.place.source = source
        try:
            if not joins:
                yield from self._all(ours.place.epoch or 0)
            elif trains(ours, source):
                ours.place.trains = True
                yield from trained(ours, source, self, shuffle=self._shuffle)
            else:
                yield from evaluated(ours, source, self, shuffle=self._shuffle)
        finally:
            ours.place.source, ours.place.trains = None, False

    def _all(self, epoch: int) -> Iterator[Any]:
        self.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        yield from super().__iter__()

    def __len__(self) -> int:
        """Batches of a pass over all of the data, at the batch size of now."""
        samples, size = len(self.dataset), self._elastic.current_batch_size or self._elastic.batch_size  # type: ignore[arg-type]
        return samples // size if self.drop_last else -(-samples // size)

    def autoscale_batch_size(
        self,
        max_batch_size: int,
        local_bsz_bounds: tuple[int | None, int | None] | None = None,
        gradient_accumulation: bool = False,
    ) -> None:
        """Let the batch size change, up to a largest one; learning rates follow by the scaling rule.

        local_bsz_bounds: least and most samples that a replica computes at once; without it at most `batch_size`.
        Raises ValueError for bounds that exclude the present batch size.
        """
        self._elastic.autoscale_batch_size(max_batch_size, local_bsz_bounds, gradient_accumulation)

    @property
    def current_batch_size(self) -> int | None:
        """Samples of the step over all replicas; None outside of a loop."""
        return self._elastic.current_batch_size

    @property
    def current_local_bsz(self) -> int | None:
        return self._elastic.current_local_bsz

    @property
    def accumulation_steps(self) -> int:
        return self._elastic.accumulation_steps

    @property
    def training(self) -> bool:
        return self._elastic.training

    def to_tensorboard(self, writer: Writer, global_step: int, tag_prefix: str = "") -> None:
        self._elastic.to_tensorboard(writer, global_step, tag_prefix)
