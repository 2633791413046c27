"""Elastic trainings on one host, each in a world of its own, resized live: their results are as in the cluster's."""

import platform
from functools import partial

import httpx
import pytest

from tests.journey.running_stack import RunningStack
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(1800)]

SCRIPT = """
import os
import platform
import time

import numpy
import torch
import tidepool.torch as elastic

print("numpy", numpy.__version__, "python", platform.python_version(), flush=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
loader = torch.utils.data.DataLoader(data, batch_size=16)
model, optimizer, loader = elastic.prepare(model, optimizer, loader)
for epoch in elastic.epochs(range(40)):
    for inputs, wanted in loader:
        time.sleep(float(os.environ["PAUSE"]))
        optimizer.zero_grad()
        loss = ((model(inputs) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
print("last", round(sum(each.sum().item() for each in model.parameters()), 4), flush=True)
"""
#: Another Python than the cluster's.
OTHER = "3.12" if not platform.python_version().startswith("3.12.") else "3.13"
WORLDS = {"own": "# none", "numpy": "numpy<2", "python": f"--python {OTHER}\ntorch"}


def has(api: httpx.Client, address: str, slots: int) -> bool:
    seen = api.get(address).json()
    assert seen["state"] in ("PENDING", "STARTING", "RUNNING"), seen["reason"]
    return bool(seen["state"] == "RUNNING" and seen["slots"] == slots)


def is_over(api: httpx.Client, address: str) -> bool:
    return bool(api.get(address).json()["finished_at"])


def submitted(api: httpx.Client, pause: float) -> dict[str, str]:
    """Return the addresses of trainings in all worlds. pause: seconds that they wait in each step."""
    addresses = {}
    for name, requirements in WORLDS.items():
        asked = {"name": name, "model": "worlds", "instance_group": "sig-elastic", "max_slots": 2}
        given = {"requirements": requirements, "environment": {"PAUSE": str(pause)}}
        answer = api.post("jobs/", json={**asked, **given})
        assert answer.status_code == 201, answer.text
        addresses[name] = f"jobs/{answer.json()['id']}/"
    return addresses


def test_foreign_worlds_train_elastically_beside_the_clusters(stack: RunningStack) -> None:
    folder = stack.home / "models" / "worlds"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    with stack.api() as api:
        model = {"name": "worlds", "path": "worlds", "entry_point": "train.py", "engine": "elastic"}
        answer = api.post("models/", json={**model, "framework": "PyTorch"})
        assert answer.status_code == 201, answer.text
        prepared = submitted(api, 0.0)  # each waits for its installation, and ends before anybody changes it
        for name, address in prepared.items():
            wait_until(partial(is_over, api, address), f"{name} ends", seconds=1200)
            end = api.get(address).json()
            if end["state"] == "FAILED" and "this host has" in end["reason"]["text"]:
                leave_out(f"{WORLDS[name]!r} cannot be installed here: {end['reason']['text']}")
        addresses = submitted(api, 0.05)
        for slots in (1, 2, 1):
            for address in addresses.values():
                assert api.patch(address, json={"max_slots": slots}).status_code == 200
            for name, address in addresses.items():
                wait_until(partial(has, api, address, slots), f"{name} trains on {slots}", seconds=120)
        ends = {}
        for name, address in addresses.items():
            wait_until(partial(is_over, api, address), f"{name} ends", seconds=600)
            ends[name] = api.get(address).json()
    assert {name: end["state"] for name, end in ends.items()} == dict.fromkeys(ends, "SUCCEEDED"), ends
    assert {end["attempt"] for end in ends.values()} == {1}
    printed = {
        f"{name} {kind}": "".join(
            path.read_text() for path in stack.home.glob(f"results/*/batchworkdir/{address.split('/')[1]}/**/stdout")
        )
        for kind, found in (("alone", prepared), ("together", addresses))
        for name, address in found.items()
    }
    assert "numpy 1." in printed["numpy together"]
    assert "numpy 2." in printed["own together"]
    assert f"python {OTHER}." in printed["python together"]
    last = {text.partition("last ")[2].split()[0] for text in printed.values()}
    assert len(last) == 1, printed
