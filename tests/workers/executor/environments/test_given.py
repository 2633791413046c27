"""Folders of the hosts as environments: what they hold, what is installed beside them, and what changes there."""

import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tidepool.env import site_of

from tests.waiting import wait_until
from tests.workers.executor.environments.test_cache import KEY, wheel
from tests.workers.executor.environments.test_software import add
from workers.executor.environments import given
from workers.executor.environments.cache import Environments, Failed, Ready
from workers.executor.environments.given import Contents, FolderError, Folders, changes_between, read_contents
from workers.executor.environments.requirements import RUNTIME_NEEDS
from workers.executor.environments.software import software_in

NEEDED = ("cloudpickle", "msgspec", "psutil", "setproctitle")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A virtual environment with a package of its own."""
    folder = tmp_path / "vision"
    venv.create(folder, with_pip=False, symlinks=True)
    add(site_of(folder), "timm", "1.0.9")
    return folder


@pytest.fixture
def environments(tmp_path: Path) -> Environments:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in NEEDED:
        wheel(wheels, name, "3.1.7" if name == "cloudpickle" else "9.0")
    links = {"UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1", "PATH": os.defpath}
    return Environments(tmp_path / "cache", links, lambda: {"torch": "2.13.0"})


def ask(environments: Environments, folder: Path, key: tuple[int, int] = KEY) -> Ready | Failed:
    log = folder.parent / "log" / "stdout"
    wait_until(lambda: environments.ask(key, f"--folder {folder}", log) is not None)
    answer = environments.ask(key, f"--folder {folder}", log)
    assert answer is not None
    return answer


def ready(environments: Environments, folder: Path, key: tuple[int, int] = KEY) -> Ready:
    answer = ask(environments, folder, key)
    assert isinstance(answer, Ready), answer
    return answer


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_what_the_runtime_lacks_is_installed_beside_the_folder(environments: Environments, folder: Path) -> None:
    add(site_of(folder), "psutil", "5.9")
    before = listing(folder)
    answer = ready(environments, folder)
    assert listing(folder) == before, "nothing is built into it"
    assert (answer.given, answer.is_whole, answer.python) == (str(folder), True, platform.python_version())
    beside = {path.name for path in Path(answer.folder, "needs").glob("*.py")}
    assert beside == {"cloudpickle.py", "msgspec.py", "setproctitle.py"}, "it has a psutil of its own"
    found = software_in(answer)
    assert found.packages == {"psutil": "5.9", "timm": "1.0.9"}
    assert found.digest == read_contents(folder, os.environ).digest


def test_a_folder_that_has_all_needs_no_installation(environments: Environments, folder: Path) -> None:
    for name in NEEDED:
        add(site_of(folder), name, "3.1.0")
    assert not listing(Path(ready(environments, folder).folder, "needs"))
    assert "uv pip" not in (folder.parent / "log" / "stdout").read_text()


def test_a_version_that_the_runtime_cannot_use_is_shadowed_and_stays(environments: Environments, folder: Path) -> None:
    add(site_of(folder), "cloudpickle", "2.2.0")
    answer = ready(environments, folder)
    assert Path(answer.folder, "needs", "cloudpickle.py").exists()
    assert read_contents(folder, os.environ).packages["cloudpickle"] == "2.2.0"


def test_a_changed_folder_is_another_environment_from_the_next_attempt_on(
    environments: Environments, folder: Path
) -> None:
    first = ready(environments, folder)
    assert ready(environments, folder, (3, 2)) == first
    shutil.rmtree(next(site_of(folder).glob("timm*")))
    add(site_of(folder), "timm", "1.1.0")
    assert ready(environments, folder) == first, "an attempt keeps what it began with"
    later = ready(environments, folder, (3, 3))
    assert later.folder != first.folder
    assert software_in(later).packages["timm"] == "1.1.0"


def test_packages_installed_anew_in_the_same_version_are_a_change(folder: Path) -> None:
    first = read_contents(folder, os.environ)
    os.utime(next(site_of(folder).glob("timm*")), (1, 1))
    later = read_contents(folder, os.environ)
    assert later.packages == first.packages
    assert later.digest != first.digest


def test_packages_of_conda_count_by_its_records(folder: Path) -> None:
    first = read_contents(folder, os.environ)
    (folder / "conda-meta").mkdir()
    (folder / "conda-meta" / "mkl-2024.0-0.json").write_text("{}")
    assert read_contents(folder, os.environ).digest != first.digest


def test_packages_of_the_executors_home_are_no_part_of_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyvenv.cfg").write_text((folder / "pyvenv.cfg").read_text().replace("= false", "= true"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    asked = [sys.executable, "-c", "import site; print(site.getusersitepackages())"]
    place = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    add(Path(place), "mine", "1.0")
    assert "mine" not in read_contents(folder, os.environ).packages


def refused(environments: Environments, folder: Path) -> str:
    answer = ask(environments, folder)
    assert isinstance(answer, Failed)
    return answer.why


def test_a_folder_that_is_not_there_is_a_sentence(environments: Environments, tmp_path: Path) -> None:
    assert refused(environments, tmp_path / "none").startswith(f"this host has no folder {tmp_path / 'none'}: make ")


def test_a_folder_without_a_python_is_a_sentence(environments: Environments, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty has no bin/python: it has to be a virtual environment or a conda" in refused(
        environments, tmp_path / "empty"
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("""echo '["3.8.19", []]'""", "has Python 3.8.19, and trainings need 3.11 or newer: make it anew"),
        ("echo 'error: no libpython' >&2; exit 1", "bin/python cannot be run (error: no libpython): make"),
        ("exit 1", "bin/python cannot be run (it says nothing): make"),
    ],
)
def test_a_python_that_cannot_train_is_a_sentence(
    environments: Environments, tmp_path: Path, body: str, why: str
) -> None:
    program = tmp_path / "odd" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    assert why in refused(environments, tmp_path / "odd")


def test_a_link_to_a_python_that_is_gone_is_a_sentence(environments: Environments, folder: Path) -> None:
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to("/nowhere/python3")
    assert "cannot be run (No such file or directory)" in refused(environments, folder)


def test_a_folder_that_the_executor_may_not_read_is_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read all
    with pytest.raises(FolderError, match="the user who runs the executor may not read"):
        read_contents(folder, os.environ)


def test_a_python_that_hangs_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "bin" / "python").chmod(0o755)
    monkeypatch.setattr(given, "_PROBE_SECONDS", 0.2)
    with pytest.raises(FolderError, match="did not answer"):
        read_contents(folder, os.environ)


def test_a_change_counts_once_two_looks_agree(folder: Path) -> None:
    now = 0.0
    folders = Folders(os.environ, lambda: now)

    def look() -> Contents | FolderError | None:
        nonlocal now
        now += 60.0
        folders.watched(folder)
        wait_until(lambda: not folders._watched[folder].is_looking)
        return folders.watched(folder)

    assert look() is None
    first = look()
    assert isinstance(first, Contents)
    add(site_of(folder), "more", "1.0")
    assert look() == first, "somebody may still be installing"
    later = look()
    assert isinstance(later, Contents)
    assert changes_between(first.packages, later.packages) == ["more none -> 1.0"]
    shutil.rmtree(folder)
    look()
    assert isinstance(look(), FolderError)


def test_many_changes_are_counted() -> None:
    changed = changes_between({f"p{number:02}": "1" for number in range(12)}, {})
    assert changed[0] == "p00 1 -> none"
    assert changed[-1] == "2 more"


def test_the_needs_of_the_runtime_are_named_here() -> None:
    assert [*NEEDED] == [need.partition("=")[0] for need in RUNTIME_NEEDS]
