"""What a job's GPUs count as, where they need more than their share of a host; see `scheduling.host_shares`."""

from typing import Any

from scheduling.host_shares import Expansion
from scheduling.plan import Explanation, PlanReason
from scheduling.snapshot import JobView

__all__ = ["with_counting"]


def with_counting(reason: Explanation, expansion: Expansion, job: JobView, target: int) -> Explanation:
    """Return the reason with figures about cores and memory. Its other figures count all slots.

    target: the job's GPUs.
    """
    counting = expansion.countings[job.id]
    assert job.wish is not None
    figures: dict[str, Any] = {"cores": job.wish.cores} if job.wish.cores else {}
    figures |= {"memory": job.wish.memory} if job.wish.memory else {}
    if reason.params["message"] == "one_host" and not job.one_host:
        most = reason.params["most"] // counting.per_gpu
        params = {"message": "no_host_for_wish", "min_slots": job.min_slots, "most": most, **figures}
        return Explanation(PlanReason.WAITING_FOR_SLOTS, params)
    if counting.per_gpu == 1:
        return reason
    counts = {"per_gpu": counting.per_gpu, "gpus": target or job.min_slots}
    return Explanation(reason.code, {**reason.params, **figures, **counts})
