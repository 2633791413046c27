"""Limits of join tokens: the names of hosts and the networks that may use one."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.errors import field_error

__all__ = ["MOST_LIMITS", "JoinLimits", "words_of"]

#: Most names, and most networks, of a token.
MOST_LIMITS = 100
#: A host's name in which `*` stands for any characters.
_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,63}")


@dataclass(frozen=True)
class JoinLimits:
    """Names of hosts, in which `*` stands for any characters, and networks such as `10.1.0.0/16`. None given: any."""

    names: Sequence[str] = ()
    networks: Sequence[str] = ()

    @classmethod
    def checked(cls, names: Iterable[str], networks: Iterable[str]) -> "JoinLimits":
        """Return the limits in their usual form. Raises UserError for a mistake."""
        found = cls(list(dict.fromkeys(names)), list(dict.fromkeys(map(_network, networks))))
        for name in found.names:
            if not _PATTERN.fullmatch(name):
                raise field_error(
                    "names",
                    f"{name[:64]!a} is no host's name: use letters, digits, dots, dashes, underscores and *.",
                )
        for field in ("names", "networks"):
            if len(getattr(found, field)) > MOST_LIMITS:
                raise field_error(field, f"Give at most {MOST_LIMITS} {field}.")
        return found

    def why_refused(self, host: str, address: str) -> str:
        """Return why a host of this name may not use the token from this address, in a sentence; "": it may."""
        if self.names and not any(_matches(name, host) for name in self.names):
            return f"The join token is not for a host named {host}: choose another name, or ask for another token."
        if self.networks and not any(_is_in(address, network) for network in self.networks):
            return f"The join token is not for {address or 'a machine without an address'}: ask for another token."
        return ""


def words_of(text: str) -> list[str]:
    """Return the words of a field in which people separate them by spaces or commas."""
    return text.replace(",", " ").split()


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError:
        raise field_error("networks", f"{text[:64]!a} is no network: write it as 10.1.0.0/16, or an address.") from None


def _is_in(address: str, network: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a unix socket has none
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found) in ipaddress.ip_network(network)
