"""The compose file for users of their own, without a container engine: its rights are enough, and no others."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import jsonschema
import pytest
import tidepool
from tidepool.confine.probe import RIGHTS, Apart, probe

from tests.docker.compose import ROOT, load
from tests.docker.test_compose import GIVEN, SCHEMA
from workers.executor.config import executor_config
from workers.executor.users import UserIds

FILE = ROOT / "docker/separate-users.yml"
SERVICE = load(FILE, GIVEN)["services"]["executor"]
#: Tells what an executor that was started so can do, and who it is.
PROBES = """
import json, os, sys
from tidepool.confine.probe import Apart, probe
found = probe(Apart(200001, (sys.argv[1],)))
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), found.users, found.why_no_users]))
"""


def test_the_file_is_one_by_the_specification() -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(load(FILE, GIVEN))


def test_it_has_what_a_host_tries(tmp_path: Path) -> None:
    assert {f"CAP_{name}" for name in SERVICE["cap_add"]} == set(RIGHTS)
    base = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    config = executor_config(base | SERVICE["environment"])
    assert (config.isolation, config.user_ids) == ("separate", UserIds(200000, 299999))


def test_its_entry_point_keeps_the_rights_that_a_host_needs(tmp_path: Path) -> None:
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("root starts the entry point, by setpriv")
    if why := probe(Apart(200001, (str(tmp_path),))).why_no_users:
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
        given = ",".join(f"+{name.lower()}" for name in SERVICE["cap_add"])
        as_a_container = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{given}", f"--inh-caps=-all,{given}"]
        command = [*as_a_container, *SERVICE["entrypoint"], python, "-P", "-c", PROBES, str(pool)]
        environment = {"PYTHONPATH": str(place), "PATH": os.defpath}
        done = subprocess.run(command, env=environment, cwd="/", stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout) == [[1000] * 3, [1000] * 3, [], True, ""]
