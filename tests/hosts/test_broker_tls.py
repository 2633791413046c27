"""A broker that speaks TLS: a host that joins, and its executor, take no certificate but the right one."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.machines import Machine, Network
from tests.missing import leave_out
from tests.waiting import wait_until

# Chromium drops its requests when an interface comes or goes: not beside the browser tests.
pytestmark = [pytest.mark.root, pytest.mark.long]

_PORT = 6390
#: Script that connects as `join` and as the executor do, and prints "taken" or the error of each.
_CONNECT = """
from workers.executor.app import app
from workers.executor.config import executor_config
from workers.executor.join import check_broker

def executor():
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)

for connect in (lambda: check_broker(executor_config().broker_url), executor):
    try:
        connect()
        print("taken")
    except Exception as error:
        print(str(error).splitlines()[0])
"""


def certificate(folder: Path, name: str, address: str) -> None:
    """`name`.crt, signed by itself, and `name`.key."""
    names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{address}")
    files = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)


@contextmanager
def broker(network: Network, name: str) -> Iterator[None]:
    folder = network.shared
    keys = [
        "--tls-cert-file",
        folder / f"{name}.crt",
        "--tls-key-file",
        folder / f"{name}.key",
        "--tls-auth-clients",
        "no",
    ]
    place = ["--bind", network.here, "--port", "0", "--tls-port", str(_PORT), "--protected-mode", "no", "--save", ""]
    with subprocess.Popen(["redis-server", *place, *keys, "--dir", folder], stdout=subprocess.DEVNULL) as server:
        try:
            probe = ["redis-cli", "-h", network.here, "-p", str(_PORT), "--tls", "--insecure", "ping"]
            wait_until(
                lambda: subprocess.run(probe, capture_output=True, check=False).stdout == b"PONG\n", "the broker"
            )
            yield
        finally:
            server.terminate()


def said(machine: Machine, network: Network, trusted: str, query: str = "") -> list[str]:
    """Both answers on a host that trusts this certificate."""
    return machine.python(
        _CONNECT,
        TIDEPOOL_HOME=str(network.shared),
        TIDEPOOL_HOST_NAME=machine.name,
        TIDEPOOL_ADDRESS=machine.address,
        TIDEPOOL_BROKER_URL=f"rediss://{network.here}:{_PORT}/0{query}",
        TIDEPOOL_BROKER_CA_FILE=str(network.shared / f"{trusted}.crt"),
    ).splitlines()


def test_only_the_right_certificate_is_taken(machines: Callable[[int], Network]) -> None:
    if shutil.which("redis-server") is None or shutil.which("openssl") is None:
        leave_out("redis-server or openssl is missing")
    network = machines(1)
    [machine] = network.machines
    certificate(network.shared, "right", network.here)
    certificate(network.shared, "elsewhere", "198.18.255.1")
    certificate(network.shared, "stranger", network.here)
    with broker(network, "right"):
        assert said(machine, network, "right") == ["taken", "taken"]
        assert all("CERTIFICATE_VERIFY_FAILED" in why for why in said(machine, network, "stranger"))
        assert said(machine, network, "stranger", "?ssl_cert_reqs=none") == ["taken", "taken"], "the URL may say so"
    with broker(network, "elsewhere"):
        assert all("IP address mismatch" in why for why in said(machine, network, "elsewhere"))
