"""docker-compose.yml of this checkout, in containers of the engine that this machine has."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.docker.compose import ROOT
from tests.missing import leave_out
from tests.waiting import wait_until

__all__ = ["Containers", "Engine", "engine_or_leave_out"]

#: Command that takes the place of `docker compose`.
COMPOSE_VARIABLE = "TIDEPOOL_TEST_COMPOSE"
_PROJECT = "tidepool-containers"
_IMAGE = "localhost/tidepool-containers"
#: Loopback address of its own, so that a broker or a site of the machine is in nobody's way.
_ADDRESS = "127.0.0.9"
#: User and group without an entry, as the owner of an installation has none in the image.
_OWNER = 61_234
_BUILD_SECONDS, _COMMAND_SECONDS = 3600.0, 600.0
_UNTIL_HEALTHY_SECONDS = 600.0


@dataclass(frozen=True)
class Engine:
    #: `docker` or `podman`.
    program: str
    compose: tuple[str, ...]

    @property
    def waits(self) -> bool:
        """Return whether compose starts services in their order. podman 4 waits neither for health nor for an end."""
        return self.program == "docker"


def engine_or_leave_out() -> Engine:
    """Return the engine of this machine, which has the base images."""
    if os.geteuid() != 0:
        leave_out("containers are tried as root: docker/prepare then runs as a user of its own")
    engine = _engine()
    if engine is None:
        leave_out(f"neither docker compose nor podman-compose is here: install one, or name one in {COMPOSE_VARIABLE}")
    missing = [image for image in _base_images() if _call(engine.program, "image", "inspect", image).returncode != 0]
    if missing:
        leave_out(f"{engine.program} has no image {', '.join(missing)}: pull them")
    return engine


def _engine() -> Engine | None:
    named = os.environ.get(COMPOSE_VARIABLE, "").split()
    if named:
        return Engine("docker" if "docker" in Path(named[0]).name else "podman", tuple(named))
    if shutil.which("docker") and _call("docker", "compose", "version").returncode == 0:
        return Engine("docker", ("docker", "compose"))
    if shutil.which("podman") and shutil.which("podman-compose"):
        return Engine("podman", ("podman-compose",))
    return None


def _base_images() -> list[str]:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    named = {service["image"] for service in services} - {"tidepool"}
    dockerfile = (ROOT / "docker/Dockerfile").read_text().splitlines()
    return sorted(named | {line.split()[1] for line in dockerfile if line.startswith("FROM ")})


def _call(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"timeout": _COMMAND_SECONDS, **options}
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)


class Containers:
    """An installation in a folder: a copy of the checkout, and the folders that docker/prepare makes."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.checkout, self.state = engine, folder / "checkout", folder / "state"
        self.url = f"http://{_ADDRESS}:8000"

    def prepare(self) -> None:
        listed = _call("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, self.checkout / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        for owned in (self.state, self.checkout):
            owned.mkdir(exist_ok=True)
            os.chown(owned, _OWNER, _OWNER)
        as_owner = {"user": _OWNER, "group": _OWNER, "extra_groups": []}
        script = str(self.checkout / "docker/prepare")
        words = (script, str(self.state), "--address", _ADDRESS, "--site", _ADDRESS)
        self._done(_call(*words, cwd=self.checkout, **as_owner))
        lines = [*(self.checkout / ".env").read_text().splitlines(), f"TIDEPOOL_WEB_ADDRESS={_ADDRESS}"]
        lines = [line for line in lines if not line.startswith("COMPOSE_PROFILES")]
        (self.checkout / ".env").write_text("\n".join([*lines, "COMPOSE_PROFILES=virtual", ""]))
        self._write_compose_file()

    def _write_compose_file(self) -> None:
        """Give the image a name of its own, and leave out the order of starts where the engine cannot wait."""
        file = self.checkout / "docker-compose.yml"
        whole = yaml.safe_load(file.read_text())
        for service in whole["services"].values():
            if service["image"] == "tidepool":
                service["image"] = _IMAGE
            if not self.engine.waits:
                service.pop("depends_on", None)
        file.write_text(yaml.safe_dump(whole, sort_keys=False))

    def build(self) -> None:
        words = ("build", "--network=host", "-t", _IMAGE, "-f", "docker/Dockerfile", ".")
        self._done(_call(self.engine.program, *words, cwd=self.checkout, timeout=_BUILD_SECONDS))

    def start(self) -> None:
        if not self.engine.waits:
            self.compose("up", "-d", "--no-build", "postgres", "valkey")
            self.wait_until_healthy("postgres", "valkey")
            self.compose("run", "--rm", "setup")
        self.compose("up", "-d", "--no-build")

    def compose(self, *words: str) -> str:
        profile = () if self.engine.waits else ("--profile", "virtual")
        return self._done(self._run(*self.engine.compose, "-p", _PROJECT, *profile, *words))

    def _run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return _call(*words, cwd=self.checkout, **options)

    @staticmethod
    def _done(done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, f"{done.args}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def secret(self, name: str) -> str:
        return (self.state / "secrets" / name).read_text().strip()

    def api(self) -> httpx.Client:
        login = ("admin", self.secret("admin-password"))
        return httpx.Client(base_url=f"{self.url}/api/v1/", auth=login, timeout=60, trust_env=False)

    # --- single containers --------------------------------------------------------------------------------------------

    def running(self) -> dict[str, str]:
        """Return the id of each running container, by its service."""
        words = ("ps", "--filter", f"label=com.docker.compose.project={_PROJECT}", "--format", "json")
        text = self._done(_call(self.engine.program, *words))
        rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
        ids = [row.get("Id") or row["ID"] for row in rows]
        labels = {each: self.inspect(each)["Config"]["Labels"] for each in ids}
        return {of["com.docker.compose.service"]: each for each, of in labels.items()}

    def inspect(self, container: str) -> dict[str, Any]:
        [found] = json.loads(self._done(_call(self.engine.program, "inspect", container)))
        return dict(found)

    def execute(self, container: str, *words: str) -> subprocess.CompletedProcess[str]:
        return _call(self.engine.program, "exec", container, *words)

    def is_healthy(self, container: str) -> bool:
        if self.engine.program == "podman":  # without systemd, nobody else runs the checks
            return _call("podman", "healthcheck", "run", container).returncode == 0
        return bool(self.inspect(container)["State"]["Health"]["Status"] == "healthy")

    def unhealthy(self, *services: str) -> list[str]:
        running = self.running()
        return [name for name in services if name not in running or not self.is_healthy(running[name])]

    def wait_until_healthy(self, *services: str) -> None:
        wait_until(
            lambda: not self.unhealthy(*services), lambda: f"{self.unhealthy(*services)}", _UNTIL_HEALTHY_SECONDS
        )

    def log(self, container: str) -> str:
        done = _call(self.engine.program, "logs", "--tail", "200", container)
        return done.stdout + done.stderr

    def end(self) -> None:
        """Stop and remove the containers."""
        self.compose("down", "-t", "20")
        _call(self.engine.program, "image", "rm", "-f", _IMAGE)
