"""Checkpoints that libraries save by themselves: a training continues from the newest, without a change to its script.

Transformers' Trainer, Lightning and Accelerate are hooked when the script imports them. Each rank records in the
attempt's folder what its library has saved; later attempts continue from that, and the control plane reads it. What the
libraries report of steps and metrics goes to a file from which the training's page gets its progress.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidepool.env import RankContext
from tidepool.first_imports import after_first_import
from tidepool.own_checkpoints import accelerate_states, lightning_fit, trainer_train
from tidepool.own_checkpoints.hooked_rank import HookedRank
from tidepool.own_checkpoints.progress_file import PROGRESS_FILE, SPEED
from tidepool.own_checkpoints.saves import OwnCheckpoint, complete_checkpoints, remove_unfinished, saves_in

#: Name of the library in records.
ACCELERATE = accelerate_states.LIBRARY

__all__ = [
    "ACCELERATE",
    "PROGRESS_FILE",
    "SPEED",
    "OwnCheckpoint",
    "complete_checkpoints",
    "hook_libraries",
    "remove_half_written",
    "saves_in",
]


def remove_half_written(context: RankContext) -> None:
    """Remove checkpoints that former attempts could not finish: libraries and scripts take the newest folder for one.

    Call it in each rank before any script begins.
    """
    remove_unfinished(Path(context.launch.folder).parent, before=context.attempt)


def hook_libraries(context: RankContext, rank: int, ranks: int) -> None:
    """Hook the libraries, each once the script imports it. Call it before the script begins."""
    here = HookedRank(context, rank, ranks)
    for module, hook in [
        ("transformers.trainer", trainer_train.hook),
        ("lightning.pytorch.trainer.trainer", lightning_fit.hook),
        ("pytorch_lightning.trainer.trainer", lightning_fit.hook),
        ("accelerate.accelerator", accelerate_states.hook),
    ]:
        after_first_import(frozenset({module}), partial(_hook, hook, module, here))


def _hook(hook: Callable[[str, HookedRank], None], module: str, here: HookedRank) -> None:
    try:
        hook(module, here)
    except Exception as error:  # a version that has other parts: the script trains with it as it is
        sys.stderr.write(
            f"tidepool: this version of {module.partition('.')[0]} cannot be hooked: if the training is stopped, it "
            f"continues only if its script does that itself ({type(error).__name__}: {error})\n"
        )
