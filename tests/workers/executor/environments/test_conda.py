"""Environments of conda, made by the solver that this machine has from a channel of the test's own."""

import os
from pathlib import Path

import pytest

from tests.missing import leave_out
from tests.waiting import wait_until
from tests.workers.executor.environments.conda_channel import Channel
from tests.workers.executor.environments.test_cache import KEY, wheel
from workers.executor.environments.cache import Environments, Failed, Ready
from workers.executor.environments.conda import SOLVERS, cause_in, command_for, solver_in
from workers.executor.environments.requirements import Wanted, digest_of, wanted_of
from workers.executor.environments.software import software_in

NEEDED = ("cloudpickle", "msgspec", "psutil", "setproctitle")


class Host:
    """A host with a solver, a channel and a folder of wheels."""

    def __init__(self, top: Path) -> None:
        self.log, self.channel = top / "log" / "stdout", Channel(top / "channel")
        self.python = self.channel.add_python()
        for name in ("pip", "tidesmall"):
            self.channel.add_module(name, "0.1", "python")
        self.channel.add_module("tidehello", "1.2", "python >=3.11", "tidesmall >=0.1")
        self.channel.add_module("tideold", "1.0", "python", "tidesmall >=9")
        (wheels := top / "wheels").mkdir()
        for name in (*NEEDED, "tidewheel"):
            wheel(wheels, name, "3.1.7")
        self.links = {"UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1", "PATH": os.environ["PATH"]}
        self.links |= {"CONDA_OFFLINE": "1", "HOME": str(top)}
        self.environments = Environments(top / "environments", self.links, dict)

    def ask(self, *lines: str, key: tuple[int, int] = KEY) -> Ready | Failed:
        requirements = "\n".join([*lines, f"--conda-channels file://{self.channel.folder} nodefaults"])
        wait_until(lambda: self.environments.ask(key, requirements, self.log) is not None)
        answer = self.environments.ask(key, requirements, self.log)
        assert answer is not None
        return answer


@pytest.fixture
def host(tmp_path: Path) -> Host:
    if not solver_in():
        leave_out(f"this machine has none of {', '.join(SOLVERS)}")
    return Host(tmp_path)


@pytest.mark.long
def test_conda_makes_an_environment_and_uv_adds_what_pip_shall_install(host: Host) -> None:
    answer = host.ask("--conda tidehello", "tidewheel")
    assert isinstance(answer, Ready), answer
    assert (answer.is_whole, answer.python) == (True, host.python)
    found = software_in(answer)
    assert {"tidehello": "1.2", "tidesmall": "0.1", "tidewheel": "3.1.7"}.items() <= found.packages.items()
    assert found.digest == "", "nobody else changes it"
    assert {path.stem for path in Path(answer.folder, "needs").glob("*.py")} == {*NEEDED}
    assert host.ask("--conda tidehello", "tidewheel", key=(4, 1)) == answer, "it is made once"
    assert host.log.read_text().count("Making an environment of conda with tidehello.") == 1


@pytest.mark.long
@pytest.mark.parametrize("package", ["tidenothere", "tideold"])
def test_what_conda_cannot_solve_is_said_in_its_words_and_leaves_nothing(host: Host, package: str) -> None:
    answer = host.ask(f"--conda {package}")
    assert isinstance(answer, Failed)
    named = {"tidenothere": "tidenothere", "tideold": "tidesmall"}[package]
    assert named in answer.why or "could not find a compatible set of packages" in answer.why
    assert "\n" not in answer.why
    assert package in host.log.read_text()
    left = [path.name for path in host.environments._folder.iterdir() if path.is_dir()]
    assert not {*left} - {"cache", "conda"}


def test_a_host_without_a_solver_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments = Environments(tmp_path / "environments", {"PATH": str(tmp_path)}, dict)
    wait_until(lambda: environments.ask(KEY, "--conda numpy", tmp_path / "log") is not None)
    answer = environments.ask(KEY, "--conda numpy", tmp_path / "log")
    assert isinstance(answer, Failed)
    assert "this host has none of micromamba, mamba, conda on the PATH of its executor: have" in answer.why
    monkeypatch.setenv("PATH", str(tmp_path))
    assert solver_in() == ""


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["--conda numpy=1.26"], ["numpy=1.26", "python >=3.11"]),
        (["--conda numpy", "--python >=3.12"], ["numpy", "python >=3.12"]),
        (["--conda conda-forge::python=3.12"], ["conda-forge::python=3.12"]),
        (["--conda python-dateutil"], ["python-dateutil", "python >=3.11"]),
        (["--conda x", "--conda-channels a b"], ["--channel", "a", "--channel", "b", "x", "python >=3.11"]),
        (
            ["--conda x", "--conda-channels a nodefaults"],
            ["--override-channels", "--channel", "a", "x", "python >=3.11"],
        ),
    ],
)
def test_the_command_has_channels_packages_and_a_python(lines: list[str], words: list[str]) -> None:
    wanted = wanted_of(lines, {}, "3.11.7")
    assert wanted is not None
    assert command_for("conda", wanted, Path("/e"))[1:] == ["create", "--yes", "--quiet", "--prefix", "/e", *words]


def test_the_digest_has_what_conda_is_asked_for() -> None:
    texts = ("--conda a", "--conda a\n--conda-channels x", "--conda a\n--conda-channels x y", "--conda b", "a>99")
    found = [wanted_of(text.splitlines(), {}, "3.11.7") for text in texts]
    assert len({digest_of(each, {}, "3.11.7") for each in found if isinstance(each, Wanted)}) == len(texts)


#: Output of each solver -> what it says.
SAID = {
    """Solving environment: ...working... failed

PackagesNotFoundInChannelsError: The following packages are not available from current channels:

  - nothere

Current channels:

  - file:///channel/linux-64
""": "The following packages are not available from current channels: - nothere",
    """Solving environment: ...working... failed

RattlerUnsatisfiableError: Cannot solve the request because of: tideold * cannot be installed because of:
└─ tideold 1.0 would require
   └─ tidesmall >=9, for which no candidates were found.
""": "Cannot solve the request because of: tideold * cannot be installed because of: └─ tideold 1.0 would require └─ "
    "tidesmall >=9, for which no candidates were found.",
    """error    libmamba Could not solve for environment specs
    The following package could not be installed
    └─ nothere does not exist (perhaps a typo or a missing channel).
critical libmamba Could not solve for environment specs
""": "Could not solve for environment specs The following package could not be installed └─ nothere does not exist "
    "(perhaps a typo or a missing channel).",
    "Killed\n": "",
}


@pytest.mark.parametrize("output", SAID)
def test_a_failure_is_said_on_one_line(output: str) -> None:
    assert cause_in([line for line in output.splitlines() if line.strip()]) == SAID[output]
