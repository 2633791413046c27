"""The units for systemd: as systemd reads them, and against the compose file."""

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Final

import pytest

from tests.docker.compose import COMPOSE, ROOT, load
from tests.docker.test_compose import GIVEN
from tests.missing import leave_out

TREE: Final = ROOT / "deploy/systemd"
UNITS: Final = sorted(TREE.glob("*.service"))


def service(file: Path) -> dict[str, str]:
    """Return the last value of each key of a unit's section `Service`."""
    parser = RawConfigParser(strict=False, delimiters="=")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(file)
    return dict(parser["Service"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda file: file.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        leave_out("systemd-analyze reads the units, and this machine has none")
    installed = tmp_path / unit.name.replace("@", "@run_scheduler")
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
    services = load(COMPOSE, GIVEN)["services"]
    command = service(TREE / "tidepool@.service")["ExecStart"].split()
    assert command == ["/opt/tidepool/.venv/bin/python", "manage.py", "%i"]
    page = (ROOT / "docs/operator/install.md").read_text()
    started = set(re.findall(r"tidepool@(\w+)", page))
    assert started == {
        of["command"][2] for name, of in services.items() if of.get("command", [])[:2] == ["python", "manage.py"]
    }
    web = service(TREE / "tidepool-web.service")["ExecStart"].split()
    assert web[1:] == [*services["web"]["command"][1:3], "127.0.0.1", *services["web"]["command"][4:]]


def test_nobody_gains_rights_and_trainings_outlive_their_executor() -> None:
    for unit in UNITS:
        assert (service(unit)["User"], service(unit)["NoNewPrivileges"]) == ("tidepool", "yes")
    executor = service(TREE / "tidepool-executor.service")
    assert (executor["KillMode"], executor["Delegate"]) == ("process", "yes")
