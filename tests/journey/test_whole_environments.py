"""Two elastic trainings on one host at once, one of them with a numpy that the cluster does not have."""

from functools import partial

import httpx
import pytest

from tests.journey.running_stack import RunningStack
from tests.missing import leave_out
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(900)]

SCRIPT = """
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
for epoch in elastic.epochs(range(20)):
    for inputs, wanted in loader:
        optimizer.zero_grad()
        loss = ((model(inputs) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
print("last", round(sum(each.sum().item() for each in model.parameters()), 4), flush=True)
"""


def finished(api: httpx.Client, address: str) -> bool:
    return bool(api.get(address).json()["finished_at"])


def test_a_foreign_numpy_trains_elastically_beside_the_clusters(stack: RunningStack) -> None:
    folder = stack.home / "models" / "worlds"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    with stack.api() as api:
        model = {"name": "worlds", "path": "worlds", "entry_point": "train.py", "engine": "elastic"}
        answer = api.post("models/", json={**model, "framework": "PyTorch"})
        assert answer.status_code == 201, answer.text
        jobs = {}
        for name, requirements in (("own", ""), ("foreign", "numpy<2")):
            asked = {"name": name, "model": "worlds", "instance_group": "sig-elastic", "max_slots": 4}
            answer = api.post("jobs/", json={**asked, "requirements": requirements})
            assert answer.status_code == 201, answer.text
            jobs[name] = answer.json()
        assert jobs["foreign"]["requirements"].splitlines() == ["numpy<2", "torch"]
        ends = {}
        for name, job in jobs.items():
            address = f"jobs/{job['id']}/"
            wait_until(partial(finished, api, address), f"{name} ends", seconds=600)
            ends[name] = api.get(address).json()
    if ends["foreign"]["state"] == "FAILED" and "environment" in ends["foreign"]["reason"]["text"]:
        leave_out(f"numpy 1 cannot be installed here: {ends['foreign']}")
    assert {name: end["state"] for name, end in ends.items()} == dict.fromkeys(ends, "SUCCEEDED"), ends
    printed = {
        name: "".join(path.read_text() for path in stack.home.glob(f"results/*/batchworkdir/{job['id']}/**/stdout"))
        for name, job in jobs.items()
    }
    assert "numpy 1." in printed["foreign"]
    assert "numpy 2." in printed["own"]
    last = {text.partition("last ")[2].split()[0] for text in printed.values()}
    assert len(last) == 1, printed
