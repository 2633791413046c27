"""The units for systemd: as systemd reads them, and against the compose file."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from tidepool.confine.probe import RIGHT_TO_SEAL, RIGHTS

from tests.docker.compose import COMPOSE, ROOT, load
from tests.docker.test_compose import GIVEN
from tests.missing import leave_out
from workers.executor.config import executor_config
from workers.executor.limits import LEAF, Amounts
from workers.executor.users import UserIds

TREE: Final = ROOT / "deploy/systemd"
UNITS: Final = sorted(TREE.glob("*.service"))


def services() -> dict[str, dict[str, Any]]:
    """Name of each process of the control plane -> its service in the compose file."""
    every = load(COMPOSE, GIVEN)["services"]
    return {of["command"][2]: of for of in every.values() if of.get("command", [])[:2] == ["python", "manage.py"]}


#: Names under which systemd starts the units.
INSTALLED: Final = [
    name
    for unit in UNITS
    for name in ([unit.name.replace("@", f"@{process}") for process in services()] if "@" in unit.name else [unit.name])
]


def service(file: Path) -> dict[str, str]:
    """Return the last value of each key of a unit's section `Service`."""
    return {name: values[-1] for name, values in lines(file).items()}


def lines(file: Path) -> dict[str, list[str]]:
    """Return the values of each key of a unit's section `Service`, in order."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().partition("[Service]\n")[2].partition("\n[")[0].splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("name", INSTALLED)
def test_systemd_finds_nothing_wrong(name: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        leave_out("systemd-analyze reads the units, and this machine has none")
    unit = TREE / re.sub("@[^.]*", "@", name)
    installed = tmp_path / name
    installed.write_text(unit.read_text().replace("/opt/tidepool", str(ROOT)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", installed], capture_output=True, text=True, timeout=120
    )
    about = [line for line in done.stderr.splitlines() if str(tmp_path) in line or unit.stem in line]
    assert about == []


def test_a_misspelt_key_would_be_found(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        leave_out("systemd-analyze reads the units, and this machine has none")
    unit = tmp_path / "tidepool-web.service"
    unit.write_text((TREE / unit.name).read_text().replace("/opt/tidepool", str(ROOT)).replace("Restart=", "Restrat="))
    command = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.search(r"Unknown key (?:name )?'Restrat'", done.stderr)


def test_the_commands_are_those_of_the_compose_file() -> None:
    command = service(TREE / "tidepool@.service")["ExecStart"].split()
    assert command == ["/opt/tidepool/.venv/bin/python", "manage.py", "%i"]
    page = (ROOT / "docs/operator/install.md").read_text()
    started = set(re.findall(r"tidepool@(\w+)", page))
    assert started == services().keys()
    compose = load(COMPOSE, GIVEN)["services"]["web"]["command"]
    web = service(TREE / "tidepool-web.service")["ExecStart"].split()
    assert web[1:] == [*compose[1:3], "127.0.0.1", *compose[4:]]


def test_nobody_gains_rights_and_trainings_outlive_their_executor() -> None:
    for unit in UNITS:
        assert (service(unit)["User"], service(unit)["NoNewPrivileges"]) == ("tidepool", "yes")
    executor = service(TREE / "tidepool-executor.service")
    assert (executor["KillMode"], executor["Delegate"]) == ("process", "yes")


def test_the_drop_in_for_users_of_their_own_has_what_a_host_tries(tmp_path: Path) -> None:
    given = service(TREE / "separate-users.conf")
    assert set(given["AmbientCapabilities"].split()) == set(RIGHTS)
    variables = dict(word.split("=", 1) for word in given["Environment"].split())
    base = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    config = executor_config(base | variables)
    assert (config.isolation, config.user_ids) == ("separate", UserIds(200000, 299999))


def test_the_drop_in_for_limits_sets_what_an_executor_takes(tmp_path: Path) -> None:
    given = service(TREE / "limits.conf")
    variables = dict(word.split("=", 1) for word in given["Environment"].split())
    base = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    assert executor_config(base | variables).slot_limits == Amounts(64 * 1024**3, 4096)
    assert (given["Delegate"], given["DelegateSubgroup"]) == ("memory pids cpu", LEAF)


def test_the_drop_in_for_sealed_trainings_has_what_a_host_tries(tmp_path: Path) -> None:
    given = service(TREE / "sealed.conf")
    assert set(given["AmbientCapabilities"].split()) == {*RIGHTS, *RIGHT_TO_SEAL}
    words = " ".join(lines(TREE / "sealed.conf")["Environment"]).split()
    variables = dict(word.split("=", 1) for word in words)
    base = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://site/0"}
    config = executor_config(base | variables)
    assert (config.isolation, config.slot_limits) == ("sealed", Amounts(64 * 1024**3, 4096))
    assert (given["Delegate"], given["DelegateSubgroup"]) == ("yes", LEAF)
