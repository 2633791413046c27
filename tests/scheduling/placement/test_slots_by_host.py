"""The index of free slots takes what a search through all hosts would take, however often slots come and go."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from scheduling.placement.slots_by_host import SlotsByHost, by_host
from scheduling.snapshot import SlotRef

Free = dict[str, tuple[SlotRef, ...]]


def whole(count: int, per_gpu: int, kept: Sequence[SlotRef], free: Free) -> list[SlotRef]:
    """Return what `SlotsByHost.take_whole` takes, by a look at all hosts for each."""
    has, chosen = Counter(ref.host for ref in kept), list[SlotRef]()
    left = {host: (has[host] + len(refs)) // per_gpu * per_gpu - has[host] for host, refs in free.items()}

    def place(host: str) -> tuple[bool, bool, int, str]:
        too_few = left[host] < count - len(chosen)
        return host not in has, too_few, -left[host] if too_few else left[host], host

    while hosts := [host for host, size in left.items() if size > 0]:
        host = min(hosts, key=place)
        wants = count - len(chosen)
        begun = -has[host] % per_gpu
        taken = min(left.pop(host), begun + max(0, wants - begun) // per_gpu * per_gpu)
        if begun <= wants:
            chosen += free[host][:taken]
    return chosen


def equal(count: int, per_gpu: int, free: Free) -> list[SlotRef]:
    """Return what `SlotsByHost.take_equal` takes."""
    for each in (each for each in range(count, 0, -1) if count % each == 0 and each % per_gpu == 0):
        enough = sorted((len(refs), host) for host, refs in free.items() if len(refs) >= each)
        if len(enough) >= count // each:
            return [ref for _, host in enough[: count // each] for ref in free[host][:each]]
    return []


def any_slots(dice: Random) -> Free:
    refs = [SlotRef(f"h{host}", index) for host in range(dice.randrange(1, 7)) for index in range(8)]
    return by_host(dice.sample(refs, dice.randrange(len(refs) + 1)))


def without(free: Mapping[str, tuple[SlotRef, ...]], taken: Sequence[SlotRef]) -> Free:
    return by_host(ref for refs in free.values() for ref in refs if ref not in taken)


@pytest.mark.parametrize("seed", range(300))
def test_it_takes_what_a_search_through_all_hosts_takes(seed: int) -> None:
    dice = Random(seed)
    free = any_slots(dice)
    index = SlotsByHost(free)
    for _ in range(12):
        count, per_gpu = dice.randrange(1, 20), dice.randrange(1, 5)
        match dice.randrange(4):
            case 0:
                kept = [SlotRef(f"h{dice.randrange(7)}", 10 + place) for place in range(dice.randrange(6))]
                expected = whole(count, per_gpu, kept, free)
                found = index.take_whole(count, per_gpu, kept)
            case 1:
                expected, found = equal(count, per_gpu, free), index.take_equal(count, per_gpu)
            case 2:
                expected, found = SlotsByHost(free).take(count), index.take(count)
            case _:
                there = [ref for refs in free.values() for ref in refs]
                expected = found = dice.sample(there, min(len(there), count))
                index.remove([*found, SlotRef("elsewhere", 0)])
        assert found == expected
        if dice.randrange(3):
            free = without(free, found)
        else:
            index.put_back(found)
        assert index.count == sum(map(len, free.values()))
        assert index.sizes == {host: len(refs) for host, refs in free.items()}
