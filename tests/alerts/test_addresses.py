"""Addresses of channels: validation, display, and the hosts that a message may connect to."""

import ipaddress

import pytest

from alerts.addresses import checked_address, is_allowed, masked
from alerts.alert_kinds import ChannelKind
from core.errors import UserError

SLACK = "https://hooks.slack.com/services/T0AAA/B0BBB/abcDEF123"


@pytest.mark.parametrize(
    ("kind", "address", "shown"),
    [
        (ChannelKind.WEBHOOK, "https://example.org/hooks/secret?key=1", "https://example.org/…"),
        (ChannelKind.WEBHOOK, " https://example.org:8443 ", "https://example.org:8443/…"),
        (ChannelKind.WEBHOOK, "https://8.8.8.8/x", "https://8.8.8.8/…"),
        (ChannelKind.WEBHOOK, "https://[2606:4700::1111]:8443/x", "https://[2606:4700::1111]:8443/…"),
        (ChannelKind.SLACK, SLACK, "https://hooks.slack.com/…"),
        (ChannelKind.EMAIL, "ada@example.org", "a…@example.org"),
    ],
)
def test_addresses_are_taken_and_masked(kind: str, address: str, shown: str) -> None:
    checked = checked_address(kind, address, [])
    assert (checked, masked(kind, checked)) == (address.strip(), shown)


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (ChannelKind.WEBHOOK, "http://example.org/"),
        (ChannelKind.WEBHOOK, "ftp://example.org/"),
        (ChannelKind.WEBHOOK, "json://example.org/"),
        (ChannelKind.WEBHOOK, "file:///etc/passwd"),
        (ChannelKind.WEBHOOK, "https://"),
        (ChannelKind.WEBHOOK, "https://example.org:99999/"),
        (ChannelKind.WEBHOOK, "https://ada:secret@example.org/"),
        (ChannelKind.WEBHOOK, "https://example.org/#part"),
        (ChannelKind.WEBHOOK, "https://example.org/a b"),
        (ChannelKind.WEBHOOK, "https://example.org/\r\nHost: other"),
        (ChannelKind.WEBHOOK, "https://[::1/"),
        (ChannelKind.WEBHOOK, "https://127.0.0.1/"),
        (ChannelKind.WEBHOOK, "https://localhost./"),
        (ChannelKind.WEBHOOK, "https://10.1.2.3/"),
        (ChannelKind.WEBHOOK, "https://169.254.169.254/latest/meta-data/"),
        (ChannelKind.WEBHOOK, "https://[::ffff:127.0.0.1]/"),
        (ChannelKind.WEBHOOK, "https://example.org/" + "x" * 2000),
        (ChannelKind.WEBHOOK, "https://example.org/\0"),
        (ChannelKind.SLACK, "https://hooks.slack.com.evil.org/services/T0AAA/B0BBB/abc"),
        (ChannelKind.SLACK, "https://hooks.slack.com/services/T0AAA/B0BBB/abc?to=other"),
        (ChannelKind.EMAIL, "ada"),
        (ChannelKind.EMAIL, "ada@example.org,bob@example.org"),
        (ChannelKind.EMAIL, '"a,b"@example.org'),
        (ChannelKind.EMAIL, "ada@example.org\nBcc: bob@example.org"),
    ],
)
def test_addresses_are_refused(kind: str, address: str) -> None:
    with pytest.raises(UserError) as refused:
        checked_address(kind, address, [])
    assert list(refused.value.fields) == ["address"]


def test_named_networks_are_reached_without_tls_too() -> None:
    assert checked_address(ChannelKind.WEBHOOK, "http://10.1.2.3/x", ["10.0.0.0/8"]) == "http://10.1.2.3/x"
    with pytest.raises(UserError):
        checked_address(ChannelKind.WEBHOOK, "http://8.8.8.8/x", ["10.0.0.0/8"])


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("127.0.0.1", False),
        ("::1", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("224.0.0.251", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("192.0.0.8", False),
        ("192.88.99.1", False),
        ("64:ff9b:1::a00:1", False),
        ("64:ff9b::808:808", True),
        ("::7f00:1", False),
        ("::ffff:0:10.0.0.1", False),
        ("2001::1", False),
        ("fec0::1", False),
        ("5f00::1", False),
        ("3fff::1", False),
        ("2001:db8::1", False),
        ("198.18.0.1", False),
        ("240.0.0.1", False),
    ],
)
def test_only_public_addresses_are_allowed_unless_named(address: str, allowed: bool) -> None:
    number = ipaddress.ip_address(address)
    assert is_allowed(number, [], plain=False) is allowed
    assert is_allowed(number, [], plain=True) is False
    assert is_allowed(number, ["0.0.0.0/0", "::/0"], plain=True) is True
