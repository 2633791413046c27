import socket
from argparse import ArgumentTypeError

import pytest
from django.core.management import CommandError

from webapp.embedded import ports

DEFAULT = ["127.0.0.1", "localhost", "[::1]"]


def test_a_port_in_use_is_refused_with_another_one_to_try() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(CommandError, match=f"Port {port} is in use: .* --port {port + 1}"):
            ports.check_port("127.0.0.1", port)
    ports.check_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(CommandError, match="cannot be served"):
        ports.check_port("192.0.2.1", 8000)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
def test_loopback_needs_no_permission(address: str) -> None:
    ports.check_address(address, DEFAULT)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3"])
@pytest.mark.parametrize("hosts", [DEFAULT, [], ["*"], ["localhost"], [".local", "*"]])
def test_serving_other_machines_needs_the_names_of_the_site(address: str, hosts: list[str]) -> None:
    with pytest.raises(CommandError, match="set TIDEPOOL_ALLOWED_HOSTS"):
        ports.check_address(address, hosts)
    ports.check_address(address, ["gpus.example.org"])


def test_a_name_is_not_an_address() -> None:
    with pytest.raises(CommandError, match="is not an IP address"):
        ports.check_address("localhost", DEFAULT)


def test_addresses_of_the_sixth_version_are_bracketed() -> None:
    assert ports.site_url("::1", 8000) == "http://[::1]:8000"
    assert ports.site_url("127.0.0.1", 8123) == "http://127.0.0.1:8123"


def test_wmlas_ports_are_told_by_scheme() -> None:
    assert [str(listener) for listener in ports.parse_listeners(ports.WMLA_PORTS)] == ports.WMLA_PORTS.split(",")
    (listener,) = ports.parse_listeners(" https:443 ")
    assert (listener.is_tls, listener.url("::1")) == (True, "https://[::1]:443")


@pytest.mark.parametrize("text", ["", "8643", "ftp:21", "https:", "https:0", "http:65536", "http:８280", "http:8280,"])
def test_what_is_no_port_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a port: write http:8280 or https:8643"):
        ports.parse_listeners(text)


def test_a_port_is_named_once() -> None:
    with pytest.raises(ArgumentTypeError, match="names a port twice"):
        ports.parse_listeners("https:8643,http:8643")


def test_one_of_several_ports_in_use_is_named_with_the_option_that_chooses_others() -> None:
    with socket.socket() as free, socket.socket() as holder:
        for each in (free, holder):
            each.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        listeners = ports.parse_listeners(f"http:{free.getsockname()[1]},https:{taken}")
        free.close()
        with pytest.raises(CommandError, match=rf"Port {taken} is in use: .* --wmla-ports http:1\d+,https:1\d+"):
            ports.check_ports("127.0.0.1", listeners)
