"""CPUs near each GPU of this host, as the kernel tells them: those of the NUMA node to which the GPU is attached."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pynvml

from workers.executor.devices.inventory import address_of, or_none

__all__ = ["near_cpus"]

_DEVICES: Final = Path("/sys/bus/pci/devices")


def near_cpus(uuids: Iterable[str], devices: Path = _DEVICES) -> tuple[str, ...]:
    """Return the list of CPUs near each GPU, such as "0-31,64-95"; "": not known, or the host has one node.

    devices: the kernel's folder of devices.
    """
    addresses = _addresses([*uuids])
    return tuple(_near(devices / address) if address else "" for address in addresses)


def _near(folder: Path) -> str:
    """Return the list of CPUs near a device, from the kernel's folder of it."""
    try:
        node, cpus = ((folder / name).read_text().strip() for name in ("numa_node", "local_cpulist"))
    except OSError:
        return ""
    return "" if node.startswith("-") else cpus


def _addresses(uuids: Sequence[str]) -> list[str]:
    """Return the address of each GPU, or of the board of an instance of one; "": the driver does not tell."""
    unknown = [""] * len(uuids)
    if not uuids:
        return unknown
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return unknown
    try:
        return [_address(uuid) for uuid in uuids]
    finally:
        or_none(pynvml.nvmlShutdown)


def _address(uuid: str) -> str:
    handle = or_none(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return ""
    return address_of(or_none(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle)
