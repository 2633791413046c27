"""Exactness of a training over resizes, `sum` or `bitwise`, and what the second one requires of a process."""

from __future__ import annotations

import torch

from tidepool.env import ask_for_reproducible_kernels
from tidepool.protocol import LaunchSpec
from tidepool.torch.buffers import Buffers
from tidepool.torch.reducer import Reducer, SumReducer
from tidepool.torch.tree_reducer import TreeReducer
from tidepool.torch.update import optimized

__all__ = ["be_deterministic", "chosen_virtual_ranks", "reducer_of"]


def chosen_virtual_ranks(launch: LaunchSpec | None, exactness: str | None, virtual_ranks: int | None) -> int | None:
    """The number of parts of each step in exactness `bitwise`; None in `sum`. A job takes precedence over arguments.

    Raises ValueError for arguments that do not fit together.
    """
    if exactness not in (None, "sum", "bitwise"):
        raise ValueError(f"exactness must be 'sum' or 'bitwise', not {exactness!r}")
    if virtual_ranks is not None and virtual_ranks < 1:
        raise ValueError(f"virtual_ranks must be at least 1, not {virtual_ranks}")
    if launch is not None:
        return launch.virtual_ranks if launch.exactness == "bitwise" else None
    if exactness != "bitwise":
        return None
    if virtual_ranks is None:
        raise ValueError(
            "exactness='bitwise' needs virtual_ranks: the results depend on it (a job's page shows its own)"
        )
    return virtual_ranks


def reducer_of(
    model: torch.nn.Module,
    optimizers: dict[str, torch.optim.Optimizer],
    buffers: Buffers,
    virtual_ranks: int | None,
) -> Reducer:
    """The reducer that sums gradients in exactness `sum`, or, with `virtual_ranks`, in `bitwise`."""
    parameters, thawing = model.parameters(), optimized(optimizers)
    if virtual_ranks is None:
        return SumReducer(parameters, thawing, buffers=buffers.size)
    be_deterministic()
    return TreeReducer(parameters, thawing, virtual_ranks=virtual_ranks, buffers=buffers.size)


def be_deterministic() -> None:
    """From now on this process computes the same bits from the same numbers, or says that an operation cannot.

    One thread, because sums that several share depend on how many they are. What remains: the same kind of device and
    the same build of torch.
    """
    ask_for_reproducible_kernels()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # Else each operation fills its fresh memory first, so that to read it by mistake would be reproducible.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
