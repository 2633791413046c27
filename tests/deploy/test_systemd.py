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
from workers.executor.config import ExecutorConfig, executor_config
from workers.executor.limits import LEAF, Amounts
from workers.executor.users import UserIds

TREE: Final = ROOT / "deploy/systemd"
UNITS: Final = sorted(TREE.glob("*.service"))


#: First version of systemd that starts a service in a group below its own, and what former ones say of it.
SUBGROUPS: Final = 254
KNOWN_LATER: Final = re.compile(r"Unknown key (?:name )?'DelegateSubgroup'.* ignoring")


def systemd_version() -> int:
    done = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[1])


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
    assert [line for line in about if not (KNOWN_LATER.search(line) and systemd_version() < SUBGROUPS)] == []


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


def configured(tmp_path: Path, *drop_ins: str) -> tuple[ExecutorConfig, set[str]]:
    """Return the configuration and the capabilities of an executor that systemd starts with these drop-ins."""
    variables = {
        "TIDEPOOL_HOME": str(tmp_path),
        "TIDEPOOL_HOST_NAME": "gpu1",
        "TIDEPOOL_BROKER_URL": "redis://site/0",
        "INVOCATION_ID": "1",
    }
    rights: set[str] = set()
    for file in ("tidepool-executor.service", *sorted(drop_ins)):
        given = lines(TREE / file)
        variables |= dict(
            word.split("=", 1) for line in given["Environment"] for word in line.split() if "%" not in word
        )
        for line in given.get("AmbientCapabilities", []):
            rights = rights | {*line.split()} if line else set()
    return executor_config(variables), rights


def test_trainings_of_the_executor_are_sealed_unless_a_drop_in_lowers_the_level(tmp_path: Path) -> None:
    config, rights = configured(tmp_path)
    assert (config.isolation, config.user_ids) == ("sealed", UserIds(2_100_000_000, 2_100_099_999))
    assert (config.slot_limits, config.by_systemd) == (Amounts("share", 4096), True)
    assert rights == {*RIGHTS, *RIGHT_TO_SEAL}
    config, rights = configured(tmp_path, "separate-users.conf")
    assert (config.isolation, config.user_ids) == ("separate", UserIds(2_100_000_000, 2_100_099_999))
    assert (config.slot_limits, rights) == (Amounts("share", 4096), {*RIGHTS})
    config, rights = configured(tmp_path, "walled.conf")
    assert (config.isolation, config.user_ids) == ("walled", None)
    assert (config.slot_limits, rights) == (Amounts("share", 4096), set())


@pytest.mark.parametrize("level", ["separate-users.conf", "walled.conf"])
def test_a_drop_in_takes_the_limits_away(level: str, tmp_path: Path) -> None:
    config, _ = configured(tmp_path, level, "unlimited.conf")
    assert config.slot_limits == Amounts()


def test_control_groups_are_the_executors_beside_the_one_that_systemd_starts_it_in() -> None:
    executor = service(TREE / "tidepool-executor.service")
    assert (executor["Delegate"], executor["DelegateSubgroup"]) == ("yes", LEAF)


def test_every_drop_in_is_explained() -> None:
    page = (ROOT / "docs/operator/install.md").read_text()
    assert [file.name for file in TREE.glob("*.conf") if file.name not in page] == []
