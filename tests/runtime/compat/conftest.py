"""WMLA's example and its data, and labs in which scripts of its style are trained."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.lab import Lab

EXAMPLE = Path(__file__).parents[3] / "examples" / "mnist-edt"
SCRIPTS = Path(__file__).parent / "scripts"
DRIVER = "driver-20260101120000-0001-00000000-0000-5000-8000-000000000000"
MakeLab = Callable[..., Lab]


def made_idx(folder: Path) -> Path:
    """The example's small files of MNIST."""
    specification = importlib.util.spec_from_file_location("make_idx", EXAMPLE / "make_idx.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.write_idx(folder)
    return folder


@pytest.fixture(scope="session")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_idx(tmp_path_factory.mktemp("mnist"))


@pytest.fixture
def make_job(make_lab: MakeLab, mnist: Path) -> MakeLab:
    def make(script: str, arguments: list[str], code: Path = SCRIPTS, **options: Any) -> Lab:
        named = {"DLI_DRIVER_ID": DRIVER, "DLI_EXECID": "alice-1-1", **options.pop("environment", {})}
        return make_lab(
            script,
            arguments=arguments,
            code_folder=str(code),
            data_dir=str(mnist),
            compat=["wmla"],
            environment=named,
            **options,
        )

    return make
