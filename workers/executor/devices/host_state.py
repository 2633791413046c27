"""Facts about this host that its findings are made of, read from the driver, the kernel and a self-test of torch."""

import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

from workers.executor.devices.findings import HostState
from workers.executor.devices.inventory import read_inventory
from workers.executor.devices.kernel_log import read_xids
from workers.executor.devices.self_test import self_test

__all__ = ["read_host_state"]

_SHM = Path("/dev/shm")  # noqa: S108 - its size is read
_INFINIBAND = Path("/sys/class/infiniband")
_VERBS = Path("/dev/infiniband")


def read_host_state(environment: Mapping[str, str], home: Path, virtual_slots: int | None) -> HostState:
    """environment: of the self-test's process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return HostState(
        inventory=read_inventory(),
        torch=self_test(environment),
        virtual_slots=virtual_slots,
        xids=read_xids(),
        shm_bytes=shutil.disk_usage(_SHM).total if _SHM.is_dir() else None,
        memlock_bytes=None if limit == resource.RLIM_INFINITY else limit,
        infiniband=_names(_INFINIBAND),
        verbs=_names(_VERBS),
        free_bytes={str(home): shutil.disk_usage(_present(home)).free},
    )


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(os.listdir(folder))) if folder.is_dir() else ()


def _present(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())
