"""Choice of hosts for jobs that need the same number of slots on each: on as few hosts as possible."""

from collections.abc import Mapping

from scheduling.snapshot import SlotRef

__all__ = ["choose_equal"]


def choose_equal(
    wanted: Mapping[int, int], free: Mapping[str, tuple[SlotRef, ...]], per_gpu: int = 1
) -> dict[int, list[SlotRef]]:
    """Return job -> as many slots of `free` as it wants, the same number on each host; none if it has to wait.

    per_gpu: slots of one host that each GPU counts as.
    """
    left = {host: list(refs) for host, refs in free.items()}
    chosen: dict[int, list[SlotRef]] = {}
    for job, count in wanted.items():
        chosen[job] = []
        for each in (each for each in range(count, 0, -1) if count % each == 0 and each % per_gpu == 0):
            # Hosts that just have enough leave the others whole.
            enough = sorted((len(refs), host) for host, refs in left.items() if len(refs) >= each)
            if len(enough) >= count // each:
                for _, host in enough[: count // each]:
                    chosen[job] += left[host][:each]
                    del left[host][:each]
                break
    return chosen
