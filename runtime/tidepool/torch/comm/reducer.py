"""Sums gradients over the ranks in flat buckets, with a control block and the model's buffers riding on the last one.

Each rank back-propagates `loss * n / N` (n: samples of its micro-batch, N: of the whole step), so that the sum over
all micro-batches of all ranks is the gradient of the mean loss, however the step is divided, uneven shares included.
Where losses are means over something else, such as labels, n counts that, and the sum is divided by what N lacks.

The layout follows from the order of the parameters alone, so a joiner's equals a survivor's (DDP's does not: it
rebuilds its buckets after the first step). Buckets are launched in order as backward fills them, the last one by
`finish`. A script may thaw parameters that have no place in the layout. They are late in one step: summed after the
others, once all ranks have told that they have the same ones. The next step has a layout with all of them. A parameter
that got no gradient on one rank contributes zeros; one that got none on any rank ends the step with its gradient None,
so that optimizers leave it alone as they do in plain PyTorch. To know, a flag for each parameter is summed with the
control block.

`Reducer` owns the buckets and knows when each is full; how one is summed is up to `SumReducer` here (one all-reduce,
in whatever order the group adds) and to `TreeReducer` in `tree_reducer.py` (always in the same order).
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from tidepool.refusal import Refusal
from tidepool.torch.comm.gradient_hooks import GradientHooks
from tidepool.torch.comm.process_group import CommunicationError, Group

__all__ = ["AGREEMENT_SIZE", "CONTROL_SIZE", "Bucket", "Reducer", "SumReducer", "is_alike"]

BUCKET_BYTES = 16 * 2**20
#: Largest number of tensors of flags that are kept.
_MOST_FLAGS = 16
#: Floats of the control block: see `step.py`.
CONTROL_SIZE = 33
#: Floats of the comparison of the ranks' models: see `rank/agreement.py`.
AGREEMENT_SIZE = 10
#: ... and of notes: ranks that have late parameters, a number that stands for these, its square, and whether buffers
#: have other shapes than at the beginning.
_NOTES_SIZE = 4


#: Strides of gradients, by id of the parameter.
_Strides = Mapping[int, tuple[int, ...]]


@dataclass
class Bucket:
    parameters: list[torch.nn.Parameter]
    views: list[torch.Tensor]
    flat: torch.Tensor
    #: Tensor that is summed: the bucket's numbers, complex ones as pairs of real ones.
    wire: torch.Tensor
    #: Parameters whose gradient the last backward of this step has not produced yet.
    missing: set[int] = field(default_factory=set)
    work: Any = None
    launched: bool = False


class Reducer(ABC):
    """Owns the gradients of `parameters`: after each backward they are views into its buckets.

    Those that require no gradient have no place in it, unless they are among `thawing`, which may later.
    buffers: float32 places for the model's buffers. spare: further elements of each bucket that the subclass uses.
    control_size: floats of the control block.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        thawing: Iterable[torch.nn.Parameter] = (),
        *,
        buffers: int = 0,
        spare: int = 0,
        control_size: int = CONTROL_SIZE,
    ) -> None:
        self._all = list(parameters)
        # Remembered: a script may change the order of a tensor's numbers while it trains, at another moment than the
        # next rank that joins.
        self._strides = {id(parameter): _strides_of(parameter) for parameter in self._all}
        kept = {id(parameter) for parameter in thawing}
        if not any(parameter.requires_grad for parameter in self._all):
            raise Refusal("the model has no parameter that requires a gradient: there is nothing to train")
        self._from_the_beginning = [
            number for number, one in enumerate(self._all) if one.requires_grad or id(one) in kept
        ]
        self._sizes = (control_size, AGREEMENT_SIZE, _NOTES_SIZE), buffers, spare
        #: Numbers of the parameters that are late in this step, and then of all that have been thawed.
        self._late: list[int] = []
        self.thawed: list[int] = []
        #: Sums of the control block and of the comparison, once `finish` is over. They and the users are read in one
        #: go: each time that numbers are taken from a GPU, the host waits for it.
        self.summed: list[float] = []
        self.summed_agreement: list[float] = []
        self.buffers_are_reshaped = False
        self._used: set[int] = set()
        #: Flags of used parameters -> the same as a tensor.
        self._flags: dict[tuple[bool, ...], torch.Tensor] = {}
        self._hooks: list[Any] = []
        #: Called with each bucket before its sum begins.
        self.on_launch: Callable[[Bucket], None] | None = None
        #: Called once all sums of a step have begun, before they are waited for.
        self.while_summing: Callable[[], None] = lambda: None
        self._group: Group | None = None
        self._last_backward = False
        self._failure: CommunicationError | None = None
        #: While a step is under way: gradients may come. A session lets them come from `step.backward` only.
        self.open = True
        #: Gradients may come between steps, too.
        self.lets_be = True
        #: Hint for the error when a gradient arrives at the wrong time.
        self.remedy = "call step.backward(loss) in a step, not loss.backward(): the session weighs each loss"
        self._under_way = False
        self._apart = False
        #: Whether buckets may be launched during the last backward. They wait in the first step of a process, which
        #: shows whether a parameter gets its gradient in several portions of a backward: a model that calls
        #: `checkpoint(use_reentrant=True)` twice on one layer does that.
        self._overlaps = False
        self._has_portions = False
        self._lay_out(self._from_the_beginning)

    def _lay_out(self, numbers: list[int]) -> None:
        """Give these parameters of the model their places."""
        self._laid_out = [self._all[number] for number in numbers]
        self._left_out = sorted({*range(len(self._all))} - {*numbers})
        self._late = []
        fixed, buffers, spare = self._sizes
        sizes = [*fixed, len(numbers), buffers]
        self._buckets, tail = _buckets(self._laid_out, self._strides, sum(sizes), spare)
        #: Control block, comparison and buffers: written before `end_part` and `finish`; after it the sum over all
        #: parts of all ranks. `users`: by parameter, the number of ranks on which it got a gradient in this step.
        self.control, self.agreement, self._notes, self._users, self.buffers = torch.split(tail, sizes)
        self._read = tail[: sum(sizes[:4])]
        self._late_buckets: list[Bucket] = []
        self._attach()

    def _attach(self) -> None:
        """Learn of each gradient of the parameters that have a place, and of the script's hooks on them."""
        self.close()
        places = [(bucket, index) for bucket in self.buckets for index in range(len(bucket.parameters))]
        self._place = {id(bucket.parameters[index]): (bucket, index) for bucket, index in places}
        self._parameters = [*self._laid_out, *(self._all[number] for number in self._late)]
        self._hooks = [_hook(parameter, self._on_gradient) for parameter in self._parameters]
        #: The script's own.
        self.hooks = GradientHooks(self._parameters, self._on_gradient, lambda: self._under_way)

    def follow(self, thawed: list[int]) -> None:
        """Lay out what the training has thawed, and find what the script has thawed since. Called between steps."""
        if thawed != self.thawed:
            self.thawed = thawed
            self._lay_out(sorted({*self._from_the_beginning, *thawed}))
        late = [number for number in self._left_out if self._all[number].requires_grad]
        if late != self._late:
            self._late = late
            self._late_buckets, self._late_users = [], self._users[:0]
            if late:
                self._late_buckets, self._late_users = _buckets(
                    [self._all[number] for number in late], self._strides, len(late), 0
                )
            self._attach()

    @property
    def buckets(self) -> list[Bucket]:
        return [*self._buckets, *self._late_buckets]

    @property
    def bytes(self) -> int:
        """Return the number of bytes that a step sums."""
        return sum(bucket.wire.nbytes for bucket in self.buckets)

    @property
    def is_under_way(self) -> bool:
        """Return whether a sum was begun and neither finished nor given up."""
        return self._under_way

    def give_up(self) -> None:
        """Drop the content of the buckets."""
        self._under_way = False

    def empty(self) -> None:
        """Add nothing from this rank to the present sum; none of its buckets may have been launched."""
        self._used.clear()
        for bucket in self.buckets:
            bucket.flat.zero_()

    def begin(self, group: Group, sharing: list[int]) -> None:
        """Start a step, or start it again: zero gradients and control block.

        sharing: the ranks of the group that compute it, in the order of their parts.
        """
        self._group, self._last_backward, self._failure = group, False, None
        self._under_way = True
        self.hooks.defer()
        self._used.clear()
        for bucket in self.buckets:
            bucket.flat.zero_()
            bucket.work, bucket.launched = None, False
            bucket.missing = {index for index, one in enumerate(bucket.parameters) if one.requires_grad}
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view

    def expect_last_backward(self) -> None:
        """Mark the next backward as this rank's last one of the step: its gradients may be sent as they arrive."""
        self._last_backward = True

    @contextmanager
    def apart(self, weight: Callable[[], float | torch.Tensor]) -> Iterator[None]:
        """Let a script handle gradients as it does alone in the block; what it leaves is added, times `weight`."""
        for parameter in self._parameters:
            parameter.grad = None
        self._apart = True
        try:
            yield
        finally:
            self._apart = False
        factor = weight()
        for bucket in self.buckets:
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                if parameter.grad is not None:
                    self._used.add(id(parameter))
                    if isinstance(factor, torch.Tensor):
                        view.add_(parameter.grad * factor.to(view.dtype))
                    elif factor:
                        view.add_(parameter.grad, alpha=factor)
                parameter.grad = view

    def note_used(self, loss: torch.Tensor) -> None:
        """Note the parameters that a loss depends on, which is a mean over nothing: its gradients are zeros."""
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        try:
            gradients = torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True)
        except RuntimeError:  # a reentrant checkpoint has only a backward: other ranks use the parameters
            return
        pairs = zip(trained, gradients, strict=True)
        self._used.update(id(parameter) for parameter, gradient in pairs if gradient is not None)

    @abstractmethod
    def end_part(self) -> None:
        """End one of this rank's parts of the step; another one follows."""

    def finish(self) -> None:
        """Launch what is left and wait until gradients, control block and buffers are summed.

        Raises CommunicationError: leave the buckets alone until the next group.
        """
        self._under_way = False
        self._overlaps = not self._has_portions
        self._users.copy_(self._used_among(self._laid_out))
        if self._late:
            number = float(zlib.crc32(str(self._late).encode()) % 64)
            self._notes[0], self._notes[1], self._notes[2] = 1.0, number, number * number
        self._launch_ready(self._buckets, everything=True)
        self.while_summing()
        self._complete(self._buckets)
        pieces = iter(self._read.tolist())
        self.summed, self.summed_agreement, notes = ([*islice(pieces, size)] for size in self._sizes[0])
        self._take(self._laid_out, list(pieces))
        *late, reshaped = notes
        self.buffers_are_reshaped = bool(reshaped)
        if late[0]:
            self._finish_late(late)

    def note_reshaped_buffers(self) -> None:
        """Note that the first part of the step, which is this rank's, has changed the shape of a buffer."""
        self._notes[3] = 1.0

    def _finish_late(self, told: list[float]) -> None:
        """Sum the gradients of late parameters. told: by all ranks about theirs."""
        assert self._group is not None
        if told[0] != self._group.size or not is_alike(told[0], told[1:]):
            raise Refusal(
                "some processes train parameters that others have frozen: call requires_grad_() at the same batch in "
                "all of them, such as at the beginning of an epoch and by its number"
            )
        late = [self._all[number] for number in self._late]
        self._late_users.copy_(self._used_among(late))
        self._launch_ready(self._late_buckets, everything=True)
        self._complete(self._late_buckets)
        self._take(late, self._late_users.tolist())

    @property
    def now_thawed(self) -> list[int]:
        """Return the numbers of all parameters that have been thawed, once a step has summed them."""
        return sorted({*self.thawed, *self._late}) if self._late else self.thawed

    def is_own(self, parameter: torch.nn.Parameter) -> bool:
        """Return whether the parameter has a gradient that is none of the sums."""
        bucket, index = self._place.get(id(parameter), (None, 0))
        return parameter.grad is not None and (
            bucket is None or parameter.grad.data_ptr() != bucket.views[index].data_ptr()
        )

    def _used_among(self, parameters: list[torch.nn.Parameter]) -> torch.Tensor:
        """Return a flag for each parameter, on their device. The flags rarely change, and a copy from main memory waits
        for the GPU, so the tensors are kept."""
        used = tuple(id(parameter) in self._used for parameter in parameters)
        if used not in self._flags:
            if len(self._flags) >= _MOST_FLAGS:
                self._flags.clear()
            self._flags[used] = torch.tensor(used, dtype=torch.float32, device=self._users.device)
        return self._flags[used]

    def _take(self, parameters: list[torch.nn.Parameter], users: list[float]) -> None:
        for parameter, count in zip(parameters, users, strict=True):
            bucket, index = self._place[id(parameter)]
            parameter.grad = bucket.views[index] if count else None

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        """Multiply the gradients, which are summed."""
        if gradients := [parameter.grad for parameter in self._parameters if parameter.grad is not None]:
            torch._foreach_mul_(gradients, factor)

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    @abstractmethod
    def _sum(self, bucket: Bucket, group: Group) -> Any:
        """Begin to sum a full bucket over the group; returns what `Group.wait` waits for."""

    def _complete(self, buckets: list[Bucket]) -> None:
        """Wait until every bucket is summed, or has failed. Raises CommunicationError."""
        assert self._group is not None
        for bucket in buckets:
            try:
                self._group.wait(bucket.work)
            except CommunicationError as error:
                self._failure = error
            bucket.work = None
        if self._failure is not None:
            raise self._failure

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if self._apart:
            return
        bucket, index = self._place[id(parameter)]
        if not self.open and (self._under_way or not self.lets_be):
            raise Refusal(self.remedy)
        if not self._under_way:  # nothing comes of it, and the buckets may hold what is left of a sum that has failed
            return
        if bucket.launched:
            raise RuntimeError(
                "a parameter got its gradient twice in one backward, which it did not in the steps before, and the "
                "first part is on its way already: if the model uses torch.utils.checkpoint, call it with "
                "use_reentrant=False"
            )
        view = bucket.views[index]
        if parameter.grad is not None and parameter.grad.data_ptr() != view.data_ptr():
            view.add_(parameter.grad)  # the script set gradients to None: bring them back into the bucket
            parameter.grad = view
        self._used.add(id(parameter))
        if self._last_backward:
            self._has_portions = self._has_portions or index not in bucket.missing
            bucket.missing.discard(index)
            if self._overlaps and self._group is not None and self._group.sums_may_begin.is_set():
                self._launch_ready(self._buckets[:-1], everything=False)

    def _launch_ready(self, buckets: list[Bucket], *, everything: bool) -> None:
        for bucket in buckets:
            if bucket.launched:
                continue
            if bucket.missing and not everything:
                return
            bucket.launched = True
            if self.on_launch is not None:
                self.on_launch(bucket)
            if self._failure is None:
                assert self._group is not None
                try:
                    bucket.work = self._sum(bucket, self._group)
                except CommunicationError as error:
                    self._failure = error


