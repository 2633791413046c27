"""A fake `libnvidia-ml.so.1`, compiled once, and processes that find it by its name as pynvml looks for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import ROOT

__all__ = ["FakeDriver", "compiled"]

_SOURCE = Path(__file__).resolve().parents[1] / "fake_nvml.c"


def compiled(folder: Path) -> Path:
    """Return the folder with the library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is needed to build the fake driver")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(_SOURCE)], check=True)
    return folder


class FakeDriver:
    """The driver's state is a file, which a test writes and each call of the library reads."""

    def __init__(self, library: Path, state: Path) -> None:
        self._library, self._state = library, state
        self.set()

    def set(self, **values: object) -> None:
        """Keys are those of fake_nvml.c; `gpu0_lost` stands for `0.lost`."""
        lines = [f"{_key(name)} {value}\n" for name, value in values.items()]
        unfinished = self._state.with_suffix(".new")
        unfinished.write_text("".join(lines))
        unfinished.rename(self._state)

    @property
    def environment(self) -> dict[str, str]:
        paths = os.pathsep.join([str(ROOT), str(ROOT / "runtime")])
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": paths,
            "LD_LIBRARY_PATH": str(self._library),
            "FAKE_NVML": str(self._state),
        }

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=ROOT, env={**self.environment, **environment}, capture_output=True, text=True, timeout=300
        )

    def start(self, code: str) -> subprocess.Popen[str]:
        """Start Python with the code, with pipes to it."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, env=self.environment, stdin=pipe, stdout=pipe, text=True
        )


def _key(name: str) -> str:
    gpu, _, rest = name.partition("_")
    return f"{gpu[3:]}.{rest}" if gpu.startswith("gpu") and rest else name
