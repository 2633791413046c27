"""The services of docker-compose.yml as processes of this machine, each with its own command, environment and checks.

All that differs from containers is in `LocalServices._here`: names that only exist inside of them.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
from django.db import connection

from tests.docker.compose import COMPOSE, DOCKERFILE, EXECUTOR, ROOT, load
from tests.journey.running_stack import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["CONTROL_PLANE", "SERVICES", "LocalServices"]

CONTROL_PLANE = ("web", "scheduler", "control", "background")
#: Names of the services, in the order in which they start.
SERVICES = ("valkey", "setup", *CONTROL_PLANE, "executor-virtual")

PLACE = "/home/tidepool/pool"


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@dataclass
class LocalServices:
    folder: Path
    web_port: int = field(default_factory=free_port)
    broker_port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- preparation, as by an operator ---

    def prepare(self) -> None:
        """`docker/prepare` itself, in a folder with the checkout's place in it."""
        script = self.folder / "checkout/docker/prepare"
        script.parent.mkdir(parents=True)
        shutil.copy(ROOT / "docker/prepare", script)
        environment = {"PATH": os.environ["PATH"], "TIDEPOOL_PREPARE_AS_ROOT": "1", "TIDEPOOL_HOST_NAME": "first"}
        subprocess.run([script, self.state], env=environment, check=True, capture_output=True, timeout=60)
        self._adapt_secrets()

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def pool(self) -> Path:
        return self.state / "pool"

    #: Name of the same folder in other journeys.
    home = pool

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def database(self) -> str:
        return f"tidepool_services_{self.web_port}"

    def secret(self, name: str) -> str:
        return (self.state / "secrets" / name).read_text().strip()

    def variables(self) -> dict[str, str]:
        lines = (self.folder / "checkout/.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def _adapt_secrets(self) -> None:
        """The containers' names of each other, in the addresses that `docker/prepare` wrote."""
        secrets = self.state / "secrets"
        server = connection.settings_dict
        login = quote(server["USER"]) + (f":{quote(server['PASSWORD'])}" if server["PASSWORD"] else "")
        place = f"{login}@{server['HOST']}:{server['PORT'] or 5432}"
        (secrets / "database-url").write_text(f"postgres://{place}/{self.database}\n")
        for name in ("broker-url", "broker-registrar-url", "executor-broker-url"):
            url = self.secret(name)
            (secrets / name).write_text(re.sub(r"@[\w.]+:6379", f"@127.0.0.1:{self.broker_port}", url) + "\n")
        # Somebody who may read the broker's list of refusals.
        with (secrets / "broker-users").open("a") as users:
            users.write("user inspector on nopass ~* &* +@all\n")

    # --- the one place where containers and this machine differ ---

    def _here(self, text: str, service: str) -> str:
        for inside, outside in (
            (PLACE, str(self.pool)),
            ("/run/secrets/", f"{self.state}/secrets/"),
            ("/tmp/alive", f"{self.folder}/alive-{service}"),
            ("127.0.0.1:8000", f"127.0.0.1:{self.web_port}"),
        ):
            text = text.replace(inside, outside)
        return text

    def _command(self, service: str, words: list[str]) -> list[str]:
        here = [self._here(str(word), service) for word in words]
        program = {
            "python": [sys.executable],
            "celery": [sys.executable, "-m", "celery"],
            # The same program under its older name, and where the image has its port and folder.
            "valkey-server": ["redis-server", "--port", str(self.broker_port), "--bind", "127.0.0.1"],
        }.get(here[0], here[:1])
        changed = {"/data": str(self.state / "valkey"), "http:8000": f"http:{self.web_port}", "0.0.0.0": "127.0.0.1"}
        return [*program, *(changed.get(word, word) for word in here[1:])]

    def _check(self, service: str, test: list[str]) -> list[str]:
        if test[0] == "CMD-SHELL":
            script = self._here(test[1], service).replace("valkey-cli", f"redis-cli -p {self.broker_port}")
            return ["sh", "-c", script]
        return self._command(service, test[1:])

    def _environment(self, service: str, given: dict[str, str]) -> dict[str, str]:
        """Nothing of this process's, but where programs are."""
        image = dict(re.findall(r"(\w+)=(\S+)", re.findall(r"^ENV (.+)$", DOCKERFILE.read_text(), re.MULTILINE)[0]))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        # Only root has the rights that the engine would give an executor.
        level = {} if os.getuid() == 0 else {"TIDEPOOL_ISOLATION": "walled"}
        told = {**image, **given, **level, "PATH": path, "HOME": str(self.folder)}
        return {name: self._here(str(value), service) for name, value in told.items()}

    # --- starting, checking, stopping ---

    def start(self, name: str, *, service: dict[str, Any] | None = None) -> None:
        """Start a service once the conditions of its `depends_on` are met."""
        service = service or load(COMPOSE, self.variables())["services"][name]
        if name == "setup":
            self._run_once(name, service)
            return
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                self._command(name, service["command"]),
                cwd=ROOT,
                env=self._environment(name, service.get("environment", {})),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_until_healthy(name, service)

    def start_executor_of_another_machine(self, name: str, token: str, **variables: str) -> None:
        """Start an executor of another machine by docker/executor.yml."""
        (self.state / "secrets/join-token").write_text(f"{token}\n")
        own = {"TIDEPOOL_URL": self.url, "TIDEPOOL_POOL": str(self.pool), "TIDEPOOL_HOST_NAME": name, **variables}
        self.start(name, service=load(EXECUTOR, own)["services"]["executor"])

    def wait_until_healthy(self, name: str, service: dict[str, Any]) -> None:
        check = service["healthcheck"]
        command = self._check(name, check["test"])
        environment = self._environment(name, service.get("environment", {}))

        def healthy() -> bool:
            process = self.running.get(name)
            assert process is None or process.poll() is None, f"{name} ended:\n{self.log(name)}"
            passed = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=_seconds(check["timeout"]), check=False
            )
            return passed.returncode == 0

        try:
            wait_until(healthy, f"{name} is healthy")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log(name)}") from None

    def health(self, name: str) -> bool:
        """Run its health check now, once."""
        service = load(COMPOSE, self.variables())["services"][name]
        command = self._check(name, service["healthcheck"]["test"])
        environment = self._environment(name, service.get("environment", {}))
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False).returncode == 0

    def manage(self, *arguments: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run manage.py as `docker compose exec web python manage.py ...` does."""
        environment = load(COMPOSE, self.variables())["services"]["web"]["environment"]
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self._environment("web", environment),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _run_once(self, name: str, service: dict[str, Any]) -> None:
        command = self._command(name, service["command"])
        environment = self._environment(name, service["environment"])
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self, name: str) -> int:
        """Stop it as `docker compose stop` does; returns its exit code."""
        process = self.running.pop(name)
        process.terminate()
        try:
            return process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def stop_all(self) -> dict[str, int]:
        return {name: self.stop(name) for name in reversed(list(self.running))}

    def carry_out(self, commands: str, **variables: str) -> str:
        """An operator's commands, line by line: `docker compose` is this object. What they say."""
        said = ""
        for line in commands.strip().splitlines():
            words = shlex.split(line)
            if words[:3] == ["docker", "compose", "stop"]:
                for name in words[3:]:
                    self.stop(name)
            elif words[:5] == ["docker", "compose", "run", "--rm", "setup"]:
                said += self._run_setup(words[5:])
            elif words[:4] == ["docker", "compose", "up", "-d"]:
                named = [word for word in words[4:] if word != "--no-deps"]
                for name in named or [name for name in SERVICES if name not in self.running]:
                    self.start(name)
            else:
                said += self._shell(line, variables)
        return said

    def _run_setup(self, instead: list[str]) -> str:
        """The service as it is, or with another command: `python manage.py ...`."""
        if not instead:
            self.start("setup")
            return ""
        assert instead[:2] == ["python", "manage.py"]
        done = self.manage(*instead[2:])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _shell(self, line: str, variables: dict[str, str]) -> str:
        """Run here what runs in the container of PostgreSQL, with the login of the machine's own server."""
        server = connection.settings_dict
        line = line.replace("docker compose exec -T postgres ", "").replace(" -U tidepool", "")
        line = re.sub(r"(?<=\s)tidepool(?=\s|$)", self.database, line)
        login = {"PGHOST": server["HOST"], "PGPORT": str(server["PORT"] or 5432), "PGUSER": server["USER"]}
        if server["PASSWORD"]:
            login["PGPASSWORD"] = server["PASSWORD"]
        environment = {"PATH": os.environ["PATH"], **login, **self.variables(), **variables}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def logs(self) -> list[str]:
        """The services that have written one, those that have stopped too."""
        return sorted(file.stem for file in self.folder.glob("*.log"))

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return f"--- {file.name}\n{file.read_text()[-3000:]}" if file.exists() else ""

    # --- the operating system's view ---

    def processes(self) -> list[psutil.Process]:
        """Everything that lives and belongs here: services, and what executors started."""
        found = []
        for process in psutil.process_iter():
            try:
                words = [*process.cmdline(), *process.environ().values()]
                if any(str(self.folder) in word for word in words) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.pid != os.getpid()]

    @contextmanager
    def own_database(self) -> Iterator[None]:
        server = connection.settings_dict
        url = (self.state / "secrets/database-url").read_text().strip().rsplit("/", 1)[0]
        with psycopg.connect(f"{url}/postgres", autocommit=True) as admin:
            admin.execute(f'CREATE DATABASE "{self.database}"')
        try:
            yield
        finally:
            with psycopg.connect(f"{url}/postgres", autocommit=True) as admin:
                admin.execute(f'DROP DATABASE IF EXISTS "{self.database}" WITH (FORCE)')
        assert server["NAME"] != self.database

    def end_everything(self) -> None:
        """Whatever a test that failed has left."""
        for process in [*self.running.values()]:
            process.kill()
            process.wait()
        deadline = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < deadline:
            for process in left:
                if process.is_running():
                    process.kill()
            time.sleep(0.1)
