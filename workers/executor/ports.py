"""The range of TCP ports that a firewall between the hosts lets through, `TIDEPOOL_PORTS`.

The kernel chooses every port at which processes of a training listen: coordinator, shims and ranks bind port 0, and so
do gloo, which can be given an address only, NCCL and the store of a plain script. A range is therefore set in the
kernel, for the whole network namespace, and checked here.
"""

from collections.abc import Collection
from pathlib import Path

from workers.executor.config import ConfigError

__all__ = ["FEWEST", "check_ports", "given_ports"]

#: Fewest ports of a range. A rank has one for each connection to a rank on another host, twice while it is resized.
FEWEST = 256
_KERNEL = Path("/proc/sys/net/ipv4")


def given_ports(settings: Path = _KERNEL) -> frozenset[int]:
    """Return the ports that the kernel gives to programs that name none. It has one range for IPv4 and IPv6."""
    first, last = map(int, (settings / "ip_local_port_range").read_text().split())
    reserved = (settings / "ip_local_reserved_ports").read_text().strip()
    return frozenset(range(first, last + 1)) - {port for part in reserved.split(",") if part for port in _span(part)}


def check_ports(ports: tuple[int, int], given: Collection[int]) -> None:
    """Raise ConfigError unless the ports that the kernel gives are in the range, and are enough."""
    first, last = ports
    set_it = f"run sysctl -w net.ipv4.ip_local_port_range='{first} {last}', or change TIDEPOOL_PORTS"
    if given and (min(given) < first or max(given) > last):
        raise ConfigError(
            f"TIDEPOOL_PORTS is {first}-{last}, but this machine's kernel gives programs ports from {min(given)} to "
            f"{max(given)}, at which gloo, NCCL and others would listen: {set_it}"
        )
    if len(given) < FEWEST:
        raise ConfigError(
            f"TIDEPOOL_PORTS is {first}-{last}, and this machine's kernel gives programs {len(given)} ports of it: "
            f"trainings need at least {FEWEST}. Widen the range, in net.ipv4.ip_local_port_range, too"
        )


def _span(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)
