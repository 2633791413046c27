"""The client with the newest of everything that it does not pin, against the packages of the lock."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from webapp.wheel import WHEEL, built_wheel

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SEND = """
import pathlib, shutil, sys
from tidepool.client.calls import as_package, packed

unit = 2

class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, value):
        return value * self.factor * unit

def train(rate, *, scale):
    return [scale(rate) for _ in range(3)], lambda: None

def value(rate, *, scale):
    return train(rate, scale=scale)[0]

with as_package(packed(value, [0.5], {"scale": Scale(3)})) as code:
    shutil.copytree(code.folder, sys.argv[1])
"""


def test_what_a_newer_client_sends_is_loaded_here(tmp_path: Path) -> None:
    wheel = tmp_path / f"{WHEEL}.whl"
    wheel.write_bytes(built_wheel())
    venv.create(tmp_path / "client", with_pip=True)
    python = tmp_path / "client" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--upgrade", wheel], check=True, timeout=300)
    (tmp_path / "send.py").write_text(SEND)
    sent, results = tmp_path / "sent", tmp_path / "results"
    results.mkdir()
    subprocess.run([python, "send.py", sent], cwd=tmp_path, check=True, timeout=60, env={"PATH": ""})
    subprocess.run(
        [sys.executable, "function.py"],
        cwd=sent,
        check=True,
        timeout=60,
        env={"RANK": "0", "RESULT_DIR": str(results), "PYTHONPATH": ":".join(sys.path)},
    )
    content = (results / "value.pkl").read_bytes()
    loaded = subprocess.run(
        [python, "-c", "import pickle, sys; print(pickle.load(sys.stdin.buffer))"],
        input=content,
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert loaded.stdout == b"[3.0, 3.0, 3.0]\n"
