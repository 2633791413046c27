"""Environments are built once, by real uv from a folder of wheels, beside the cluster's packages."""

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.waiting import wait_until
from workers.executor.environments.cache import Environments, Failed, Ready, collect

THERE = {"torch": "2.13.0+cpu", "numpy": "2.3.1"}
KEY = (3, 1)


def wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    """A package that says its version."""
    top = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{top}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{top}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{top}/RECORD"] = "".join(f"{path},,\n" for path in files)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


class Host:
    def __init__(self, top: Path) -> None:
        self.folder, self.wheels, self.log = top / "environments", top / "wheels", top / "log" / "stdout"
        self.wheels.mkdir(exist_ok=True)
        wheel(self.wheels, "tidehello", "1.2", "torch>=2", "tidesmall")
        wheel(self.wheels, "tidesmall", "0.1")
        wheel(self.wheels, "tideold", "1.0", "torch<2")

        self.links = {"UV_FIND_LINKS": str(self.wheels), "UV_OFFLINE": "1", "PATH": os.defpath}
        self.environments = self.executor()

    def executor(self) -> Environments:
        return Environments(self.folder, self.links, lambda: THERE)

    def ask(
        self, requirements: str, key: tuple[int, int] = KEY, executor: Environments | None = None
    ) -> Ready | Failed:
        executor = executor or self.environments
        wait_until(lambda: executor.ask(key, requirements, self.log) is not None)
        answer = executor.ask(key, requirements, self.log)
        assert answer is not None
        return answer


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_what_is_required_is_installed_beside_the_clusters_packages(host: Host) -> None:
    answer = host.ask("tidehello")
    assert isinstance(answer, Ready)
    site = next(Path(answer.folder).glob("lib/*/site-packages"))
    assert {path.name for path in site.glob("*.py")} >= {"tidehello.py", "tidesmall.py"}
    assert not list(site.glob("torch*")), "the cluster's is the only one"
    code = "import tidehello, msgspec, sys; print(tidehello.VERSION, msgspec.__file__)"
    said = subprocess.run([f"{answer.folder}/bin/python", "-c", code], capture_output=True, text=True, check=True)
    import msgspec

    assert said.stdout.split() == ["1.2", msgspec.__file__]
    rank = (
        "import sys; from tidepool.rank_process import _enter_environment as enter; added = enter(sys.argv[1]); "
        "sys.path[:0] = added; import tidehello; print(tidehello.VERSION)"
    )
    said = subprocess.run(
        [sys.executable, "-c", rank, answer.folder], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert said.stdout == "1.2\n"


def test_who_asked_is_told_that_there_is_an_answer(host: Host) -> None:
    seen: list[object] = []
    executor = Environments(
        host.folder,
        host.links,
        lambda: THERE,
        answered=lambda: seen.append(executor.ask(KEY, "tidesmall", host.log)),
    )
    assert executor.ask(KEY, "tidesmall", host.log) is None
    wait_until(lambda: seen)
    assert isinstance(seen[0], Ready)


def test_what_others_keep_is_answered_at_once(host: Host) -> None:
    there = [THERE]
    executor = Environments(host.folder, host.links, lambda: there[0])
    first = host.ask("tidesmall", KEY, executor)
    assert executor.ask((4, 1), "tidesmall", host.log) == first
    there[0] = {**THERE, "tidesmall": "0.1"}
    assert executor.ask((5, 1), "tidesmall", host.log) is None, "the cluster's packages have changed"
    assert host.ask("tidesmall", (5, 1), executor) == Ready("")
    for key in (KEY, (4, 1), (5, 1)):
        executor.release(key)
    assert executor.ask((6, 1), "tidesmall", host.log) is None, "nobody keeps it"


def test_a_build_is_shared(host: Host) -> None:
    """Share it between jobs of two executors on the same machine, at the same time and later."""
    other = host.executor()
    keys = [(4, 1), (5, 1)]
    for key, executor in [(KEY, host.environments), (keys[0], host.environments), (keys[1], other)]:
        executor.ask(key, "tidehello", host.log)
    answers = {host.ask("tidehello"), host.ask("tidehello", keys[0]), host.ask("tidehello", keys[1], other)}
    assert len(answers) == 1
    assert host.log.read_text().count("Installing") == 1


def test_a_python_that_the_host_lacks_is_named_with_those_that_it_has(host: Host) -> None:
    answer = host.ask("--python ==3.25.*\ntidesmall")
    assert isinstance(answer, Failed)
    assert answer.why.startswith("the training asks for Python ==3.25.*, and this host has ")


def test_a_python_that_the_host_lacks_is_fetched_only_where_that_is_allowed(host: Host, tmp_path: Path) -> None:
    mirror = {
        "UV_PYTHON_INSTALL_MIRROR": f"file://{tmp_path}/no-mirror",
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "pythons"),
    }
    executor = Environments(host.folder, {**host.links, **mirror, "UV_PYTHON_DOWNLOADS": "manual"}, lambda: THERE)
    answer = host.ask("--python ==3.14.0\ntidesmall", KEY, executor)
    assert isinstance(answer, Failed)
    assert "no-mirror" in answer.why, "uv was asked, and says where it has looked"
    assert "python install" in host.log.read_text()


