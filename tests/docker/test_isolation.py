"""Isolation of trainings in containers, without a container engine: an executor's rights are enough, and no others."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import tidepool
import yaml
from tidepool.confine.probe import RIGHTS, Apart, probe

from tests.docker.compose import COMPOSE, EXECUTOR, ROOT, Tagged, load
from tests.docker.test_compose import GIVEN
from workers.executor.config import executor_config
from workers.executor.users import UserIds

WALLED = ROOT / "docker/walled.yml"
SERVICES = {
    "executor": load(COMPOSE, GIVEN)["services"]["executor"],
    "executor-virtual": load(COMPOSE, GIVEN)["services"]["executor-virtual"],
    "joined": load(EXECUTOR, GIVEN)["services"]["executor"],
}
#: Variables of an executor that say how its trainings are kept apart.
CHOICES = ("TIDEPOOL_ISOLATION", "TIDEPOOL_USER_IDS")
#: Tells what an executor that was started so can do, and who it is.
PROBES = """
import json, os, sys
from tidepool.confine.probe import Apart, probe
found = probe(Apart(2_100_000_001, (sys.argv[1],)))
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), found.users, found.why_no_users]))
"""


@pytest.mark.parametrize("name", SERVICES)
def test_trainings_are_users_of_their_own_unless_the_operator_lowers_the_level(name: str, tmp_path: Path) -> None:
    base = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    given = {key: value for key, value in SERVICES[name]["environment"].items() if key in CHOICES}
    config = executor_config(base | given)
    assert (config.isolation, config.user_ids) == ("separate", UserIds(2_100_000_000, 2_100_099_999))
    file = EXECUTOR if name == "joined" else COMPOSE
    lowered = load(file, GIVEN | {"TIDEPOOL_ISOLATION": "walled"})["services"][name.replace("joined", "executor")]
    config = executor_config(base | {key: value for key, value in lowered["environment"].items() if key in CHOICES})
    assert (config.isolation, config.user_ids) == ("walled", None)


def test_all_executors_have_the_same_rights() -> None:
    rights = [
        {key: value for key, value in service.items() if key in ("cap_drop", "cap_add", "security_opt", "entrypoint")}
        for service in SERVICES.values()
    ]
    assert rights[0] == rights[1] == rights[2]
    assert {f"CAP_{name}" for name in SERVICES["executor"]["cap_add"]} == set(RIGHTS)


@pytest.mark.parametrize("name", SERVICES)
def test_temporary_files_are_on_a_volume(name: str) -> None:
    """A container's own file system, which is an overlay, does not show owners as others."""
    file = load(EXECUTOR if name == "joined" else COMPOSE, GIVEN)
    [volume] = [volume for volume in SERVICES[name]["volumes"] if volume.endswith(":/tmp")]
    assert volume.partition(":")[0] in file["volumes"]


def test_the_file_for_walls_takes_every_right_away() -> None:
    changed = yaml.load(WALLED.read_text(), Tagged)["services"]
    assert list(changed) == ["executor"]
    service = changed["executor"]
    assert (service["cap_add"], service["entrypoint"]) == (None, None)
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["environment"] == {"TIDEPOOL_ISOLATION": "walled"}
    assert service["user"] == "${TIDEPOOL_UID:-1000}:${TIDEPOOL_GID:-1000}"


def test_its_entry_point_keeps_the_rights_that_a_host_needs(tmp_path: Path) -> None:
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("root starts the entry point, by setpriv")
    if why := probe(Apart(2_100_000_001, (str(tmp_path),))).why_no_users:
        pytest.skip(f"trainings cannot be users of their own here: {why}")
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if python is None:
        pytest.skip("no Python that an ordinary user may run")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(Path(tidepool.__file__).parent, place / "tidepool", ignore=shutil.ignore_patterns("torch"))
        pool = place / "pool"
        pool.mkdir()
        os.chown(pool, 1000, 1000)
        place.chmod(0o755)
        given = ",".join(f"+{name.lower()}" for name in SERVICES["executor"]["cap_add"])
        as_a_container = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{given}", f"--inh-caps=-all,{given}"]
        command = [*as_a_container, *SERVICES["executor"]["entrypoint"], python, "-P", "-c", PROBES, str(pool)]
        environment = {"PYTHONPATH": str(place), "PATH": os.defpath}
        done = subprocess.run(command, env=environment, cwd="/", stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout) == [[1000] * 3, [1000] * 3, [], True, ""]
