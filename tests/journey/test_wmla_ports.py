"""`up --wmla-ports`: the same site on several ports, in the clear and by TLS, with one session for all of them."""

import asyncio
import json
import re
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import requests
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from tests.journey.running_stack import RunningStack, free_port, manage

# tests/webapp/embedded/test_ports.py opens such ports without a stack.
pytestmark = [pytest.mark.journey, pytest.mark.long]


@pytest.fixture(scope="module")
def wmla_ports() -> tuple[int, int, int]:
    """Two with TLS and one without. Held open together, so that they differ."""
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1], three.getsockname()[1]


@pytest.fixture(scope="module")
def stack(short_home: Path, wmla_ports: tuple[int, int, int]) -> Iterator[RunningStack]:
    first, second, plain = wmla_ports
    ports = ("--wmla-ports", f"https:{first},https:{second},http:{plain}")
    running = RunningStack(short_home, free_port(), ("--hosts", "1", "--slots-per-host", "1", *ports))
    running.start()
    yield running
    running.stop()
    running.assert_nothing_is_left()


@pytest.fixture
def addresses(stack: RunningStack, wmla_ports: tuple[int, int, int]) -> list[str]:
    first, second, plain = wmla_ports
    return [f"https://127.0.0.1:{first}", f"https://localhost:{second}", f"http://127.0.0.1:{plain}", stack.url]


@pytest.fixture
def trust(stack: RunningStack) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(stack.home / "tls" / "certificate.pem"))


def test_basic_credentials_are_taken_on_every_port(
    stack: RunningStack, addresses: list[str], trust: ssl.SSLContext
) -> None:
    credentials = ("admin", stack.password)
    for address in addresses:
        for verify in (trust, False):
            answer = httpx.get(f"{address}/api/v1/me/", auth=credentials, verify=verify, trust_env=False, timeout=30)
            assert (answer.status_code, answer.json()["username"]) == (200, "admin"), address
    assert any(line.startswith("  Also at https://127.0.0.1:") for line in stack.said)
    assert any(line.endswith("/tls/certificate.pem") for line in stack.said)


def test_a_script_that_verifies_is_told_of_the_certificate_by_its_environment(
    stack: RunningStack, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{addresses[0]}/platform/rest/deeplearning/v1/execs/frameworks"
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(address, auth=("admin", stack.password), timeout=30)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(stack.home / "tls/certificate.pem"))
    assert requests.get(address, auth=("admin", stack.password), timeout=30).status_code == 200


def test_a_log_in_on_one_port_holds_on_the_others(
    stack: RunningStack, addresses: list[str], trust: ssl.SSLContext
) -> None:
    here, *others = [address.replace("localhost", "127.0.0.1") for address in addresses]
    with httpx.Client(verify=trust, trust_env=False, timeout=30) as client:
        log_in(client, here, stack.password)
        for address in others:
            assert client.get(f"{address}/").status_code == 200, address
            csrf = client.cookies["tidepool_csrf"]
            answer = client.post(
                f"{address}/api/v1/me/tokens/",
                json={"name": "of port " + address.rpartition(":")[2]},
                headers={"X-CSRFToken": csrf, "Origin": address, "Referer": f"{address}/account/"},
            )
            assert answer.status_code == 201, answer.text
            stolen = client.post(
                f"{address}/api/v1/me/tokens/",
                json={"name": "of another site"},
                headers={"X-CSRFToken": csrf, "Origin": "https://elsewhere.example"},
            )
            assert stolen.status_code == 403


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
def test_a_script_that_logged_on_at_conductors_port_needs_no_more_on_the_other(
    stack: RunningStack, addresses: list[str]
) -> None:
    here, _, plain, main = addresses
    there = addresses[1].replace("localhost", "127.0.0.1")
    session = requests.Session()
    session.verify = session.trust_env = False
    logon = session.get(f"{here}/platform/rest/conductor/v1/auth/logon", auth=("admin", stack.password), timeout=30)
    assert logon.json()["csrftoken"]
    for address in (there, plain, main):
        posted = session.post(
            f"{address}/platform/rest/deeplearning/v1/execs?sigName=sig-elastic&args=--exec-start PyTorch",
            files={"file": ("train.py", b"print('trained')\n")},
            timeout=60,
        )
        assert posted.status_code == 200, (address, posted.text)
        asked = session.get(f"{address}/platform/rest/deeplearning/v1/execs/{posted.json()['id']}", timeout=30)
        assert asked.json()["sigName"] == "sig-elastic"


def test_live_events_come_by_tls_too(stack: RunningStack, addresses: list[str], trust: ssl.SSLContext) -> None:
    address = addresses[0]
    with httpx.Client(verify=trust, trust_env=False, timeout=30) as client:
        log_in(client, address, stack.password)
        cookie = f"tidepool_session={client.cookies['tidepool_session']}"
    live = f"{address.replace('https:', 'wss:')}/ws/live/"

    async def first_topic() -> str:
        async with connect(
            live, ssl=trust, origin=Origin(address), additional_headers={"Cookie": cookie}, proxy=None
        ) as page:
            await page.send(json.dumps({"subscribe": "cluster", "after": 0}))
            return str(json.loads(await asyncio.wait_for(page.recv(), 20))["topic"])

    async def close_code_of_a_stranger() -> int:
        async with connect(live, ssl=trust, origin=Origin(address), proxy=None) as stranger:
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(stranger.recv(), 20)
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code

    # Not the client with threads: two of them in one TLS connection of Python 3.11 may lose what is sent.
    assert asyncio.run(first_topic()) == "cluster"
    assert asyncio.run(close_code_of_a_stranger()) == 4401


def test_a_port_in_use_ends_the_start_with_its_number(stack: RunningStack, wmla_ports: tuple[int, int, int]) -> None:
    taken = wmla_ports[0]
    home = Path(tempfile.mkdtemp(prefix="tidepool-"))
    try:
        ended = manage(home, "up", "--port", str(free_port()), "--wmla-ports", f"https:{taken}")
        both = manage(home, "up", "--port", "8123", "--wmla-ports", "http:8123")
    finally:
        shutil.rmtree(home)
    assert ended.returncode == 1
    assert re.search(rf"Port {taken} is in use: .* --wmla-ports https:1\d+", ended.stderr), ended.stderr
    assert both.returncode == 1
    assert "--wmla-ports names 8123, which is --port already" in both.stderr


def log_in(client: httpx.Client, address: str, password: str) -> None:
    """Log in as a browser does: the form's hidden field, the cookie, the origin."""
    form = client.get(f"{address}/login/").raise_for_status().text
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    assert found is not None
    fields = {"csrfmiddlewaretoken": found[1], "username": "admin", "password": password}
    answer = client.post(f"{address}/login/", data=fields, headers={"Origin": address, "Referer": f"{address}/login/"})
    assert answer.status_code == 302, answer.text
