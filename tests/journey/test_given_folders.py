"""An elastic training in a folder that an administrator keeps on the hosts: resized, and told of a change there."""

import sys
import time
import venv
from functools import partial
from pathlib import Path

import httpx
import pytest
from tidepool.env import site_of

from tests.journey.running_stack import RunningStack
from tests.journey.test_images import SCRIPT, has
from tests.waiting import wait_until
from tests.workers.executor.environments.test_software import add

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(600)]


def sentences(api: httpx.Client, address: str) -> str:
    return "\n".join(event["reason"]["text"] for event in api.get(f"{address}events/").json()["results"])


def test_a_training_in_a_folder_is_resized_live_and_told_of_changes(stack: RunningStack, tmp_path: Path) -> None:
    environment = tmp_path / "vision"
    venv.create(environment, with_pip=False, symlinks=True)
    (site_of(environment) / "_packages.pth").write_text(str(site_of(Path(sys.prefix))))
    folder = stack.home / "models" / "folders"
    folder.mkdir()
    (folder / "train.py").write_text(f"import sys\n{SCRIPT}\nprint('ran in', sys.prefix)\n")
    with stack.api() as api:
        assert api.post("environments/", json={"name": "vision", "folder": str(environment)}).status_code == 201
        model = {"name": "folders", "path": "folders", "entry_point": "train.py", "engine": "elastic"}
        assert api.post("models/", json={**model, "framework": "PyTorch"}).status_code == 201
        asked = {"name": "given", "model": "folders", "instance_group": "sig-elastic", "max_slots": 2}
        began = time.monotonic()
        answer = api.post("jobs/", json={**asked, "named_environment": "vision"})
        assert answer.status_code == 201, answer.text
        address = f"jobs/{answer.json()['id']}/"
        wait_until(partial(has, api, address, 2), "it trains on 2 GPUs", seconds=300)
        print(f"trains after {time.monotonic() - began:.1f} s")
        for slots in (1, 3):
            assert api.patch(address, json={"max_slots": slots}).status_code == 200
            wait_until(partial(has, api, address, slots), f"it trains on {slots} GPUs", seconds=60)
        add(site_of(environment), "more", "2.0")
        wait_until(lambda: "(more none -> 2.0)" in sentences(api, address), "the change is an event", seconds=90)
        wait_until(lambda: api.get(address).json()["finished_at"], "it ends", seconds=300)
        assert api.get(address).json()["state"] == "SUCCEEDED", api.get(address).json()
        assert "more" not in api.get(f"{address}provenance/").json()["packages"]
    printed = "".join(path.read_text() for path in stack.home.glob("results/*/batchworkdir/*/**/stdout"))
    assert f"ran in {environment}" in printed