class SumReducer(Reducer):
    """Exactness `sum`: the group adds in an order of its own, which depends on its size."""

    def end_part(self) -> None:
        """Do nothing: all that a rank computes is added up where it is."""

    def _sum(self, bucket: Bucket, group: Group) -> Any:
        return group.all_reduce(bucket.wire)


def is_alike(ranks: float, sums: Sequence[float]) -> bool:
    """Return whether so many ranks have the same numbers. sums: of each number and of its square."""
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return all(ranks * squares == numbers * numbers for numbers, squares in pairs)


def _buckets(
    parameters: list[torch.nn.Parameter], strides: _Strides, tail_size: int, spare: int
) -> tuple[list[Bucket], torch.Tensor]:
    """Buckets in the order in which backward fills them, the last parameters first, and the tail of the last one."""
    groups: list[list[torch.nn.Parameter]] = []
    size = 0
    for parameter in reversed(parameters):
        same_kind = groups and (groups[-1][0].dtype, groups[-1][0].device) == (parameter.dtype, parameter.device)
        if not same_kind or size >= BUCKET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.numel() * parameter.element_size()
    joined = groups[-1][0].dtype == torch.float32
    buckets = [_bucket(group, strides, spare) for group in groups[:-1]]
    buckets.append(_bucket(groups[-1], strides, spare + (tail_size if joined else 0)))
    if not joined:
        own = torch.zeros(tail_size + spare, dtype=torch.float32, device=groups[-1][0].device)
        buckets.append(Bucket([], [], own, own))
    end = buckets[-1].flat.numel() - spare
    return buckets, buckets[-1].flat[end - tail_size : end]


def _bucket(parameters: list[torch.nn.Parameter], strides: _Strides, extra: int) -> Bucket:
    total = sum(parameter.numel() for parameter in parameters)
    flat = torch.zeros(total + extra, dtype=parameters[0].dtype, device=parameters[0].device)
    views, start = [], 0
    for parameter in parameters:
        end = start + parameter.numel()
        views.append(flat.as_strided(parameter.shape, strides[id(parameter)], start))
        start = end
    return Bucket(parameters, views, flat, torch.view_as_real(flat) if flat.is_complex() else flat)


def _strides_of(parameter: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of the parameter's gradient: its own, as in channels_last, if they leave no gaps."""
    return torch.empty_like(parameter, device="meta", memory_format=torch.preserve_format).stride()


def _hook(parameter: torch.nn.Parameter, on_gradient: Callable[[torch.Tensor], None]) -> Any:
    frozen = not parameter.requires_grad
    parameter.requires_grad_(True)  # torch registers hooks on no other, and keeps them
    handle = parameter.register_post_accumulate_grad_hook(on_gradient)  # type: ignore[no-untyped-call]
    parameter.requires_grad_(not frozen)
    return handle
