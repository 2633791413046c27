"""A site and its executors as separate processes, each started from the tree of a release."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.journey.running_stack import ROOT, environment, free_port
from tests.missing import leave_out
from tests.processes import broker
from tests.waiting import PATIENCE_SECONDS, wait_until
from workers.executor.join import executor_command

__all__ = ["FORMER", "ROOT", "SITE", "Parts", "parts_of", "tree_of_former"]

#: Commit of the former release: what the hosts of a site run that is being upgraded.
FORMER = "998a0978"
#: Processes of the control plane -> their commands.
SITE = {"web": "webapp.embedded.serve", "scheduler": "run_scheduler", "control": "take_reports"}
_PASSWORD = "tests only"
_SLOTS = 2


def tree_of_former(folder: Path) -> Path:
    """Write the former release into the folder, and return it."""
    if subprocess.run(["git", "cat-file", "-e", FORMER], cwd=ROOT, capture_output=True).returncode != 0:
        leave_out(f"the history of this checkout lacks the former release, {FORMER}: git fetch --unshallow")
    archive = folder / "former.tar"
    subprocess.run(["git", "archive", "-o", archive, FORMER], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    archive.unlink()
    return folder


@dataclass
class Parts:
    home: Path
    broker_url: str
    port: int
    #: Descriptor whose end of file ends executors and all that they have started.
    lifeline: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        return [name for name in self.running if name not in SITE]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self) -> httpx.Client:
        admin = ("admin", _PASSWORD)
        return httpx.Client(base_url=f"{self.url}/api/v1/", auth=admin, timeout=PATIENCE_SECONDS, trust_env=False)

    def manage(self, tree: Path, *words: str) -> str:
        """Run a command of manage.py, and return what it prints."""
        command = [sys.executable, "manage.py", *words]
        done = subprocess.run(command, cwd=tree, env=self._environment(tree), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_site(self, tree: Path) -> None:
        self.signals.mkdir(exist_ok=True)
        self.manage(tree, "migrate", "--no-input")
        self.manage(tree, "fill_home")
        for name, command in SITE.items():
            web = ["-m", command, "127.0.0.1", f"http:{self.port}"]
            self._start(name, tree, [sys.executable, *(web if name == "web" else ["manage.py", command])])
        wait_until(self._answers, self.story)

    @property
    def signals(self) -> Path:
        """Folder in which trainings see files that tests make."""
        return self.home / "signals"

    def start_host(self, name: str, tree: Path) -> None:
        place = {"TIDEPOOL_HOST_NAME": name, "TIDEPOOL_ADDRESS": "127.0.0.1", "TIDEPOOL_VIRTUAL_SLOTS": str(_SLOTS)}
        self._start(name, tree, executor_command(name), TIDEPOOL_LIFELINE_FD=str(self.lifeline), **place)

    def stop(self, *names: str) -> None:
        for name in names:
            self.running[name].send_signal(signal.SIGTERM)
        for name in names:
            self.running.pop(name).wait(60)

    def story(self) -> str:
        """Return what a failing test wants to see."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.home.glob("*.out")))

    def _start(self, name: str, tree: Path, command: list[str], **variables: str) -> None:
        with (self.home / f"{name}.out").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                cwd=tree,
                env=self._environment(tree) | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[self.lifeline],
            )

    def _environment(self, tree: Path) -> dict[str, str]:
        return environment(
            self.home,
            {
                "PYTHONPATH": os.pathsep.join(map(str, (tree, tree / "runtime"))),
                "TIDEPOOL_BROKER_URL": self.broker_url,
                "TIDEPOOL_EXECUTOR_BROKER_URL": self.broker_url,
                "TIDEPOOL_ADMIN_PASSWORD": _PASSWORD,
                "TIDEPOOL_TRAINING_READS": str(self.signals),
                "DJANGO_SETTINGS_MODULE": "webapp.settings",
            },
        )

    def _answers(self) -> bool:
        try:
            with self.api() as api:
                return api.get("hosts/").status_code == 200
        except httpx.HTTPError:
            return False


@contextmanager
def parts_of(home: Path) -> Iterator[Parts]:
    lifeline, held = os.pipe()
    with broker() as url:
        parts = Parts(home, url, free_port(), lifeline)
        try:
            yield parts
        finally:
            os.close(held)
            os.close(lifeline)
            for process in parts.running.values():
                process.kill()
                process.wait()
