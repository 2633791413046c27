"""Time by cause of a script without a session: what torch itself shows of its loop.

A batch of a `DataLoader` begins computing, the end of backward ends it, and an optimizer's step is the update. A batch
that is read without gradients is validation. `DistributedDataParallel` on CPUs waits for its sum within backward, after
the last gradient has been accumulated; on GPUs the host does not wait there. The rest counts as script, less what a GPU
computed meanwhile, from the batch to the end of backward: the host runs ahead of it, and waits for it in the script.
"""

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from tidepool.torch.rank.gpu_shortages import record_shortages
from tidepool.torch.rank.gpu_times import GpuTimes
from tidepool.torch.rank.step_clock import StepClock, TimePart

__all__ = ["watch_plain_loop"]


def watch_plain_loop(is_over: Callable[[], bool]) -> StepClock:
    """Watch the loop of the calling thread. Return its clock, which begins with the first update.

    is_over: nobody wants to know any more, as once a session speaks for the process.
    """
    record_shortages()
    loop = _PlainLoop(StepClock(), is_over)
    iterator: Any = _BaseDataLoaderIter
    iterator.__next__ = loop.reading_data(iterator.__next__)
    torch.autograd.backward = loop.computing(torch.autograd.backward)
    ddp: Any = DistributedDataParallel
    ddp.__init__ = loop.noting_gradients(ddp.__init__)
    register_optimizer_step_pre_hook(loop.before_update)
    register_optimizer_step_post_hook(loop.after_update)
    return loop.clock


class _PlainLoop:
    def __init__(self, clock: StepClock, is_over: Callable[[], bool]) -> None:
        self.clock = clock
        self._is_over = is_over
        self._thread = threading.get_ident()
        #: Time of the newest gradient of a model whose ranks sum it, within the backward under way.
        self._gradient_at: float | None = None
        self._sums = 0
        #: Times of the model's GPU; None: it is on a CPU, or has made no update yet.
        self._gpu: GpuTimes | None = None

    def _counts(self) -> bool:
        return threading.get_ident() == self._thread and not self._is_over()

    def reading_data(self, read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def counted(iterator: Any) -> Any:
            if not self._counts():
                return read(iterator)
            self.clock.workers = iterator._num_workers
            self.clock.enter(TimePart.DATA)
            following = TimePart.SCRIPT
            try:
                batch = read(iterator)
                following = TimePart.COMPUTE if torch.is_grad_enabled() else TimePart.VALIDATION
                if self._gpu is not None and following is TimePart.COMPUTE:
                    self._gpu.begin()
            finally:
                self.clock.enter(following)
            return batch

        return counted

    def computing(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def counted(*arguments: Any, **named: Any) -> Any:
            if not self._counts():
                return backward(*arguments, **named)
            self.clock.enter(TimePart.COMPUTE)
            self._gradient_at = None
            try:
                return backward(*arguments, **named)
            finally:
                self.clock.enter(TimePart.SCRIPT)
                if self._gpu is not None:
                    self._gpu.end()
                if self._gradient_at is not None and self.clock.is_counting:
                    self._sums += 1
                    self.clock.note_wait(self._sums, time.monotonic() - self._gradient_at)

        return counted

    def noting_gradients(self, make: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(make)
        def made(model: Any, *arguments: Any, **named: Any) -> None:
            make(model, *arguments, **named)
            for parameter in model.parameters():
                if parameter.requires_grad and parameter.device.type == "cpu":
                    parameter.register_post_accumulate_grad_hook(self._note_gradient)

        return made

    def _note_gradient(self, parameter: torch.Tensor) -> None:
        self._gradient_at = time.monotonic()

    def before_update(self, *_: Any) -> None:
        if self._counts():
            self.clock.enter(TimePart.OPTIMIZER)

    def after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self._counts():
            return
        self.clock.enter(TimePart.SCRIPT)
        if not self.clock.is_counting:
            device = optimizer.param_groups[0]["params"][0].device
            self._gpu = GpuTimes() if device.type == "cuda" else None
            self.clock.watch(device)
            self.clock.begin()
            return
        if self._gpu is not None:
            self.clock.note_computed(self._gpu.take())
        self.clock.count_step()
