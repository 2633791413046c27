"""The part of a job's page about what GPUs do for it."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from core.templatetags.tidepool import figure as digits
from core.templatetags.tidepool import percent
from jobs.insight.goodput import Outlook, batch_in_words, goodput_figure, goodput_outlook
from jobs.models import Job
from jobs.words import gpus

__all__ = ["SPEED_COLUMNS", "speed_of"]

SPEED_COLUMNS = ("GPUs", "Steps / s", "Against one GPU", "Known by", "Batch")


class _Tile(NamedTuple):
    label: str
    value: str
    note: str


def speed_of(job: Job) -> dict[str, Any]:
    outlook = goodput_outlook(job)
    return {"outlook": outlook, "tiles": list(_tiles(outlook)), "figure": json.dumps(goodput_figure(outlook))}


def _tiles(outlook: Outlook) -> Iterator[_Tile]:
    """Only what there are figures of."""
    if (now := outlook.now) is not None:
        yield _Tile("Goodput now", f"{now.goodput:.3g} steps/s", f"on {gpus(now.gpus)}")
        yield _Tile("Batch now", digits(now.batch), batch_in_words(now))
    if outlook.efficiency is not None:
        yield _Tile("Efficiency", percent(outlook.efficiency), f"of a sample at a batch of {outlook.batch_size}")
    if outlook.noise_scale is not None:
        note = "samples: larger steps than this help little"
        yield _Tile("Gradient noise scale", digits(round(outlook.noise_scale)), note)
