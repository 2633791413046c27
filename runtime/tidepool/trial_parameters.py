"""The trial of a study that this process trains: `tidepool.trial()`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidepool.env import rank_context

__all__ = ["TRIAL_FILE", "Trial", "trial", "trial_below"]

#: File in the code's folder with the trial's values, written when the trial is submitted.
TRIAL_FILE = "tidepool-trial.json"


@dataclass(frozen=True)
class Trial:
    #: Number and name of the study; None and "" for a training without a study.
    study: int | None = None
    name: str = ""
    #: Number of the trial within the study, from 0.
    number: int | None = None
    #: Parameter -> value, as the study chose it; {} for a training without a study.
    params: Mapping[str, Any] = field(default_factory=dict)


def trial() -> Trial:
    """Return the trial that this process trains.

    A training without a study, and a script off the cluster, has an empty one, so that a script may use
    `tidepool.trial().params.get("lr", 0.1)` anywhere.
    """
    context = rank_context()
    return trial_below(Path.cwd() if context is None else context.launch.code_folder)


def trial_below(folder: str | Path) -> Trial:
    """Return the trial whose code is in this folder; an empty one for a training without a study."""
    file = Path(folder, TRIAL_FILE)
    return Trial(**json.loads(file.read_text())) if file.exists() else Trial()
