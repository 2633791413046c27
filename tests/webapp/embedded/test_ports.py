from __future__ import annotations

import socket

import pytest

from webapp.embedded import ports

DEFAULT = ["127.0.0.1", "localhost", "[::1]"]


def test_a_port_in_use_is_refused_with_another_one_to_try() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ports.AddressRefused, match=f"Port {port} is in use: .* --port {port + 1}"):
            ports.check_port("127.0.0.1", port)
    ports.check_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ports.AddressRefused, match="cannot be served"):
        ports.check_port("192.0.2.1", 8000)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
def test_loopback_needs_no_permission(address: str) -> None:
    ports.check_address(address, DEFAULT)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3"])
@pytest.mark.parametrize("hosts", [DEFAULT, [], ["*"], ["localhost"], [".local", "*"]])
def test_serving_other_machines_needs_the_names_of_the_site(address: str, hosts: list[str]) -> None:
    with pytest.raises(ports.AddressRefused, match="set TIDEPOOL_ALLOWED_HOSTS"):
        ports.check_address(address, hosts)
    ports.check_address(address, ["gpus.example.org"])


def test_a_name_is_not_an_address() -> None:
    with pytest.raises(ports.AddressRefused, match="is not an IP address"):
        ports.check_address("localhost", DEFAULT)


def test_addresses_of_the_sixth_version_are_bracketed() -> None:
    assert ports.site_url("::1", 8000) == "http://[::1]:8000"
    assert ports.site_url("127.0.0.1", 8123) == "http://127.0.0.1:8123"
