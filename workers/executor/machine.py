"""Checks of the executor's address, its ports, and its folder for sockets and records.

A configuration that cannot work is refused at the start. Later it would show only in trainings that never begin.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from tidepool.network_interfaces import Interfaces, interface_of, interfaces, is_loopback, resolve_host

from workers.executor.config import ConfigError, ExecutorConfig
from workers.executor.ports import check_ports, given_ports

__all__ = ["Mounts", "filesystem_of", "host_address", "mounts", "placed", "refuse_shared_folder"]

#: File systems that several machines share: sockets do not work across machines there, and locks may not.
_SHARED = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.ceph", "lustre", "gpfs", "beegfs", "panfs"),
    *("glusterfs", "fuse.glusterfs", "orangefs", "fuse.sshfs", "fuse.juicefs"),
}

#: Mount point -> kind of file system; if two have the same mount point, the later one counts.
Mounts = Mapping[Path, str]


def placed(config: ExecutorConfig) -> ExecutorConfig:
    """Return the configuration with its address filled in. Raises ConfigError."""
    if config.lifeline_fd is None:
        refuse_shared_folder(config.run_folder, mounts())
    if config.ports is not None:
        check_ports(config.ports, given_ports())
    return replace(config, address=host_address(config, interfaces()))


def mounts() -> Mounts:
    return {Path(each.mountpoint): each.fstype for each in psutil.disk_partitions(all=True)}


def host_address(config: ExecutorConfig, known: Interfaces) -> str:
    """Return TIDEPOOL_ADDRESS, the address of TIDEPOOL_INTERFACE, or on the broker's machine the loopback.

    Raises ConfigError if other hosts could not reach the address. A host with a lifeline belongs to the embedded stack,
    whose hosts are all on this machine.
    """
    if config.interface:
        return _address_of(config.interface, config.address, known)
    alone = config.lifeline_fd is not None or _is_here(config.broker_url, known)
    if not config.address:
        if alone:
            return "127.0.0.1"
        raise ConfigError(f"set TIDEPOOL_ADDRESS to the address at which other hosts reach this one, {_choice(known)}")
    if interface_of(config.address, known) is None:
        raise ConfigError(
            f"TIDEPOOL_ADDRESS is {config.address}, which no interface of this machine has: use {_choice(known)}"
        )
    if not alone and all(map(is_loopback, resolve_host(config.address))):
        raise ConfigError(
            f"TIDEPOOL_ADDRESS is {config.address}, which no other host can reach, and the broker is on another "
            f"machine: use {_choice(known)}"
        )
    return config.address


def _address_of(interface: str, address: str, known: Interfaces) -> str:
    if not known.get(interface):
        raise ConfigError(f"TIDEPOOL_INTERFACE is {interface!r}, which has no address: use {_choice(known)}")
    if address and interface_of(address, known) != interface:
        raise ConfigError(
            f"TIDEPOOL_ADDRESS is {address}, which is not of TIDEPOOL_INTERFACE {interface} ({known[interface][0]}): "
            "set one of them"
        )
    return address or known[interface][0]


def _is_here(broker_url: str, known: Interfaces) -> bool:
    """Return whether the broker is on this machine."""
    host = urlsplit(broker_url).hostname
    return not host or any(interface_of(address, known) for address in resolve_host(host))


def _choice(known: Interfaces) -> str:
    outside = {name: [each for each in addresses if not is_loopback(each)] for name, addresses in known.items()}
    return " or ".join(f"{addresses[0]} ({name})" for name, addresses in outside.items() if addresses)


def refuse_shared_folder(folder: Path, mounts: Mounts) -> None:
    """Raise ConfigError if the folder is on a shared file system."""
    kind = filesystem_of(folder, mounts)
    if kind in _SHARED:
        raise ConfigError(
            f"{folder} is on {kind}, which other machines share: "
            "set TIDEPOOL_RUN to a folder on this machine's own disk"
        )


def filesystem_of(folder: Path, mounts: Mounts) -> str:
    """Return the kind of file system that contains `folder`, which need not exist yet."""
    above: Iterable[Path] = (folder, *folder.parents)
    return next((mounts[path] for path in above if path in mounts), "")
