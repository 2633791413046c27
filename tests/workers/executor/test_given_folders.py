"""Trainings in a folder that an administrator named: run by its Python, and told about what changes in it."""

import json
import os
import sys
import venv
from pathlib import Path
from unittest.mock import Mock

import pytest
from tidepool.env import site_of
from tidepool.journal import Journal, read_journal
from tidepool.protocol import EnvironmentChanged, EnvironmentUsed

from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.embedded import Host, desired_job
from tests.workers.executor.environments.test_software import add
from workers.executor import folder_watch
from workers.executor.environments.given import Folders, read_contents
from workers.executor.folder_watch import FolderWatch, host_journal_path

PLAIN = "import json, os, sys\nprint(json.dumps([sys.executable, sys.prefix, os.environ['VIRTUAL_ENV']]))\n"
ELASTIC = """
import sys, torch
from tidepool.torch import epochs, prepare

data = torch.utils.data.TensorDataset(torch.randn(8, 2), torch.randn(8, 1))
model = torch.nn.Linear(2, 1)
loader, model, optimizer = prepare(
    torch.utils.data.DataLoader(data, batch_size=4), model, torch.optim.SGD(model.parameters(), lr=0.1)
)
for epoch in epochs(range(2)):
    for inputs, wanted in loader:
        optimizer.zero_grad()
        (model(inputs) - wanted).square().mean().backward()
        optimizer.step()
print(sys.prefix)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A virtual environment that has the packages of the tests."""
    folder = tmp_path / "vision"
    venv.create(folder, with_pip=False, symlinks=True)
    (site_of(folder) / "_packages.pth").write_text(str(site_of(Path(sys.prefix))))
    return folder


def printed(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("attempt-1/log/*/stdout") if "environment" not in str(path))


def test_a_plain_script_runs_by_its_python(host: Host, tmp_path: Path, folder: Path) -> None:
    launch = launch_spec(tmp_path, PLAIN, requirements=f"--folder {folder}", engine="fixed", max_slots=1)
    host.send_desired(desired_job(launch, [0], lead=True))
    [ended] = host.until_exited(1)
    assert ended.data["code"] == 0
    own = tmp_path / ".own" / "python" / "host-a"
    assert json.loads(printed(tmp_path)) == [str(own / "bin" / "python"), str(folder), str(own)]
    [used] = host.until_told("environment_used")
    assert used.data["digest"] == read_contents(folder, os.environ).digest


def test_an_elastic_script_trains_by_its_python(host: Host, tmp_path: Path, folder: Path) -> None:
    launch = launch_spec(tmp_path, ELASTIC, requirements=f"--folder {folder}", max_slots=2)
    host.send_desired(desired_job(launch, [0, 1], lead=True))
    assert {entry.data["code"] for entry in host.until_exited(2)} == {0}
    assert {*printed(tmp_path).split()} == {str(folder)}  # a rank that comes late may be released


def test_an_elastic_script_in_a_folder_without_torch_fails_in_words(host: Host, tmp_path: Path, folder: Path) -> None:
    (site_of(folder) / "_packages.pth").unlink()
    for name in ("cloudpickle", "msgspec", "psutil", "setproctitle"):
        add(site_of(folder), name, "3.1.2")
    host.send_desired(desired_job(launch_spec(tmp_path, ELASTIC, requirements=f"--folder {folder}"), [0]))
    [entry] = host.until_told("environment_failed")
    assert "has no torch: ask for" in entry.data["why"]


class Watched:
    """A training that runs in a folder, with a clock of its own."""

    def __init__(self, attempt: Path, folder: Path) -> None:
        self.folder, self.journal = folder, host_journal_path(attempt, "host-a")
        self._shim = attempt / "journal" / "shim.host-a.jsonl"
        self._now = 0.0
        self.restart()

    def start(self) -> None:
        held, none = read_contents(self.folder, os.environ), dict.fromkeys(("platform", "cuda", "nccl", "driver"), "")
        writer = Journal(self._shim)
        facts = {"python": held.python, "packages": held.packages, "origins": held.origins, "digest": held.digest}
        writer.append(EnvironmentUsed(**facts, **none, at=1.0))
        writer.close()

    def restart(self) -> None:
        self._folders = Folders(os.environ, lambda: self._now)
        self._watch = FolderWatch(self.folder, self._folders, self._shim, self.journal)

    def told(self) -> list[list[str]]:
        """Return the changes that were told, after two more looks."""
        for _ in range(3):
            self._now += 60.0
            self._watch.look()
            wait_until(lambda: not self._folders._watched[self.folder].is_looking)
        self._watch.look()
        return [each.changes for each in read_journal(self.journal) if isinstance(each, EnvironmentChanged)]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    folder = tmp_path / "vision"
    venv.create(folder, with_pip=False, symlinks=True)
    add(site_of(folder), "timm", "1.0")
    return Watched(tmp_path / "attempt-1", folder)


def test_a_change_under_a_running_training_is_told_once(watched: Watched) -> None:
    assert watched.told() == [], "nothing has started"
    watched.start()
    assert watched.told() == []
    add(site_of(watched.folder), "more", "2.0")
    assert watched.told() == watched.told() == [["more none -> 2.0"]]
    watched.restart()
    assert watched.told() == [["more none -> 2.0"]], "an earlier executor has told it"


def test_a_change_before_a_restart_of_the_executor_is_told_after_it(watched: Watched) -> None:
    watched.start()
    assert watched.told() == []
    (site_of(watched.folder) / "timm-1.0.dist-info").rename(site_of(watched.folder) / "gone")
    watched.restart()
    assert watched.told() == [["timm 1.0 -> none"]]
    (site_of(watched.folder) / "gone").rename(site_of(watched.folder) / "timm-1.0.dist-info")
    assert watched.told()[1:] == [["it is again as it was when they started"]]


def test_a_full_disk_delays_what_is_told(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.start()
    watched.told()
    monkeypatch.setattr(folder_watch, "_RETRY_SECONDS", 0.0)
    add(site_of(watched.folder), "more", "2.0")
    with monkeypatch.context() as full:
        full.setattr(folder_watch, "Journal", Mock(side_effect=OSError(28, "No space left on device")))
        assert watched.told() == []
    assert watched.told() == [["more none -> 2.0"]]


def test_a_folder_that_is_gone_is_told(watched: Watched) -> None:
    watched.start()
    watched.told()
    watched.folder.rename(watched.folder.with_name("moved"))
    [[words]] = watched.told()
    assert words.startswith("this host has no folder")
