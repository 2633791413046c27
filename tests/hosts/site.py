"""A control plane in the network of machines, and executors on them that join by the documented command."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.hosts.machines import ROOT, Machine, Network
from tests.journey.running_stack import environment
from tests.waiting import wait_until

__all__ = ["FAKETIME", "Site", "running_site"]

#: Gives a program another clock; Debian's package libfaketime has it.
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
_PASSWORD = "tests only"
_BROKER_PASSWORD = "broker"
_WEB_PORT, _BROKER_PORT = 8000, 6390


@dataclass
class Site:
    network: Network
    #: The pool, at the same path on every machine.
    home: Path

    #: Settings of this site's own.
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self._name}:{_WEB_PORT}"

    @property
    def _name(self) -> str:
        """The site's address, as it stands in URLs."""
        return f"[{self.network.here}]" if ":" in self.network.here else self.network.here

    @property
    def variables(self) -> dict[str, str]:
        broker = f"redis://:{_BROKER_PASSWORD}@{self._name}:{_BROKER_PORT}/0"
        return environment(
            self.home,
            {
                "TIDEPOOL_BROKER_URL": broker,
                "TIDEPOOL_EXECUTOR_BROKER_URL": broker,
                "TIDEPOOL_ALLOWED_HOSTS": self._name,
                "TIDEPOOL_ADMIN_PASSWORD": _PASSWORD,
                "DJANGO_SETTINGS_MODULE": "webapp.settings",
                **self.settings,
            },
        )

    def broker(self) -> redis.Redis:
        return redis.Redis.from_url(self.variables["TIDEPOOL_BROKER_URL"], decode_responses=True)

    def api(self) -> httpx.Client:
        return httpx.Client(base_url=f"{self.url}/api/v1/", auth=("admin", _PASSWORD), timeout=30, trust_env=False)

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def join_token(self, hosts: int) -> str:
        """Return a token for so many hosts, from the command that an administrator is shown."""
        return self.manage("join_token", "--url", self.url, "--hosts", str(hosts)).split("--token ")[1].strip()

    def join(
        self, machine: Machine, token: str, *, name: str = "", clock_ahead_seconds: float = 0.0, **variables: str
    ) -> None:
        """Start an executor there, with a slot and a folder of its own, and with a clock that is wrong.

        name: of the host, if it is not the machine's. variables: further ones of its environment.
        """
        clock = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME": f"{clock_ahead_seconds:+}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        log = (self.home / f"{machine.name}.log").open("ab")
        with log:
            machine.start(
                *(sys.executable, "-m", "workers.executor.join", "--url", self.url, "--token", token),
                *("--name", name or machine.name, "--home", "/tmp/own", "--virtual-slots", "1"),
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": f"{ROOT}:{ROOT / 'runtime'}",
                    "HOME": "/tmp",
                    **(clock if clock_ahead_seconds else {}),
                    **variables,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def hosts(self) -> dict[str, dict[str, Any]]:
        """Return what the site says of each host, by its name."""
        with self.api() as api:
            return {host["name"]: host for host in api.get("hosts/").raise_for_status().json()["results"]}

    def wait_for_hosts(self, *names: str) -> None:
        """Wait until these hosts, and no others, are in service."""
        wanted = dict.fromkeys(names, "ONLINE")
        wait_until(lambda: {name: host["state"] for name, host in self.hosts().items()} == wanted, self.story)

    def register_plain(self, folder: Path, name: str) -> None:
        """Register a copy of the folder, with `train.py`, as a model that Tidepool does not resize."""
        place = self.home / "models" / name
        shutil.copytree(folder, place)
        model = {"name": name, "framework": "PyTorch", "path": str(place), "entry_point": "train.py"}
        with self.api() as api:
            answer = api.post("models/", json={**model, "engine": "fixed"})
        assert answer.status_code == 201, answer.text

    def story(self) -> str:
        """Return what a failing test wants to see."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.home.glob("*.log")))


@contextmanager
def running_site(network: Network, settings: dict[str, str] | None = None) -> Iterator[Site]:
    """A site with the settings of a new one, apart from these."""
    site = Site(network, network.shared / "pool", settings or {})
    site.home.mkdir()
    broker = [
        "redis-server",
        "--bind",
        network.here,
        "--port",
        str(_BROKER_PORT),
        "--protected-mode",
        "no",
        "--save",
        "",
        "--requirepass",
        _BROKER_PASSWORD,
    ]
    web = [
        "-m",
        "uvicorn",
        "webapp.asgi:application",
        "--host",
        network.here,
        "--port",
        str(_WEB_PORT),
        "--lifespan",
        "off",
    ]
    with ExitStack() as stack:

        def start(name: str, command: list[str]) -> None:
            log = stack.enter_context((site.home / f"{name}.log").open("ab"))
            process = subprocess.Popen(
                command, cwd=ROOT, env=site.variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)

        start("broker", [*broker, "--dir", str(site.home)])
        site.manage("migrate", "--no-input")
        site.manage("fill_home")
        start("web", [sys.executable, *web])
        start("scheduler", [sys.executable, "manage.py", "run_scheduler"])
        start("control", [sys.executable, "manage.py", "take_reports"])
        wait_until(lambda: _answers(site), site.story)
        yield site


def _answers(site: Site) -> bool:
    try:
        return httpx.get(f"{site.url}/healthz", timeout=5, trust_env=False).status_code in (200, 503)
    except httpx.HTTPError:
        return False
