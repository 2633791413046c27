"""Sessions and prepared loops on several ranks that form one group: each rank is a thread of the test's own process."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from tidepool.torch import prepare
from tidepool.torch.comm.process_group import Group
from tidepool.torch.rank import later_objects, prepared, session
from tidepool.torch.rank.object_patches import watched
from tidepool.torch.rank.options import Options
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.runtime.groups import groups, together

__all__ = ["on_ranks", "one_thread", "own_loop"]

_rank = threading.local()
#: `prepare` changes this process, which is many ranks here.
_preparing = threading.Lock()
_real_backward = torch.autograd.backward


def on_ranks(count: int, work: Callable[[], Any]) -> list[Any]:
    """Return what `work` returns on each rank. Its sessions and prepared loops use the group of all ranks.

    Raises what the first rank that fails raises.
    """
    errors: list[BaseException] = []
    # The first optimizer of a process imports torch's compiler, which may take longer than ranks wait for each other.
    torch.optim.SGD([torch.zeros(1)], 0.1)

    def on(group: Group) -> Any:
        _rank.group, _rank.backward, _rank.later = group, _real_backward, None
        try:
            return work()
        except BaseException as error:
            errors.append(error)
            for each in members:  # the other ranks wait for this one
                each.break_off()
            raise

    with groups(count) as members, _group_in_options(), one_thread():
        try:
            return together(*[lambda group=group: on(group) for group in members])
        except BaseException as error:
            raise (errors or [error])[0] from None


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: on a busy machine, those of small tensors wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _later() -> Any:
    return getattr(_rank, "later", None)


@contextmanager
def _removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _group_in_options() -> Iterator[None]:
    def options(**values: Any) -> Options:
        return Options(group=_rank.group, **values)

    hook = register_optimizer_step_pre_hook(lambda *given: _later() and _later().steps(*given))
    made = later_objects.noticing(torch.optim.Optimizer.__init__, lambda item: _later() and _later().made(item))
    with (
        _removed(hook),
        mock.patch.object(torch.optim.Optimizer, "__init__", made),
        mock.patch.object(prepared, "watch", lambda later: setattr(_rank, "later", later)),
        mock.patch.object(prepared, "Options", options),
        mock.patch.object(session, "Options", options),
        mock.patch.object(torch.autograd, "backward", lambda *given, **named: _rank.backward(*given, **named)),
        mock.patch.object(prepared, "watch_backward", lambda loop: setattr(_rank, "backward", watched(loop))),
        mock.patch.object(prepared, "_prepared", None),
    ):
        yield


def own_loop(*objects: Any, **options: Any) -> tuple[Any, Callable[[Iterable[int]], Iterator[int]], Any]:
    """Prepare the objects on the rank of this thread.

    Returns them, the rank's `epochs`, and the prepared training.
    """
    with _preparing:
        prepared._prepared = None
        found = prepare(*objects, **options)
        ours = prepared.current()
    return found, ours.epochs, ours
