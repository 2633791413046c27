"""Sums gradients over the ranks in flat buckets, with a control block riding on the last one.

Each rank back-propagates `loss * n / N` (n: samples of its micro-batch, N: of the whole step), so that the sum over
all micro-batches of all ranks is the gradient of the mean loss, however the step is divided, uneven shares included.

The layout follows from the order of the parameters alone, so a joiner's equals a survivor's (DDP's does not: it
rebuilds its buckets after the first step). Buckets are launched in order as backward fills them, the last one by
`finish`. A parameter that got no gradient contributes zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from tidepool.torch.process_group import CommunicationError, Group

__all__ = ["CONTROL_SIZE", "Reducer"]

BUCKET_BYTES = 16 * 2**20
#: Floats of the control block: flag, flag x generation, loss, then metrics.
CONTROL_SIZE = 16


@dataclass
class _Bucket:
    parameters: list[torch.nn.Parameter]
    views: list[torch.Tensor]
    flat: torch.Tensor
    #: Parameters whose gradient the last backward of this step has not produced yet.
    missing: set[int] = field(default_factory=set)
    work: Any = None
    launched: bool = False


class Reducer:
    """Owns the gradients of `parameters`: after each backward they are views into its buckets."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        if not trained:
            raise ValueError("the model has no parameter that requires a gradient: there is nothing to train")
        self._buckets = _buckets(trained)
        self._place = {
            id(parameter): (bucket, index)
            for bucket in self._buckets
            for index, parameter in enumerate(bucket.parameters)
        }
        last = self._buckets[-1]
        #: Written by the session before `finish`, read after it: the sum over all ranks.
        self.control = last.flat[last.flat.numel() - CONTROL_SIZE :]
        self._group: Group | None = None
        self._last_backward = False
        self._failure: CommunicationError | None = None
        self._hooks: list[Any] = [
            parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
            for parameter in trained
        ]

    def begin(self, group: Group) -> None:
        """Start a step, or start it again: zero gradients and control block."""
        self._group, self._last_backward, self._failure = group, False, None
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.work, bucket.launched = None, False
            bucket.missing = set(range(len(bucket.parameters)))
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view

    def expect_last_backward(self) -> None:
        """The next backward is this rank's last one of the step: its gradients may be sent as they come."""
        self._last_backward = True

    def finish(self) -> None:
        """Launch what is left and wait until gradients and control block are summed.

        Raises CommunicationError; nothing writes into the buckets any more when it does.
        """
        self._launch_ready(everything=True)
        for bucket in self._buckets:
            self._wait(bucket)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        bucket, index = self._place[id(parameter)]
        view = bucket.views[index]
        if parameter.grad is not None and parameter.grad.data_ptr() != view.data_ptr():
            view.add_(parameter.grad)  # the script set gradients to None: bring them back into the bucket
            parameter.grad = view
        if self._last_backward:
            bucket.missing.discard(index)
            self._launch_ready(everything=False)

    def _launch_ready(self, *, everything: bool) -> None:
        for bucket in self._buckets if everything else self._buckets[:-1]:
            if bucket.launched:
                continue
            if bucket.missing and not everything:
                return
            self._launch(bucket)

    def _launch(self, bucket: _Bucket) -> None:
        bucket.launched = True
        if self._failure is not None:
            return
        assert self._group is not None
        try:
            bucket.work = self._group.all_reduce(bucket.flat)
        except CommunicationError as error:
            self._failure = error

    def _wait(self, bucket: _Bucket) -> None:
        assert self._group is not None
        try:
            self._group.wait(bucket.work)
        except CommunicationError as error:
            self._failure = error
        bucket.work = None


def _buckets(parameters: list[torch.nn.Parameter]) -> list[_Bucket]:
    """Buckets in the order in which backward fills them: the last parameters first. The last one takes the control."""
    groups: list[list[torch.nn.Parameter]] = []
    size = 0
    for parameter in reversed(parameters):
        same_kind = groups and (groups[-1][0].dtype, groups[-1][0].device) == (parameter.dtype, parameter.device)
        if not same_kind or size >= BUCKET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.numel() * parameter.element_size()
    buckets = [_bucket(group, 0) for group in groups[:-1]]
    if groups[-1][0].dtype == torch.float32:
        return [*buckets, _bucket(groups[-1], CONTROL_SIZE)]
    control = torch.zeros(CONTROL_SIZE, dtype=torch.float32, device=groups[-1][0].device)
    return [*buckets, _bucket(groups[-1], 0), _Bucket([], [], control)]


def _bucket(parameters: list[torch.nn.Parameter], extra: int) -> _Bucket:
    total = sum(parameter.numel() for parameter in parameters)
    flat = torch.zeros(total + extra, dtype=parameters[0].dtype, device=parameters[0].device)
    views, start = [], 0
    for parameter in parameters:
        end = start + parameter.numel()
        views.append(flat[start:end].view_as(parameter))
        start = end
    return _Bucket(parameters, views, flat)
