"""A group of processes outside a cluster that meet at an address: none joins later, and none may die."""

import atexit
import socket
import threading
import time
from datetime import timedelta

import msgspec
import torch
from torch._C._distributed_c10d import TCPStore

from tidepool.collective_calls import CollectiveCall, calls_differ, described
from tidepool.network_interfaces import family_of
from tidepool.torch.comm.gather import WAITS_LONG_SECONDS, call_of
from tidepool.torch.comm.process_group import Group, make_group

__all__ = ["meet"]

#: Seconds to wait for the others, which are started by hand.
PATIENCE_SECONDS = 300.0


def meet(address: str, port: int, rank: int, size: int, device: torch.device) -> tuple[Group, object]:
    """Return the group, and what has to be kept as long as it is used. Rank 0 listens at the address.

    Raises CommunicationError when the others do not come, ValueError for a place that is none.
    """
    if not 0 <= rank < size:
        raise ValueError(f"rank is {rank}: of {size} processes it is one from 0 to {size - 1}")
    if not port:
        raise ValueError(f"{size} processes need an address and a port at which the one of rank 0 listens")
    patience = timedelta(seconds=PATIENCE_SECONDS)
    store = (
        TCPStore(address, port, size, is_master=True, timeout=patience, wait_for_workers=False) if not rank else None
    )
    own = _own_address(address, port)
    group = make_group(
        address=own,
        store_address=address,
        store_port=port,
        prefix="standalone",
        generation=1,
        rank=rank,
        size=size,
        device=device,
        timeout_seconds=PATIENCE_SECONDS,
    )
    # The group's threads must end before the interpreter, which otherwise sometimes aborts.
    atexit.register(group.drop, at_once=True)
    if size > 1:
        watch = (group, threading.get_ident())
        threading.Thread(target=_watch, args=watch, name="calls", daemon=True).start()
    return group, store


def _watch(group: Group, thread: int) -> None:
    """Break the group off once its processes wait for each other in different calls."""
    while not group.broken:
        time.sleep(WAITS_LONG_SECONDS)
        call = call_of(group, thread)
        if call is None:
            continue
        try:
            calls = _exchanged(group, call)
        except RuntimeError:  # the process that holds the store has ended, which breaks the group as well
            return
        same = {rank: other for rank, other in calls.items() if other.number == call.number}
        if len({other.kind for other in same.values()}) > 1:
            words = {f"rank {rank}": described(other.kind, other.place) for rank, other in sorted(same.items())}
            group.why_broken = calls_differ(words)
            time.sleep(2 * WAITS_LONG_SECONDS)  # the others find out by themselves
            group.break_off()


def _exchanged(group: Group, call: CollectiveCall) -> dict[int, CollectiveCall]:
    """Tell the others of this process's call, and return the newest calls that are known."""
    assert group.store is not None
    keys = {rank: f"call/{rank}" for rank in range(group.size)}
    group.store.set(keys[group.rank], msgspec.json.encode(call).decode())
    told = {rank: group.store.get(key) for rank, key in keys.items() if group.store.check([key])}
    return {rank: msgspec.json.decode(content, type=CollectiveCall) for rank, content in told.items()}


def _own_address(address: str, port: int) -> str:
    """Return the address of the interface by which this host reaches `address`."""
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        name: str = probe.getsockname()[0]
    return name
