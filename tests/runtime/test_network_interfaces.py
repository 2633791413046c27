"""Tests of the interface that gloo and NCCL are told, by the host's address."""

import errno
import socket

import pytest
from tidepool.network_interfaces import (
    NO_PORT,
    connection_problem,
    family_of,
    interface_of,
    interface_variables,
    interfaces,
    listen_at,
    with_port_hint,
)

KNOWN = {"lo": ["127.0.0.1", "::1"], "mgmt0": ["192.168.0.7"], "train0": ["10.0.0.7", "10.0.0.8", "fd00::7"]}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.7", "train0"),
        ("10.0.0.8", "train0"),
        ("fd00::7", "train0"),
        ("192.168.0.7", "mgmt0"),
        ("127.0.0.1", "lo"),
        ("127.0.1.1", "lo"),
        ("localhost", "lo"),
        ("10.0.0.9", None),
        ("no-such-name.invalid", None),
    ],
)
def test_the_interface_is_the_one_that_has_the_address(address: str, name: str | None) -> None:
    assert interface_of(address, KNOWN) == name


def test_gloo_gets_one_name_and_nccl_that_name_exactly() -> None:
    told = {"GLOO_SOCKET_IFNAME": "train0", "NCCL_SOCKET_IFNAME": "=train0"}
    assert interface_variables("10.0.0.7", KNOWN) == told
    assert interface_variables("10.0.0.9", KNOWN) == {}, "they look by themselves then"


def test_this_machine_has_a_loopback() -> None:
    assert interface_of("127.0.0.1", interfaces()) is not None


@pytest.mark.parametrize(
    ("address", "family"),
    [
        ("10.0.0.7", socket.AF_INET),
        ("fd00::7", socket.AF_INET6),
        ("::1", socket.AF_INET6),
        ("no-such-name.invalid", socket.AF_INET),
    ],
)
def test_listeners_have_the_family_of_their_address(address: str, family: socket.AddressFamily) -> None:
    assert family_of(address) is family


def test_a_machine_without_a_free_port_is_told_which_range_to_widen() -> None:
    with listen_at("127.0.0.1") as taken, pytest.raises(OSError, match="in use") as refusal:
        socket.create_server(taken.getsockname())
    assert "widen that range" in with_port_hint(str(refusal.value))
    assert with_port_hint("timed out") == "timed out"


def test_a_machine_that_has_no_port_to_connect_from_is_told_from_one_that_does_not_answer() -> None:
    assert connection_problem(OSError(errno.EADDRNOTAVAIL, "")) == NO_PORT
    assert connection_problem(ConnectionRefusedError(errno.ECONNREFUSED, "")) == ""
    assert connection_problem(ValueError("no place")) == ""
