"""Status of a GPU of the pool at a moment: the one definition that Overview, Cluster, Hosts, Usage and the API share.

*held*: from its claim until the process there is gone. *training*: held, and its process belongs to the generation that
trains. *changing hands*: held and not training, because its process starts, moves or ends. So held = training +
changing hands, and the pool = held + what is free.

*idle* is measured, and says something else of what is held: for how long its utilisation has been below 5 %.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from core.charts import Step
from jobs.models import SlotClaim

__all__ = ["IDLE_BELOW_PERCENT", "heights", "held_since", "trains"]

#: A GPU that does less than this is idle.
IDLE_BELOW_PERCENT = 5.0


def trains(claim: SlotClaim) -> bool:
    """True if a held GPU is training; else it changes hands."""
    return claim.trains_from is not None and claim.trained_until is None


def held_since(start: datetime, most: int, of_jobs: Mapping[str, Any] = {}) -> list[Step]:
    """The number of held GPUs from `start` on, or from where the newest `most` claims begin; `of_jobs`: a condition."""
    times = ("claimed_at", "released_at")
    open_claims = list(SlotClaim.objects.open().filter(**of_jobs).order_by().values_list(*times))
    ended = (
        SlotClaim.objects.filter(released_at__gt=start, **of_jobs).order_by("-released_at").values_list(*times)[:most]
    )
    return heights([*open_claims, *ended], start)


def heights(spans: Iterable[tuple[datetime, datetime | None]], start: datetime) -> list[Step]:
    """Return how many spans there are at once, from `start` on: a step wherever that changes. Pure."""
    moves: dict[datetime, int] = {start: 0}
    for begins, ends in spans:
        first = max(begins, start)
        moves[first] = moves.get(first, 0) + 1
        if ends is not None:
            moves[ends] = moves.get(ends, 0) - 1
    steps: list[Step] = []
    height = 0
    for at in sorted(moves):
        height += moves[at]
        if not steps or steps[-1].slots != height:
            steps.append(Step(at, height))
    return steps
