"""Examples of the documents that need a site: their commands and programs, as somebody types them."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.documents import example
from tests.journey.running_stack import RunningStack
from tests.journey.training import cancel_all
from tests.test_architecture import ROOT
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(900)]

TRAIN = (
    'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("--epochs", type=int, default=1)\n'
    + ('for epoch in range(parser.parse_args().epochs):\n    print(f"R {1 / (1 + epoch)}", flush=True)\n')
)
#: Commands of a shell that fail as they do for a program: with an answer of 400 or more.
CURL = 'curl() { command curl --fail-with-body -sS "$@"; }\n'


@dataclass(frozen=True)
class Site:
    stack: RunningStack
    api: httpx.Client
    token: str
    #: Folder in which the commands are typed.
    work: Path

    def submitted(self, **values: object) -> int:
        """Submit a training, wait until it has succeeded, and return its number."""
        asked = {"name": "example", "instance_group": "sig-elastic", "max_slots": 1, **values}
        answer = self.api.post("jobs/", json=asked)
        assert answer.status_code == 201, answer.text
        job = f"jobs/{answer.json()['id']}/"
        wait_until(lambda: self.api.get(job).json()["finished_at"], f"{job} has ended")
        assert self.api.get(job).json()["state"] == "SUCCEEDED"
        return int(answer.json()["id"])


@pytest.fixture(scope="module")
def site(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    work = tmp_path_factory.mktemp("work")
    (work / "train.py").write_text(TRAIN)
    with stack.api() as api:
        token = api.post("me/token/").raise_for_status().json()["token"]
        yield Site(stack, api, token, work)
        cancel_all(api)


@pytest.fixture
def one_group(site: Site) -> Iterator[None]:
    """Remove the groups that an example makes: others submit without a group, which works where there is one."""
    before = _groups(site.api)
    yield
    for group in _groups(site.api) - before:
        site.api.post(f"instance-groups/{group}/stop/").raise_for_status()
        site.api.delete(f"instance-groups/{group}/").raise_for_status()


def _groups(api: httpx.Client) -> set[str]:
    return {group["name"] for group in api.get("instance-groups/").raise_for_status().json()["results"]}


def _plants(site: Site) -> dict[str, str]:
    for part in ("train", "test"):
        folder = site.stack.home / "data/plants" / part
        folder.mkdir(parents=True)
        (folder / "rows.csv").write_text("height,kind\n1.0,0\n2.0,1\n")
    return {"-u alice": f"-u admin:{site.stack.password}", "http://127.0.0.1:8000": site.stack.url}


def _resnet(site: Site) -> dict[str, str]:
    with zipfile.ZipFile(site.work / "resnet.zip", "w") as archive:
        archive.write(ROOT / "examples/native-digits/train.py", "main.py")
    return {}


def _validated(site: Site) -> dict[str, str]:
    trained = site.submitted(model="digits-cnn", dataset="digits", parameters={"epochs": 1})
    return {"jobs/12/": f"jobs/{trained}/", "resnet-adam": "digits-cnn"}


def _plain(site: Site) -> dict[str, str]:
    with (site.work / "train.py").open("rb") as script:
        made = site.api.post("scripts/", files={"file": ("train.py", script)}).raise_for_status().json()
    return {"jobs/12/": f"jobs/{site.submitted(model=made['model'])}/"}


def _users(site: Site) -> dict[str, str]:
    for name in ("alice", "bob"):
        site.api.post("users/", json={"username": name, "role": "data_scientist"}).raise_for_status()
    return {}


def _nothing(site: Site) -> dict[str, str]:
    return {}


#: Example -> what it needs; this returns words of the example and what they are on this site.
ON_SITE: dict[str, Callable[[Site], dict[str, str]]] = {
    "docs/operator/instance-groups.md#Create an instance group.1": _users,
    "docs/user/datasets.md#REST API.1": _plants,
    "docs/user/distributor.md#TorchDistributor: functions and scripts in several processes.1": _nothing,
    "docs/user/models.md#Add a model.1": _resnet,
    "docs/user/models.md#Validate a trained model.1": _validated,
    "docs/user/scripts.md#Change the log pattern.1": _plain,
}


@pytest.mark.usefixtures("one_group")
@pytest.mark.parametrize("name", ON_SITE)
def test_an_example_runs_on_a_site(name: str, site: Site) -> None:
    shown = example(name)
    text = shown.text
    for words, here in ON_SITE[name](site).items():
        assert words in text, f"{name} no longer has {words!r}"
        text = text.replace(words, here)
    environment = {
        **{each: value for each, value in os.environ.items() if "proxy" not in each.lower()},
        "URL": site.stack.url,
        "SITE": site.stack.url,
        "TOKEN": site.token,
        "PYTHONPATH": str(ROOT / "runtime"),
        "TIDEPOOL_URL": site.stack.url,
        "TIDEPOOL_TOKEN": site.token,
    }
    is_python = shown.language == "python"
    file = site.work / f"example.{'py' if is_python else 'sh'}"
    file.write_text(text if is_python else f"set -euo pipefail\n{CURL}{text}")
    command = [sys.executable, "-W", "ignore"] if is_python else [shutil.which("bash") or "bash"]
    ended = subprocess.run(
        [*command, str(file)],
        cwd=site.work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"
