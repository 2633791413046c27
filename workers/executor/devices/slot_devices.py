"""Which GPU each slot of this host stands for, by UUID, for as long as the machine runs.

The driver numbers GPUs anew when one drops out; a training that holds slot 3 must not find slot 4's GPU there. The
numbers begin anew when the machine does.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tidepool.journal import replace_file

from workers.executor.config import ExecutorConfig

__all__ = ["SlotDevices", "assigned", "number_of_slots", "recorded_uuids"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FILE = "gpus.json"


def assigned(known: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    """Return the UUIDs by number of GPU: those known keep theirs, and new ones take the places of those that are gone.

    A place that no new one takes keeps the UUID of the GPU that is gone.
    """
    gone = [place for place, uuid in enumerate(known) if uuid not in present]
    places = [*known]
    for uuid in present:
        if uuid in known:
            continue
        if gone:
            places[gone.pop(0)] = uuid
        else:
            places.append(uuid)
    return tuple(places)


def recorded_uuids(folder: Path) -> tuple[str, ...]:
    """Return the UUIDs by number of GPU that `folder` records; () if there are none of the machine's present run."""
    try:
        record = json.loads((folder / _FILE).read_text())
    except (OSError, ValueError):
        return ()
    return tuple(record["uuids"]) if record["boot"] == _boot() else ()


def number_of_slots(config: ExecutorConfig) -> int:
    """Return the number of slots of this host; 0: its GPUs are not known yet."""
    if config.virtual_slots is not None:
        return config.virtual_slots
    return len(recorded_uuids(config.run_folder)) * config.slots_per_gpu


class SlotDevices:
    """The record in `folder`; None: nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.uuids = recorded_uuids(folder) if folder else ()

    def update(self, present: Sequence[str]) -> None:
        """Give new GPUs their places."""
        uuids = assigned(self.uuids, present)
        if uuids == self.uuids:
            return
        self.uuids = uuids
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._folder / _FILE, json.dumps({"boot": _boot(), "uuids": uuids}))


def _boot() -> str:
    return _BOOT.read_text().strip()
