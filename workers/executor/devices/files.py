"""Files in /dev of this host's GPUs, by which sealed trainings open theirs."""

from collections.abc import Iterable, Mapping
from typing import Final

import pynvml
from tidepool.confine.devices import FOLDER, Device, device_of

from workers.executor.devices.inventory import or_none

__all__ = ["GpuFiles", "why_not_apart"]

_INSTANCE: Final = "MIG-"


def why_not_apart(uuids: Iterable[str]) -> str:
    """Return why the files of these GPUs do not keep trainings apart, as a part of a sentence; "": they do."""
    if any(uuid.startswith(_INSTANCE) for uuid in uuids):
        return "its GPUs are divided into MIG instances, and the filter knows whole GPUs only"
    return ""


class GpuFiles:
    """Files of GPUs by UUID, as the driver tells. A GPU keeps its file for as long as the machine runs."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, uuids: Iterable[str]) -> Mapping[str, Device]:
        """Return the GPUs by the names of their files; one that the driver or /dev does not have is left out."""
        found = {}
        for uuid in dict.fromkeys(uuids):
            name = self._name(uuid)
            device = _device_at(f"{FOLDER}/{name}") if name else None
            if device is not None:
                found[name] = device
        return found

    def _name(self, uuid: str) -> str:
        if uuid not in self._names:
            number = _number_of(uuid)
            if number is None:
                return ""
            self._names[uuid] = f"nvidia{number}"
        return self._names[uuid]


def _number_of(uuid: str) -> int | None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = or_none(pynvml.nvmlDeviceGetHandleByUUID, uuid)
        return None if handle is None else or_none(pynvml.nvmlDeviceGetMinorNumber, handle)
    finally:
        or_none(pynvml.nvmlShutdown)


def _device_at(place: str) -> Device | None:
    try:
        return device_of(place)
    except OSError:
        return None
