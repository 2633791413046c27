"""Checks of the cores and the memory that a submission asks for with each GPU."""

from math import floor

from tidepool.units import cores_words, size_words

from jobs.actions.submission_checks import Problems
from jobs.messages.wishes import wish_words
from jobs.models import InstanceGroup
from jobs.option_words import GIB
from jobs.options import Options
from jobs.words import gpus
from scheduling.host_shares import HostKinds, counting_on, slots_for
from workers.queries import HostOffer, host_offers

__all__ = ["check_wish"]


def check_wish(problems: Problems, given: Options, group: InstanceGroup | None, least: int) -> None:
    """Check that some host of the group could give what is asked for, and all hosts at once to `least` GPUs.

    Nothing is refused where a host does not tell its cores and memory, or may still come.
    """
    if group is None or problems.fields.keys() & {"cpus_per_gpu", "memory_gib_per_gpu", "min_slots", "max_slots"}:
        return
    offers = host_offers(group.resource_group)
    if (wish := given.wish) is None or not offers or any(offer.share is None for offer in offers):
        return
    too_much = _add_largest(problems, given, group, offers)
    if too_much:
        return
    sizes = {offer.name: offer.slots for offer in offers}
    shares = {offer.name: offer.share for offer in offers if offer.share is not None}
    found = counting_on(wish, least, HostKinds(sizes, shares))
    most = sum(size // found.per_gpu for host, size in sizes.items() if host not in found.unfit)
    field = "cpus_per_gpu" if wish.cores else "memory_gib_per_gpu"
    words = wish_words(*wish)
    if all(slots_for(wish, shares[host]) > size for host, size in sizes.items()):
        problems.add(field, f"No host of {group.name} can give {words} with one GPU: ask for less of one of them.")
    elif most < least:
        problems.add(
            field,
            f"With {words} each, the hosts of {group.name} have room for {gpus(most)} at a time, not {least}: request "
            "fewer GPUs, or less with each.",
        )


def _add_largest(problems: Problems, given: Options, group: InstanceGroup, offers: list[HostOffer]) -> bool:
    """Add a sentence for each wish that even the largest host cannot give; returns whether there is one."""
    cores, memory = given.cpus_per_gpu or 0, (given.memory_gib_per_gpu or 0) * GIB
    roomy, large = max(offers, key=_cores), max(offers, key=_memory)
    if cores > _cores(roomy):
        problems.add(
            "cpus_per_gpu",
            f"No host of {group.name} has {cores_words(cores)} for one GPU: the largest, {roomy.name}, has "
            f"{cores_words(_cores(roomy))} for trainings. Ask for at most {floor(_cores(roomy))}.",
        )
    if memory > _memory(large):
        problems.add(
            "memory_gib_per_gpu",
            f"No host of {group.name} has {size_words(memory)} of memory for one GPU: the largest, {large.name}, has "
            f"{size_words(_memory(large))} for trainings. Ask for at most {_memory(large) // GIB} GiB.",
        )
    return cores > _cores(roomy) or memory > _memory(large)


def _cores(offer: HostOffer) -> float:
    assert offer.share is not None
    return round(offer.share.cores * offer.slots, 6)


def _memory(offer: HostOffer) -> int:
    assert offer.share is not None
    return offer.share.memory * offer.slots
