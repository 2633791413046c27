"""Choice of slots for jobs that cannot use just any: as many on each host, several for each GPU, or not everywhere."""

from collections.abc import Mapping

from scheduling.placement.packing import pack
from scheduling.placement.slots_by_host import SlotsLeft
from scheduling.snapshot import JobView, SlotRef

__all__ = ["choose_restricted"]

#: Job -> number of free slots that it claims now, in the order in which jobs are served.
Wanted = Mapping[int, int]
Kept = Mapping[int, tuple[SlotRef, ...]]
Free = Mapping[str, tuple[SlotRef, ...]]


def choose_restricted(
    wanted: Wanted, views: Mapping[int, JobView], kept: Kept, free: Free
) -> tuple[dict[int, int], dict[int, list[SlotRef]]]:
    """Return what the others want, and the slots of jobs that need as many on each host, that need several for each
    GPU, or that find enough of them on hosts with their environment while others lack it; those whose environment some
    hosts cannot have get no others.
    """
    others, left = dict(wanted), SlotsLeft(free)
    found: dict[int, list[SlotRef]] = {}
    for job in [job for job in wanted if views[job].equal_hosts]:
        view = views[job]
        slots = left.on_others(view.unfit)
        found[job] = left.taken(slots.take_equal(others.pop(job), view.per_gpu), slots)
    for job in [job for job in others if views[job].per_gpu > 1]:
        view = views[job]
        slots = left.on_others(view.unfit)
        refs = slots.take_whole(others.pop(job), view.per_gpu, kept[job])
        if view.state == "PENDING" and len(refs) < view.min_slots:
            slots.put_back(refs)
        else:
            found[job] = left.taken(refs, slots)
    for job in [job for job in others if views[job].unprepared]:
        view = views[job]
        slots = left.on_others(view.unprepared)
        if slots.count < others[job]:
            slots = left.on_others(view.unfit)
        count = min(others[job], slots.count)
        if count == others[job] or view.unfit:
            del others[job]
            if count >= (1 if view.state != "PENDING" else view.min_slots):
                refs = pack({job: count}, kept, slots)[job]
                found[job] = left.taken(refs, slots)
    return others, found