@pytest.mark.parametrize(("requirement", "named"), [("tideold", "torch<2"), ("tidenothere>=3", "tidenothere")])
def test_what_cannot_be_installed_is_said_and_leaves_nothing(host: Host, requirement: str, named: str) -> None:
    answer = host.ask(requirement)
    assert isinstance(answer, Failed)
    assert named in answer.why
    assert named in host.log.read_text()
    assert not [path for path in host.folder.iterdir() if path.is_dir() and path.name != "cache"]
    assert host.environments.ask(KEY, requirement, host.log) == answer, "it is not tried again"


def test_what_the_cluster_has_needs_no_environment(host: Host) -> None:
    assert host.ask("torch>=2\nnumpy") == Ready("")
    assert host.environments.ask((9, 1), "", host.log) == Ready("")
    assert not host.log.exists()


def test_a_version_that_the_cluster_has_and_a_training_pins_stays(host: Host) -> None:
    for version in ("3.1.2", "3.1.3"):
        wheel(host.wheels, "tidepickle", version)
    wheel(host.wheels, "tidegym", "1.0", "tidepickle>=1.2")
    executor = Environments(host.folder, host.links, lambda: THERE | {"tidepickle": "3.1.2"})

    def packages(requirements: str, key: tuple[int, int]) -> set[str]:
        answer = host.ask(requirements, key, executor)
        assert isinstance(answer, Ready)
        return {path.name for path in Path(answer.folder).glob("lib/*/site-packages/tide*.py")}

    assert packages("tidepickle==3.1.2\ntidegym", (1, 1)) == {"tidegym.py"}
    assert packages("tidepickle\ntidegym", (2, 1)) == {"tidegym.py"}, "the cluster's version is preferred"
    wheel(host.wheels, "tidenew", "1.0", "tidepickle>=3.1.3")
    assert packages("tidepickle\ntidenew", (3, 1)) == {"tidenew.py", "tidepickle.py"}, "where it is not enough"
    assert isinstance(host.ask("tidepickle==3.1.2\ntidenew", (4, 1), executor), Failed)


def test_hosts_get_the_versions_that_the_first_has_found_until_it_is_built_again(host: Host, tmp_path: Path) -> None:
    hosts = [
        Environments(tmp_path / name, host.links, lambda: THERE, agreed=tmp_path / "pool") for name in ("one", "two")
    ]

    def version(executor: Environments, key: tuple[int, int], requirements: str) -> str:
        answer = host.ask(requirements, key, executor)
        assert isinstance(answer, Ready)
        [file] = Path(answer.folder).glob("lib/*/site-packages/tidesmall.py")
        return file.read_text().strip()

    assert version(hosts[0], (1, 1), "tidesmall") == "VERSION = '0.1'"
    wheel(host.wheels, "tidesmall", "0.2")
    assert version(hosts[1], (1, 1), "tidesmall") == "VERSION = '0.1'"
    assert version(hosts[1], (2, 1), "tidesmall>=0.1") == "VERSION = '0.2'", (
        "other requirements are solved by themselves"
    )
    hosts[0].release((1, 1))
    for agreed in (tmp_path / "pool").iterdir():  # as the control plane does
        agreed.unlink()
    wait_until(lambda: hosts[0].ask((3, 1), "tidesmall", host.log, is_fresh=True) is not None)
    assert version(hosts[0], (3, 1), "tidesmall") == "VERSION = '0.2'"


def test_hashes_are_checked(host: Host) -> None:
    content = (host.wheels / "tidesmall-0.1-py3-none-any.whl").read_bytes()
    right = hashlib.sha256(content).hexdigest()
    assert isinstance(host.ask(f"tidesmall==0.1 --hash=sha256:{right}"), Ready)
    answer = host.ask(f"tidesmall==0.1 --hash=sha256:{'0' * 64}", (4, 1))
    assert isinstance(answer, Failed)
    assert "Hash mismatch" in answer.why


def test_packages_may_come_from_a_further_place(host: Host, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    wheel(tmp_path / "more", "tideother", "2.0")
    assert isinstance(host.ask(f"--find-links file://{tmp_path}/more\ntideother\n-e ."), Ready)


def test_a_build_that_nobody_wants_is_given_up(host: Host) -> None:
    host.environments.ask(KEY, "tidehello", host.log)
    host.environments.release(KEY)
    wait_until(lambda: not list(host.folder.glob(".*.new")) if host.folder.exists() else True)
    assert isinstance(host.ask("tidehello", (4, 1)), Ready)


def test_old_environments_are_removed_and_used_ones_stay(tmp_path: Path) -> None:
    now, day = time.time(), 24 * 3600.0
    ages = {
        "used": 30 * day,
        "old": 15 * day,
        "fresh": 0.5 * day,
        **{f"more{n:02}": (2 + n / 100) * day for n in range(25)},
    }
    for name, age in ages.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "complete.json").write_text('{"requirements": []}')
        os.utime(folder, (now - age, now - age))
    removed = collect(tmp_path, lambda: {str(tmp_path / "used")}, now)
    assert sorted(removed) == sorted(["old", *(f"more{n:02}" for n in range(18, 25))])
    assert (tmp_path / "used").exists()
