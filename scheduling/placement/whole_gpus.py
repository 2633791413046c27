"""Choice of slots for a job whose GPUs each count as several slots of one host; see `scheduling.host_shares`."""

from collections import Counter
from collections.abc import Iterable, Mapping

from scheduling.snapshot import SlotRef

__all__ = ["choose_whole"]


def choose_whole(
    count: int, per_gpu: int, kept: Iterable[SlotRef], free: Mapping[str, tuple[SlotRef, ...]]
) -> list[SlotRef]:
    """Return at most `count` slots of `free`, with which the job has a multiple of `per_gpu` on each host.

    Hosts of its `kept` slots come first, then the one that is just large enough, or else the largest.
    """
    has, chosen = Counter(ref.host for ref in kept), list[SlotRef]()
    left = {host: (has[host] + len(refs)) // per_gpu * per_gpu - has[host] for host, refs in free.items()}

    def place(host: str) -> tuple[bool, bool, int, str]:
        too_few = left[host] < count - len(chosen)
        return host not in has, too_few, -left[host] if too_few else left[host], host

    while hosts := [host for host, size in left.items() if size > 0]:
        host = min(hosts, key=place)
        wants = count - len(chosen)
        # The slots that complete a GPU, and then whole ones.
        begun = -has[host] % per_gpu
        taken = min(left.pop(host), begun + max(0, wants - begun) // per_gpu * per_gpu)
        if begun <= wants:
            chosen += free[host][:taken]
    return chosen
