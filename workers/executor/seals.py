"""Seals of this host's trainings: each may open the GPUs of its slots, and finds no others in its /dev."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tidepool.confine.devices import Device, give, shared
from tidepool.protocol import ShimStatus
from tidepool.shim_slots import SlotGpus

from workers.executor.config import ExecutorConfig
from workers.executor.devices.files import GpuFiles
from workers.executor.devices.slot_devices import recorded_uuids
from workers.executor.limits import JobLimits

__all__ = ["Seals"]

logger = logging.getLogger(__name__)


@dataclass
class Seals:
    """The seals of all jobs; none where the operator has not chosen them."""

    config: ExecutorConfig
    limits: JobLimits
    _files: GpuFiles = field(default_factory=GpuFiles)
    #: Process and GPUs that each job was given.
    _given: dict[tuple[int, int], tuple[int, frozenset[str]]] = field(default_factory=dict)

    def devices(self, slots: Iterable[int]) -> frozenset[Device] | None:
        """Return the devices that a job with these slots may open; None: it is not kept from any."""
        if self.config.isolation != "sealed":
            return None
        return shared() | {*self._gpus(slots).values()}

    def keep(self, key: tuple[int, int], shim: ShimStatus | None, slots: Iterable[int]) -> bool:
        """Give a job the GPUs of its slots and take the others away; return whether it has them.

        shim: the newest status of its guardian, which has none before its wall stands.
        """
        if self.config.isolation != "sealed":
            return True
        if shim is None:
            return False
        gpus = self._gpus(slots)
        wanted = shim.pid, frozenset(gpus)
        if self._given.get(key) == wanted:
            return True
        try:
            self.limits.allow(key, shared() | {*gpus.values()})
            give(shim.pid, gpus, partial(self.limits.holds, key))
        except OSError as error:
            logger.warning("job=%s attempt=%s: its GPUs cannot be changed: %s", *key, error)
            return False
        self._given[key] = wanted
        return True

    def forget(self, key: tuple[int, int]) -> None:
        self._given.pop(key, None)

    def _gpus(self, slots: Iterable[int]) -> Mapping[str, Device]:
        if self.config.virtual_slots is not None:
            return {}
        slot_gpus = SlotGpus(self.config.slots_per_gpu, recorded_uuids(self.config.run_folder))
        return self._files.of(slot_gpus.of(slots))
