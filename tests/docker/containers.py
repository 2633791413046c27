"""docker-compose.yml of this checkout, in containers of the engine that this machine has."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.docker.compose import COMPOSE, ROOT, load
from tests.docker.documents import commands
from tests.docker.test_compose import GIVEN
from tests.journey.training import MODELS
from tests.missing import leave_out
from tests.waiting import wait_until

__all__ = ["PROJECT", "Containers", "Engine", "engine_or_leave_out"]

#: The pool in the containers.
_HOME = Path("/home/tidepool/pool")
#: Command that takes the place of `docker compose`.
COMPOSE_VARIABLE = "TIDEPOOL_TEST_COMPOSE"
#: Compose project of the site.
PROJECT = "tidepool-containers"
_IMAGE = "localhost/tidepool-containers"
_EXECUTOR_IMAGE = "localhost/tidepool-containers-executor"
#: Loopback address of its own, so that a broker or a site of the machine is in nobody's way.
_ADDRESS = "127.0.0.9"
#: User and group without an entry, as the owner of an installation has none in the image.
_OWNER = 61_234
_BUILD_SECONDS, _COMMAND_SECONDS = 3600.0, 600.0
_UNTIL_HEALTHY_SECONDS = 600.0
#: Compose file of the tests: the image has a name of its own, and is built where this machine reaches its registries.
_OVERRIDE = "compose-of-tests.yml"
#: Programs that the operator's pages call, where podman-compose takes the place of `docker compose`. It leaves the
#: network of a build to this option.
_PROGRAMS_OF_PODMAN = {
    "docker": '[ "$1" = compose ] || exec podman "$@"; shift; exec podman-compose "$@"',
    "podman-compose": 'exec {compose} --podman-build-args=--network=host "$@"',
}


@dataclass(frozen=True)
class Engine:
    #: `docker` or `podman`.
    program: str
    compose: tuple[str, ...]

    @property
    def waits(self) -> bool:
        """Return whether compose starts services in their order. Podman 4 waits neither for health nor for an end."""
        return self.program == "docker"

    @property
    def files(self) -> list[str]:
        return ["docker-compose.yml", *([] if self.waits else ["docker/podman.yml"])]

    def call(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return _call(self.program, *words, **options)


def engine_or_leave_out() -> Engine:
    """Return the engine of this machine, which has the base images."""
    if os.geteuid() != 0:
        leave_out("containers are tried as root: docker/prepare then runs as a user of its own")
    engine = _engine()
    if engine is None:
        leave_out(f"neither docker compose nor podman-compose is here: install one, or name one in {COMPOSE_VARIABLE}")
    asked = engine.call("info")
    if asked.returncode != 0:
        leave_out(f"{engine.program} does not work here: {asked.stderr.strip()[-300:]}")
    missing = [image for image in _base_images() if engine.call("image", "inspect", image).returncode != 0]
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
    named = {service["image"] for service in _services().values()} - {"tidepool"}
    dockerfile = (ROOT / "docker/Dockerfile").read_text().splitlines()
    return sorted(named | {line.split()[1] for line in dockerfile if line.startswith("FROM ")})


def _services() -> dict[str, Any]:
    return dict(load(COMPOSE, GIVEN)["services"])


def _call(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"timeout": _COMMAND_SECONDS, **options}
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **options)


def _done(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class Containers:
    """An installation in a folder: a copy of the checkout, and the folders that docker/prepare makes."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.checkout, self.state = engine, folder / "checkout", folder / "state"
        self.url = f"http://{_ADDRESS}:8000"
        self._programs = folder / "bin"
        self._images: set[str] = set()

    # --- an operator's work -------------------------------------------------------------------------------------------

    def check_out(self) -> None:
        listed = _call("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, self.checkout / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        services = {name: {"image": _IMAGE} for name, of in _services().items() if of["image"] == "tidepool"}
        services["setup"]["build"] = {"network": "host"}
        (self.checkout / _OVERRIDE).write_text(yaml.safe_dump({"services": services}))
        self._programs.mkdir()
        if self.engine.program == "podman":
            compose = " ".join([shutil.which(self.engine.compose[0]) or "", *self.engine.compose[1:]])
            for name, script in _PROGRAMS_OF_PODMAN.items():
                (self._programs / name).write_text(f"#!/bin/sh\n{script.format(compose=compose)}\n")
                (self._programs / name).chmod(0o755)

    def check_out_executor(self) -> None:
        """Let docker/executor.yml offer CPU processes: it then leaves `deploy` out, as the file says."""
        file = self.checkout / "docker/executor.yml"
        whole = yaml.safe_load(file.read_text())
        executor = whole["services"]["executor"]
        del executor["deploy"]
        executor["image"] = _EXECUTOR_IMAGE
        executor["build"]["network"] = "host"
        file.write_text(yaml.safe_dump(whole, sort_keys=False))

    def prepare(self) -> None:
        """Run docker/prepare as a user who is not root."""
        self.own_folder("state")
        self.own_folder("checkout")
        as_owner = {"user": _OWNER, "group": _OWNER, "extra_groups": []}
        script = str(self.checkout / "docker/prepare")
        words = (script, str(self.state), "--address", _ADDRESS, "--site", _ADDRESS)
        _done(_call(*words, cwd=self.checkout, **as_owner))
        self.set_variables(TIDEPOOL_WEB_ADDRESS=_ADDRESS, COMPOSE_PROFILES="virtual")

    def own_folder(self, name: str) -> Path:
        """Return a folder beside the checkout, for the owner of the installation; create it if it is missing."""
        folder = self.checkout.parent / name
        folder.mkdir(exist_ok=True)
        os.chown(folder, _OWNER, _OWNER)
        return folder

    @property
    def variables(self) -> dict[str, str]:
        """Return what .env sets."""
        lines = (self.checkout / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def set_variables(self, **values: str) -> None:
        merged = self.variables | values
        (self.checkout / ".env").write_text("".join(f"{name}={value}\n" for name, value in merged.items()))

    def start(self) -> None:
        """Build and start all, as docs/operator/install.md says for the engine."""
        if self.engine.waits:
            prepare, up = commands("install.md", "One machine").splitlines()
            assert prepare.startswith("docker/prepare ")
            self.carry_out(up)
            return
        files, *lines = commands("install.md", "With Podman").splitlines()
        assert files == f"export COMPOSE_FILE={':'.join(self.engine.files)}"
        for line in lines:
            if " run " in line:
                self.wait_until_healthy("postgres", "valkey")
            self.carry_out(line)

    def carry_out(self, script: str, *, replaced: bool = False, **variables: str) -> str:
        """Run an operator's commands, in the checkout and with the variables of .env; return what they print.

        `replaced`: `up` has containers to replace by those of another image, which podman-compose does only when told.
        """
        if replaced and self.engine.program == "podman":
            script = script.replace("docker compose up -d", "docker compose up -d --force-recreate")
        own = {
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "HOME": os.environ["HOME"],
            "COMPOSE_PROJECT_NAME": PROJECT,
            "COMPOSE_FILE": ":".join([*self.engine.files, _OVERRIDE]),
        }
        done = _call(
            *("bash", "-euo", "pipefail", "-c", script),
            cwd=self.checkout,
            env={**own, **self.variables, **variables},
            timeout=_BUILD_SECONDS,
        )
        self._images |= {self._id_of(image) for image in (_IMAGE, _EXECUTOR_IMAGE)} - {""}
        return _done(done)

    @property
    def image(self) -> str:
        """Return the id of the newest image, without the name of the digest."""
        return self._id_of(_IMAGE)

    def _id_of(self, image: str) -> str:
        """Return the id of an image, "" if there is none."""
        asked = self.engine.call("image", "inspect", image, "--format", "{{.Id}}")
        return asked.stdout.strip().removeprefix("sha256:")

    def release(self, version: str) -> None:
        """Put another version of Tidepool into the checkout, as `git pull` does."""
        file = self.checkout / "runtime/tidepool/version.py"
        before = file.read_text()
        [line] = [line for line in before.splitlines() if line.startswith("VERSION = ")]
        file.write_text(before.replace(line, f'VERSION = "{version}"'))

    def end(self) -> None:
        """Stop and remove the containers, and the images that were built."""
        self.carry_out("docker compose down -t 20")
        self.engine.call("image", "rm", "-f", *self._images)

    # --- the site -----------------------------------------------------------------------------------------------------

    def secret(self, name: str) -> str:
        return (self.state / "secrets" / name).read_text().strip()

    @property
    def pool(self) -> Path:
        return self.state / "pool"

    def api(self, path: str = "api/v1/") -> httpx.Client:
        """Return a client of the administrator."""
        login = ("admin", self.secret("admin-password"))
        return httpx.Client(base_url=f"{self.url}/{path}", auth=login, timeout=60, trust_env=False)

    def register_recorder(self, api: httpx.Client) -> None:
        """Put the model of tests/journey into the pool, and register it."""
        folder = Path("models/recorder")
        shutil.copytree(MODELS / "recorder", self.pool / folder)
        for path in (self.pool / folder, *(self.pool / folder).rglob("*")):
            os.chown(path, _OWNER, _OWNER)
        model = {"name": "recorder", "framework": "PyTorch", "path": str(_HOME / folder)}
        answer = api.post("models/", json={**model, "entry_point": "train.py", "engine": "elastic"})
        assert answer.status_code == 201, answer.text

    # --- single containers --------------------------------------------------------------------------------------------

    def containers(self, *words: str, project: str = PROJECT) -> Iterator[dict[str, Any]]:
        """Yield what the engine knows of each container that `ps` lists with these options."""
        listed = self.engine.call("ps", "-q", "--filter", f"label=com.docker.compose.project={project}", *words)
        for container in _done(listed).split():
            yield self.inspect(container)

    def running(self) -> dict[str, str]:
        """Return the id of each running container, by its service."""
        return {each["Config"]["Labels"]["com.docker.compose.service"]: each["Id"] for each in self.containers()}

    def inspect(self, container: str) -> dict[str, Any]:
        [found] = json.loads(_done(self.engine.call("inspect", container)))
        return dict(found)

    def image_of(self, container: str) -> str:
        """Return the id of the image that the container runs."""
        return str(self.inspect(container)["Image"]).removeprefix("sha256:")

    def execute(self, container: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.engine.call("exec", container, *words)

    def is_healthy(self, container: str) -> bool:
        if self.engine.program == "podman":  # without systemd, nobody else runs the checks
            return self.engine.call("healthcheck", "run", container).returncode == 0
        return bool(self.inspect(container)["State"]["Health"]["Status"] == "healthy")

    def unhealthy(self, *services: str) -> list[str]:
        running = self.running()
        return [name for name in services if name not in running or not self.is_healthy(running[name])]

    def wait_until_healthy(self, *services: str) -> None:
        wait_until(
            lambda: not self.unhealthy(*services), lambda: f"{self.unhealthy(*services)}", _UNTIL_HEALTHY_SECONDS
        )

    def logs(self) -> Iterator[tuple[str, str]]:
        """Yield name and end of the log of each container, those that have ended too."""
        for container in self.containers("-a"):
            done = self.engine.call("logs", "--tail", "100", container["Id"])
            yield container["Name"], done.stdout + done.stderr
