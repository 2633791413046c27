"""The part of a job's page about its speed by number of GPUs."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from core.templatetags.tidepool import figure as digits
from core.templatetags.tidepool import percent
from core.text import plural
from insights.batch import BatchNow
from insights.goodput import Outlook, batch_in_words, goodput_figure, goodput_outlook
from jobs.models import Job
from jobs.words import gpus

__all__ = ["SPEED_COLUMNS", "speed_of"]

SPEED_COLUMNS = ("GPUs", "Steps / s", "Speedup", "Source", "Batch size")


class _Tile(NamedTuple):
    label: str
    value: str
    note: str


def speed_of(job: Job) -> dict[str, Any]:
    outlook = goodput_outlook(job)
    return {"outlook": outlook, "tiles": list(_tiles(outlook)), "figure": json.dumps(goodput_figure(outlook))}


def _tiles(outlook: Outlook) -> Iterator[_Tile]:
    """Yield the tiles for which there are figures."""
    if (now := outlook.now) is not None:
        yield _Tile("Goodput now", f"{now.goodput:.3g} steps/s", f"on {gpus(now.gpus)}")
        if outlook.batch_now is None:
            yield _Tile("Batch now", digits(now.batch), batch_in_words(now))
    if outlook.batch_now is not None:
        yield from _batch_tiles(outlook.batch_now)


def _batch_tiles(now: BatchNow) -> Iterator[_Tile]:
    """Build the tiles of a batch that adapts."""
    note = f"submitted with {digits(now.submitted)}"
    if now.is_pinned:
        note = "unchanged, because the loss rose after an increase"
    pieces = f" in {now.accumulation + 1} micro-batches" if now.accumulation else ""
    each = plural(now.micro_batch, "{count} sample", "{count} samples")
    yield _Tile("Batch now", digits(now.batch), f"{each} per GPU{pieces}; {note}")
    yield _Tile("Efficiency", percent(now.efficiency), f"relative to a batch of {digits(now.submitted)}")
    least, most = f"{now.least_rate_factor:.3g}", f"{now.most_rate_factor:.3g}"
    factor = least if least == most else f"{least} to {most}"
    yield _Tile("Learning rate", f"× {factor}", "the script's learning rate, for this batch")
    if now.noise_scale is not None:
        note = "samples; larger batches help little"
        yield _Tile("Gradient noise scale", digits(round(now.noise_scale)), note)
