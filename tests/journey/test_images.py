"""An elastic training in a container image that has nothing of Tidepool, resized and left alone by its forkserver."""

import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
from uv import find_uv_bin

from tests.journey.running_stack import RunningStack
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(1800)]

NAME = "localhost/tidepool-test-image"
SCRIPT = """
import time

import numpy
import torch
import tidepool.torch as elastic

print("numpy", numpy.__version__, flush=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
loader = torch.utils.data.DataLoader(data, batch_size=16)
model, optimizer, loader = elastic.prepare(model, optimizer, loader)
for epoch in elastic.epochs(range(60)):
    for inputs, wanted in loader:
        time.sleep(0.05)
        optimizer.zero_grad()
        loss = ((model(inputs) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def image(tmp_path: Path) -> str:
    """Name and digest of an image with Debian's Python, torch and numpy 1."""
    if os.geteuid() != 0 or not shutil.which("podman") or not shutil.which("mmdebstrap"):
        leave_out("images are made by podman and mmdebstrap, as root")
    if subprocess.run(["podman", "image", "exists", NAME]).returncode != 0:
        root, packages = tmp_path / "root.tar", tmp_path / "context" / "packages"
        subprocess.run(["mmdebstrap", "-q", "--variant=minbase", "--include=python3", "bookworm", root], check=True)
        python = ["--python-version", "3.11", "--only-binary", ":all:", "--target", str(packages)]
        subprocess.run([find_uv_bin(), "pip", "install", "-q", *python, "torch==2.13.0", "numpy<2"], check=True)
        subprocess.run(["podman", "import", "-q", root, f"{NAME}-base:1"], check=True)
        file = packages.with_name("Dockerfile")
        file.write_text(f"FROM {NAME}-base:1\nCOPY packages /usr/lib/python3/dist-packages\n")
        subprocess.run(["podman", "build", "-q", "-t", NAME, packages.parent], check=True)
    told = ["podman", "image", "inspect", "--format", "{{.Digest}}", NAME]
    digest = subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()
    return f"{NAME}@{digest}"


def test_a_training_in_an_image_is_resized_live(stack: RunningStack, image: str) -> None:
    folder = stack.home / "models" / "worlds"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    with stack.api() as api:
        model = {"name": "worlds", "path": "worlds", "entry_point": "train.py", "engine": "elastic"}
        assert api.post("models/", json={**model, "framework": "PyTorch"}).status_code == 201
        asked = {"name": "boxed", "model": "worlds", "instance_group": "sig-elastic", "max_slots": 2}
        answer = api.post("jobs/", json={**asked, "requirements": f"--image {image}"})
        assert answer.status_code == 201, answer.text
        address = f"jobs/{answer.json()['id']}/"
        wait_until(partial(has, api, address, 2), "it trains on 2 GPUs", seconds=300)
        [forkserver] = [each for each in psutil.process_iter() if is_in_container(each, stack)]
        forkserver.send_signal(signal.SIGKILL)
        for slots in (1, 3):
            assert api.patch(address, json={"max_slots": slots}).status_code == 200
            wait_until(partial(has, api, address, slots), f"it trains on {slots} GPUs", seconds=120)
        wait_until(lambda: bool(api.get(address).json()["finished_at"]), "it ends", seconds=600)
        end = api.get(address).json()
        used = api.get(f"{address}provenance/").json()
    assert (end["state"], end["step"], end["attempt"]) == ("SUCCEEDED", 60 * 32, 1), end["reason"]
    assert used["packages"]["numpy"].startswith("1.")


def has(api: httpx.Client, address: str, slots: int) -> bool:
    seen = api.get(address).json()
    assert seen["state"] in ("PENDING", "STARTING", "RUNNING"), seen["reason"]
    return bool(seen["state"] == "RUNNING" and seen["slots"] == slots)


def is_in_container(process: psutil.Process, stack: RunningStack) -> bool:
    name = f"tidepool forkserver: {stack.home}/run/gpu-host-1/forkserver-"
    try:
        return " ".join(process.cmdline()).startswith(name)
    except psutil.Error:
        return False
