"""Jobs on several hosts stay apart where that is possible."""

from collections import defaultdict
from random import Random

import pytest

from scheduling.placement.packing import pack
from scheduling.placement.slots_by_host import SlotsByHost
from scheduling.placement.spread import shared_hosts, spread
from scheduling.snapshot import SlotRef


def slots(**hosts: str) -> dict[str, tuple[SlotRef, ...]]:
    """`h1="023"`: these slots of h1."""
    return {host: tuple(SlotRef(host, int(index)) for index in indices) for host, indices in hosts.items()}


def hosts_of(refs: list[SlotRef]) -> set[str]:
    return {ref.host for ref in refs}


def test_a_job_on_several_hosts_avoids_those_of_another_one() -> None:
    kept = {1: (SlotRef("h1", 0), SlotRef("h2", 0)), 2: (SlotRef("h3", 0),)}
    found = spread({2: 2}, kept, slots(h2="12", h4="1", h5="1"), {})
    assert hosts_of(found[2]) == {"h4", "h5"}
    assert shared_hosts(kept, found) == 0


def test_it_takes_whole_hosts_before_parts() -> None:
    kept = {1: (SlotRef("h1", 0), SlotRef("h2", 0))}
    found = spread({2: 8}, kept, slots(h1="1234567", h3="0123", h4="0123"), {"h3": 4, "h4": 4})
    assert hosts_of(found[2]) == {"h3", "h4"}


def test_where_there_is_no_other_place_it_shares() -> None:
    kept = {1: (SlotRef("h1", 0), SlotRef("h2", 0)), 2: (SlotRef("h3", 0),)}
    assert hosts_of(spread({2: 2}, kept, slots(h2="12"), {})[2]) == {"h2"}


def drawn(draw: Random) -> tuple[dict[int, int], dict[int, tuple[SlotRef, ...]], dict[str, tuple[SlotRef, ...]]]:
    """Draw what jobs want, what they keep, and what is free, on a few hosts of up to four slots."""
    kept, free = defaultdict[int, list[SlotRef]](list), defaultdict[str, list[SlotRef]](list)
    for host in range(draw.randint(1, 6)):
        for index in range(draw.randint(1, 4)):
            ref = SlotRef(f"h{host}", index)
            if holder := draw.choice([0, 0, 1, 2, 3]):
                kept[holder].append(ref)
            else:
                free[ref.host].append(ref)
    left, wanted = sum(map(len, free.values())), dict[int, int]()
    for job in range(1, 6):
        if count := min(draw.randint(0, 6), left):
            wanted[job] = count
            left -= count
    return wanted, {job: tuple(refs) for job, refs in kept.items()}, {host: tuple(refs) for host, refs in free.items()}


@pytest.mark.parametrize("seed", range(20))
def test_everybody_gets_as_many_and_shares_no_more_than_when_packed(seed: int) -> None:
    draw = Random(seed)
    for _ in range(20):
        wanted, kept, free = drawn(draw)
        held = hosts_of([ref for refs in kept.values() for ref in refs])
        slots_of = {host: len(refs) + 4 * (host in held) for host, refs in free.items()}
        found = spread(wanted, kept, free, slots_of)
        claimed = [ref for refs in found.values() for ref in refs]
        assert {job: len(refs) for job, refs in found.items()} == wanted
        assert len(set(claimed)) == len(claimed)
        assert set(claimed) <= {ref for refs in free.values() for ref in refs}
        assert shared_hosts(kept, found) <= shared_hosts(kept, pack(wanted, kept, SlotsByHost(free)))
        assert spread(wanted, kept, free, slots_of) == found
        for job, refs in found.items():
            if not hosts_of(refs) <= (own := hosts_of(list(kept.get(job, ())))):
                assert not [ref for host in own for ref in free.get(host, ()) if ref not in claimed]
