"""Accelerate: `load_state()` finds the newest complete state, and `save_state()` counts on after it.

The loop is the script's own: only the script can load a state and skip what has been trained.
"""

import functools
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tidepool.own_checkpoints.hooked_rank import HookedRank

__all__ = ["LIBRARY", "hook"]

LIBRARY = "accelerate"
_NAME = re.compile(r"checkpoint_(\d+)")


def hook(module: str, here: HookedRank) -> None:
    accelerator_class: Any = sys.modules[module].Accelerator
    initialize, save = accelerator_class.__init__, accelerator_class.save_state

    @functools.wraps(initialize)
    def counting_on(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        chosen = self.project_configuration
        # Before any rank saves or removes: all of them count the same.
        if here.is_later_attempt and chosen.automatic_checkpoint_naming and chosen.iteration == 0 and self.project_dir:
            chosen.iteration = _next(Path(self.project_dir, "checkpoints"))

    @functools.wraps(save)
    def recorded(self: Any, output_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        chosen = self.project_configuration
        step = int(chosen.iteration)
        path = Path(self.project_dir or "", "checkpoints", f"checkpoint_{step}")
        if not chosen.automatic_checkpoint_naming:
            path = Path(output_dir or "")
        here.saves.begins(LIBRARY, 1, step, path)
        result = save(self, output_dir, *args, **kwargs)
        here.saves.ends(LIBRARY, 1, step, path)
        return result

    accelerator_class.__init__, accelerator_class.save_state = counting_on, recorded


def _next(folder: Path) -> int:
    """Return the number after the highest that a state in the folder has."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = os.listdir(folder)
    return max((int(match[1]) + 1 for name in names if (match := _NAME.fullmatch(name))), default=0)
