"""A group of processes outside a cluster that meet at an address: none joins later, and none may die."""

import atexit
import socket
from datetime import timedelta

import torch
from torch._C._distributed_c10d import TCPStore

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
    return group, store


def _own_address(address: str, port: int) -> str:
    """Return the address of the interface by which this host reaches `address`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        name: str = probe.getsockname()[0]
    return name
