"""Status of a GPU in the pool: the definition that Overview, Cluster, Hosts, Usage and the API share.

*held*: from the claim until the process there has ended. *training*: held, and the process belongs to the training
generation. *starting or releasing*: held and not training, because the process starts, moves or ends. So held =
training + starting or releasing, and the pool = held + free.

*idle* is a measurement of a held GPU: the time since which its utilization has been below 5 %, and its processes have
neither run on a processor nor waited for one. What loads data, evaluates on the processor or is starved of it is not
idle.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, DateTimeField, Value
from django.db.models.functions import Greatest
from tidepool.protocol import DeviceReading

from core.charts import Step
from jobs.models import SlotClaim

__all__ = ["IDLE_BELOW_PERCENT", "heights", "held_since", "is_idle", "trains"]

#: Utilization in percent below which a GPU is idle.
IDLE_BELOW_PERCENT = 5.0


def is_idle(device: DeviceReading) -> bool | None:
    """Return whether the device and the processes in its slot do nothing; None if the device does not tell."""
    if device.utilisation_percent is None:
        return None
    return max(device.utilisation_percent, device.processor_percent or 0.0) < IDLE_BELOW_PERCENT


def trains(trains_from: datetime | None, trained_until: datetime | None) -> bool:
    """Return whether a held GPU is training, by these times of its claim; otherwise it is starting or releasing."""
    return trains_from is not None and trained_until is None


def held_since(start: datetime, most: int, of_jobs: Mapping[str, Any] = {}) -> list[Step]:
    """Return the number of held GPUs over time, from `start` or the oldest of the newest `most` claims on."""
    # A large training claims many GPUs at once, and most open claims are older than the chart: the database counts.
    begins = Greatest("claimed_at", Value(start, output_field=DateTimeField()))
    held = SlotClaim.objects.open().filter(**of_jobs).order_by().values_list(begins).annotate(Count("pk"))
    ended = SlotClaim.objects.filter(released_at__gt=start, **of_jobs).order_by("-released_at")
    times = ended.values_list("claimed_at", "released_at")[:most]
    return heights([*((at, None, count) for at, count in held), *((*span, 1) for span in times)], start)


def heights(spans: Iterable[tuple[datetime, datetime | None, int]], start: datetime) -> list[Step]:
    """Return the number of simultaneous spans over time, as steps from `start` on. Pure.

    spans: beginning, end, and the number of those with both in common.
    """
    moves: dict[datetime, int] = {start: 0}
    for begins, ends, count in spans:
        first = max(begins, start)
        moves[first] = moves.get(first, 0) + count
        if ends is not None:
            moves[ends] = moves.get(ends, 0) - count
    steps: list[Step] = []
    height = 0
    for at in sorted(moves):
        height += moves[at]
        if not steps or steps[-1].slots != height:
            steps.append(Step(at, height))
    return steps
