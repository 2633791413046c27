"""Addresses of channels: what each kind takes, and how it is shown. Nothing here asks the network."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from alerts.alert_kinds import ChannelKind
from core.errors import field_error
from core.text import is_storable

__all__ = ["NetworkAddress", "checked_address", "embedded_address", "is_allowed", "masked", "slack_tokens"]

_LONGEST = 2000
_SLACK = re.compile(r"https://hooks\.slack\.com/services/([A-Z0-9]{1,24})/([A-Z0-9]{1,24})/([A-Za-z0-9]{1,64})/?")
#: IPv6 addresses by which a gateway reaches IPv4 ones (RFC 6052).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: Networks of IANA's registries of special-purpose addresses (RFC 6890) that some versions of Python call global, and
#: such as are no longer assigned: protocol assignments, 6to4 relays, addresses with an IPv4 address at the end, local
#: NAT64, documentation, segment routing, and site-local ones.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            *("192.0.0.0/24", "192.88.99.0/24"),
            *("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16", "fec0::/10"),
        ),
    )
)

NetworkAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_allowed(address: NetworkAddress, networks: Sequence[str], *, plain: bool) -> bool:
    """Return whether a message may go there: to public addresses, and to these networks. `plain`: without TLS."""
    inner = embedded_address(address)
    if any(inner in ipaddress.ip_network(network) for network in networks):
        return True
    return not plain and _is_public(inner)


def _is_public(address: NetworkAddress) -> bool:
    return address.is_global and not address.is_multicast and not any(address in network for network in _SPECIAL)


def embedded_address(address: NetworkAddress) -> NetworkAddress:
    """Return the IPv4 address embedded in an IPv6 one; other addresses unchanged."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def checked_address(kind: str, text: str, networks: Sequence[str]) -> str:
    """Return the address without blanks around it. UserError says what to change."""
    address = text.strip()
    if not is_storable(address) or len(address) > _LONGEST:
        raise field_error("address", f"Enter an address of at most {_LONGEST} characters.")
    checks: dict[str, Callable[[str, Sequence[str]], None]] = {
        ChannelKind.EMAIL: _check_mail,
        ChannelKind.SLACK: _check_slack,
        ChannelKind.WEBHOOK: _check_webhook,
    }
    checks[kind](address, networks)
    return address


def masked(kind: str, address: str) -> str:
    """Return the part of a checked address that may be shown: enough to recognize it, too little to use it."""
    if kind == ChannelKind.EMAIL:
        name, _, host = address.rpartition("@")
        return f"{name[:1]}…@{host}"[:255]
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}/…"[:255]


def slack_tokens(address: str) -> tuple[str, str, str]:
    """Return the three parts of the address of an incoming webhook of Slack. ValueError where it is none."""
    found = _SLACK.fullmatch(address)
    if found is None:
        raise ValueError(address)
    return found[1], found[2], found[3]


def _check_mail(address: str, networks: Sequence[str]) -> None:
    try:
        validate_email(address)
    except ValidationError:
        raise field_error("address", "Enter an e-mail address, such as ada@example.org.") from None
    if re.search(r'[",;<>\s]', address):
        raise field_error("address", "Enter a single e-mail address, without quotes and names.")


def _check_slack(address: str, networks: Sequence[str]) -> None:
    if not _SLACK.fullmatch(address):
        sentence = "Enter the address of an incoming webhook: https://hooks.slack.com/services/T…/B…/…"
        raise field_error("address", sentence)


def _check_webhook(address: str, networks: Sequence[str]) -> None:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
        host.encode("idna" if not host.isascii() else "ascii")
    except ValueError:
        raise field_error("address", "Enter a web address, such as https://example.org/hook.") from None
    if parts.scheme not in ("https", "http") or not host or not address.isascii() or not address.isprintable():
        raise field_error("address", "Enter an address that begins with https://, such as https://example.org/hook.")
    if re.search(r"[\s\\]", address) or parts.username is not None or parts.fragment:
        raise field_error("address", "Enter the address without spaces, user, password and fragment (#).")
    if parts.scheme == "http" and not networks:
        raise field_error("address", "Messages are only sent over https://: enter such an address.")
    _refuse_private(host, networks, plain=parts.scheme == "http")


def _refuse_private(host: str, networks: Sequence[str], *, plain: bool) -> None:
    """Refuse private literal addresses early. Host names are checked when a message is sent."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        if host.rstrip(".").lower() != "localhost":
            return
        number = ipaddress.IPv4Address("127.0.0.1")
    if not is_allowed(number, networks, plain=plain):
        sentence = (
            f"{host} is not in a network to which alerts may be sent: enter a public address, or ask an administrator."
        )
        raise field_error("address", sentence)
