"""AdaptDL's API comes with the site's wheel: a script runs with plain `python` where pip has installed the wheel."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from adaptdl import NEEDED
from packaging.requirements import Requirement

from tests.documents import example
from tests.runtime.compat.conftest import SCRIPTS
from tests.test_architecture import ROOT
from webapp.wheel import WHEEL, built_wheel

#: Folder of the packages that the extra `torch` installs: those of the tests, without this checkout.
_INSTALLED = sysconfig.get_path("purelib")


class Environment:
    """An environment that has nothing but the wheel."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder, self.python = folder, folder / "bin" / "python"
        [self.packages] = folder.glob("lib/python*/site-packages")
        file = folder / f"{WHEEL}.whl"
        file.write_bytes(built_wheel())
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check"]
        # With the tests' own PYTHONPATH, pip would find the client installed.
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        install = [*pip, "install", "-q", "--no-index", "--no-deps", "--no-compile", file]
        subprocess.run(install, check=True, timeout=300, env=alone)

    def runs(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return subprocess.run(
            [self.python, *words],
            cwd=self.folder, env=kept | {"OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


def test_without_the_extra_it_says_how_to_install_it(environment: Environment) -> None:
    ran = environment.runs("-c", "import adaptdl.torch")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: A script of AdaptDL needs {', '.join(NEEDED)}: "
        'pip install "tidepool-runtime[torch] @ ADDRESS OF THE WHEEL", with the address that Connect shows.'
    )


def test_nni_needs_nothing_but_the_wheel(environment: Environment) -> None:
    ran = environment.runs("-c", "import nni; nni.report_final_result(0.5)")
    assert (ran.returncode, ran.stdout) == (0, "nni: Final result: 0.5\n"), ran.stderr


def test_what_it_asks_for_is_the_extra() -> None:
    extra = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]["optional-dependencies"]["torch"]
    assert {*NEEDED} == {Requirement(line).name for line in extra} - {"cloudpickle"}


def test_a_script_trains_with_plain_python(environment: Environment) -> None:
    """The two lines of adaptdl.md, the first of them without a network."""
    install, run = example("docs/user/adaptdl.md#Off the cluster.1").text.splitlines()
    assert f"tidepool-runtime[torch] @ https://gpus.example.org/ui/tools/{WHEEL}.whl" in install
    (environment.packages / "installed.pth").write_text(f"{_INSTALLED}\n")
    python, script = run.split()
    assert python == "python"
    shutil.copy(SCRIPTS / "adl.py", environment.folder / script)
    ran = environment.runs(script, "--epochs", "1", "--samples", "64", "--out", "weights.pth")
    assert ran.returncode == 0, ran.stderr
    assert (environment.folder / "weights.pth").exists()
    where = environment.runs(
        "-c", "import adaptdl, tidepool; print(adaptdl.__file__, tidepool.__file__)"
    ).stdout.split()
    assert all(Path(file).is_relative_to(environment.packages) for file in where), where


def test_an_installed_adaptdl_takes_precedence(environment: Environment) -> None:
    theirs = environment.packages / "adaptdl"
    theirs.mkdir()
    (theirs / "__init__.py").write_text("print('theirs')\n")
    assert environment.runs("-c", "import adaptdl").stdout == "theirs\n"
