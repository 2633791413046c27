"""An elastic training in a container image that has nothing of Tidepool, resized and left alone by its forkserver."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial

import httpx
import psutil
import pytest

from tests.container_images import can_make_images, made, served
from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(1800)]

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


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name and digest, in a registry, of an image with Debian's Python, torch and numpy 1."""
    if not can_make_images():
        leave_out("images are made by podman and mmdebstrap, as root")
    folder = tmp_path_factory.mktemp("image")
    with served(made(folder), folder / "served") as name:
        yield name


@pytest.fixture(params=["podman", "enroot", "apptainer"])
def stack(request: pytest.FixtureRequest, image: str) -> Iterator[RunningStack]:
    """A stack whose hosts have that engine, with folders of its own for images, and trust the registry without TLS."""
    if not shutil.which(request.param):
        leave_out(f"this machine has no {request.param}")
    with fresh_home() as home:
        kept = home.with_name(f"{home.name}-images")
        kept.mkdir()
        registries = kept / "registries.conf"
        registries.write_text(f'[[registry]]\nlocation = "{image.partition("/")[0]}"\ninsecure = true\n')
        places = {f"ENROOT_{name}_PATH": str(kept / name.lower()) for name in ("DATA", "CACHE", "RUNTIME")}
        places["APPTAINER_CACHEDIR"] = str(kept / "apptainer")
        trusting = {"CONTAINERS_REGISTRIES_CONF": str(registries), "ENROOT_ALLOW_HTTP": "y", "APPTAINER_NOHTTPS": "1"}
        settings = {"TIDEPOOL_IMAGE_ENGINE": request.param, **trusting, **places}
        running = RunningStack(home, free_port(), settings=settings)
        running.start()
        yield running
        running.stop()
        subprocess.run(["podman", "image", "rm", "--force", image], capture_output=True)
        shutil.rmtree(kept)


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
        wait_until(partial(has, api, address, 2), "it trains on 2 GPUs", seconds=900)
        [forkserver] = [each for each in psutil.process_iter() if is_in_container(each, stack)]
        forkserver.send_signal(signal.SIGKILL)
        for slots in (1, 3):
            assert api.patch(address, json={"max_slots": slots}).status_code == 200
            wait_until(partial(has, api, address, slots), f"it trains on {slots} GPUs", seconds=120)
        wait_until(lambda: bool(api.get(address).json()["finished_at"]), "it ends", seconds=600)
        end = api.get(address).json()
        used = api.get(f"{address}provenance/").json()
        hosts = api.get("hosts/").json()["results"]
    assert (end["state"], end["step"], end["attempt"]) == ("SUCCEEDED", 60 * 32, 1), end["reason"]
    assert used["packages"]["numpy"].startswith("1.")
    assert {host["images"] for host in hosts} == {stack.settings["TIDEPOOL_IMAGE_ENGINE"]}


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
