"""Tests of the names that the runtime uses of torch for CUDA, which the site's torch may lack: builds for CPUs do.

They install that torch in an environment of its own: 3 GB from the package index. No GPU is needed.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.lab import RUNTIME, SCRIPTS

# The limit is for a test alone: the installation has its own, because it depends on the network.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300, func_only=True)]

REQUIREMENTS = Path(__file__).parents[2] / "requirements.txt"
#: Seconds for the installation.
INSTALL_SECONDS = 3000
#: Packages that the runtime imports with torch.
BESIDE = ("cloudpickle", "msgspec", "numpy", "psutil", "safetensors", "scipy", "setproctitle")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install torch for CUDA in the site's version, and what the runtime needs beside it."""
    folder = tmp_path_factory.mktemp("cuda")
    pinned = dict(re.findall(r"^([a-z]+)==(\S+)", REQUIREMENTS.read_text(), re.M))
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=INSTALL_SECONDS)
    # Three signs of equality, because a build for CPUs, with another end of its version, is equal by two.
    wanted = [f"torch==={pinned['torch']}", *(f"{name}=={pinned[name]}" for name in BESIDE)]
    subprocess.run([folder / "bin/pip", "install", "-q", *wanted], check=True, timeout=INSTALL_SECONDS)
    return folder


@pytest.fixture(scope="module")
def python(environment: Path) -> Path:
    return environment / "bin/python"


@pytest.fixture(scope="module")
def names(python: Path) -> dict[str, Any]:
    command = [python, "-P", SCRIPTS / "cuda_names.py"]
    done = subprocess.run(command, env={"PYTHONPATH": str(RUNTIME)}, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_its_names_have_the_signatures_that_are_called(names: dict[str, Any]) -> None:
    signatures = names["signatures"]
    assert names["cuda"], "this is a torch for CPUs"
    assert "arg0: torch.device" in signatures["eager_connect_single_device"]
    assert signatures["_is_initialized"].startswith("_is_initialized(self:")
    assert "-> int" in signatures["_comm_ptr"]
    assert "tensors: collections.abc.Sequence[torch.Tensor], opts:" in signatures["allreduce"]
    assert "tensors: collections.abc.Sequence[torch.Tensor], opts:" in signatures["broadcast"]
    assert re.search(
        r"output_tensor: .*input_tensor: .*output_split_sizes: .*input_split_", signatures["alltoall_base"]
    )
    assert re.search(r"output: torch.Tensor, input: torch.Tensor", signatures["_allgather_base"])
    assert re.search(r"ranks_to_exclude: .*shrink_flags: .*opts_override: ", signatures["shrink"])
    assert signatures["abort"].startswith("abort(self:")
    assert signatures["shutdown"].startswith("shutdown(self:")
    assert names["work"] == ["is_completed", "exception", "wait"]


def test_its_nccl_can_shrink_a_communicator(names: dict[str, Any]) -> None:
    assert names["shrinks"]
    assert tuple(names["nccl"]) >= (2, 27, 0)


def test_a_communicator_takes_all_options_and_lacks_nothing_but_a_gpu(names: dict[str, Any]) -> None:
    assert "no GPUs found" in names["refusal"]


def calls_of_the_driver(python: Path, folder: Path, code: str) -> list[str]:
    """Run the code where a driver's library is found; return what was asked of it."""
    compiler, log = shutil.which("cc") or shutil.which("gcc"), folder / "calls"
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", SCRIPTS / "fake_cuda.c"], check=True)
    environment = {"PYTHONPATH": str(RUNTIME), "LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_LOG": str(log)}
    subprocess.run([python, "-P", "-c", code], env=environment, check=True, capture_output=True)
    return log.read_text().split()


def test_a_forkserver_asks_nothing_of_the_driver(python: Path, tmp_path: Path) -> None:
    """The library itself is loaded: cuBLAS and cuSPARSELt do that as they are."""
    warm = "from tidepool.torch.warm_parent import warm_up; warm_up()"
    assert calls_of_the_driver(python, tmp_path, warm) == ["loaded"]


def test_what_asks_the_driver_is_seen(python: Path, tmp_path: Path) -> None:
    assert "cuInit" in calls_of_the_driver(python, tmp_path, "import torch; torch.cuda.is_available()")
