"""A control plane in the network of machines, and executors on them that join by the documented command."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def url(self) -> str:
        return f"http://{self.network.here}:{_WEB_PORT}"

    @property
    def variables(self) -> dict[str, str]:
        broker = f"redis://:{_BROKER_PASSWORD}@{self.network.here}:{_BROKER_PORT}/0"
        return environment(
            self.home,
            {
                "TIDEPOOL_BROKER_URL": broker,
                "TIDEPOOL_EXECUTOR_BROKER_URL": broker,
                "TIDEPOOL_ALLOWED_HOSTS": self.network.here,
                "TIDEPOOL_ADMIN_PASSWORD": _PASSWORD,
                "DJANGO_SETTINGS_MODULE": "webapp.settings",
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

    def join(self, machine: Machine, token: str, *, clock_ahead_seconds: float = 0.0) -> None:
        """Start an executor there, with a slot and a folder of its own, and with a clock that is wrong."""
        clock = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME": f"{clock_ahead_seconds:+}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        log = (self.home / f"{machine.name}.log").open("ab")
        with log:
            machine.start(
                *(sys.executable, "-m", "workers.executor.join", "--url", self.url, "--token", token),
                *("--name", machine.name, "--home", "/tmp/own", "--virtual-slots", "1"),
                env={"PATH": os.environ["PATH"], "HOME": "/tmp", **(clock if clock_ahead_seconds else {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def story(self) -> str:
        """Return what a failing test wants to see."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.home.glob("*.log")))


@contextmanager
def running_site(network: Network) -> Iterator[Site]:
    site = Site(network, network.shared / "pool")
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
