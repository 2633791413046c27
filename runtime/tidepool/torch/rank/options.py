"""Options of a training as its script gives them, and those that hold: the job's value before the script's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from tidepool.protocol import CHECKPOINT_SECONDS, LaunchSpec
from tidepool.refusal import Refusal
from tidepool.torch.adaptive.adaptation import Adaptive
from tidepool.torch.comm.process_group import Group
from tidepool.torch.rank.checkpointer import CheckpointPolicy
from tidepool.torch.state.training_state import Stateful

__all__ = ["ChosenOptions", "Options", "chosen_options"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of a session; `Session` describes each."""

    effective_batch_size: int
    rank_batch_size: int | None = None
    seed: int = 0
    registered: Mapping[str, Stateful] = field(default_factory=dict)
    warm_up: Callable[[], None] | None = None
    checkpoint_every: int | None = None
    checkpoint_seconds: float | None = None
    checkpoints_kept: int | None = None
    before_update: Callable[[], None] | None = None
    after_update: Callable[[], None] | None = None
    scaler: torch.amp.GradScaler | None = None
    exactness: str | None = None
    virtual_ranks: int | None = None
    adaptive: Adaptive | None = None
    #: Off the cluster, the group that several processes have formed.
    group: Group | None = None


@dataclass(frozen=True)
class ChosenOptions:
    """The options that hold on a rank."""

    seed: int
    #: Samples per step over all ranks, at the first start.
    batch_size: int
    #: Parts of each step in exactness "bitwise"; None in "sum", where each rank computes one.
    virtual_ranks: int | None
    #: Bounds and rule of a batch that adapts; None: the batch stays.
    batch_rule: Adaptive | None
    checkpoints: CheckpointPolicy


def chosen_options(launch: LaunchSpec | None, given: Options) -> ChosenOptions:
    """Return the options that hold. launch: of the job; None off a cluster.

    Raises ValueError for arguments of the script that do not fit together.
    """
    if given.effective_batch_size < 1:
        raise Refusal(f"effective_batch_size must be at least 1, not {given.effective_batch_size}")
    return ChosenOptions(
        seed=launch.seed if launch else given.seed,
        batch_size=(launch.effective_batch_size if launch else None) or given.effective_batch_size,
        virtual_ranks=_virtual_ranks(launch, given.exactness, given.virtual_ranks),
        batch_rule=None if launch and launch.adaptive == "off" else given.adaptive,
        checkpoints=_checkpoints(launch, given),
    )


def _virtual_ranks(launch: LaunchSpec | None, exactness: str | None, virtual_ranks: int | None) -> int | None:
    if exactness not in (None, "sum", "bitwise"):
        raise Refusal(f"exactness must be 'sum' or 'bitwise', not {exactness!r}")
    if virtual_ranks is not None and virtual_ranks < 1:
        raise Refusal(f"virtual_ranks must be at least 1, not {virtual_ranks}")
    if launch is not None:
        return launch.virtual_ranks if launch.exactness == "bitwise" else None
    if exactness != "bitwise":
        return None
    if virtual_ranks is None:
        raise Refusal(
            "exactness='bitwise' needs virtual_ranks: the results depend on it (a training's page shows its own)"
        )
    return virtual_ranks


def _checkpoints(launch: LaunchSpec | None, given: Options) -> CheckpointPolicy:
    every_epochs = given.checkpoint_every
    kept = (launch.checkpoints_kept if launch else None) or given.checkpoints_kept
    submitted = launch.checkpoint_seconds if launch else None
    if submitted is not None:
        return CheckpointPolicy(submitted, (every_epochs or 0) if submitted else 0, kept)
    seconds = given.checkpoint_seconds
    if seconds is None:
        seconds = 0.0 if every_epochs == 0 else CHECKPOINT_SECONDS
    return CheckpointPolicy(seconds, every_epochs or 0, kept)
