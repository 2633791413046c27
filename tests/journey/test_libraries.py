"""Scripts of Hugging Face's Trainer and of Lightning: held back and resumed, each does what its page has promised.

Run where `lightning`, `transformers` and `accelerate` are installed; Tidepool itself needs none of them.
"""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journey.running_stack import RunningStack
from tests.journey.training import MODELS
from tests.waiting import wait_until

_MISSING = [name for name in ("lightning", "transformers", "accelerate") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.journey,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
]


@dataclass(frozen=True)
class Case:
    library: str
    #: Whether it saves in its working folder, when it is told to end, and forgets that there are checkpoints.
    beside: bool = False
    told: bool = False
    forgets: bool = False
    slots: int = 1


CASES = [
    Case("transformers"),
    Case("transformers", told=True),
    Case("transformers", beside=True, forgets=True),
    Case("transformers", forgets=True, slots=2),
    Case("lightning"),
    Case("lightning", beside=True, forgets=True),
    Case("lightning", forgets=True, slots=2),
]
STEPS = 600


def start(stack: RunningStack, api: httpx.Client, case: Case) -> int:
    parameters: dict[str, Any] = {"steps": STEPS, **({"folder": "saved"} if case.beside else {})}
    parameters |= {"forgets": True} if case.forgets else {}
    parameters |= {"saves-when-told": True} if case.told else {}
    # The hosts' processes import the packages from the same folder.
    found = importlib.util.find_spec(case.library)
    assert found is not None
    assert found.origin is not None
    asked = {"name": case.library, "model": case.library, "instance_group": "sig-elastic", "parameters": parameters}
    environment = {"PYTHONPATH": str(Path(found.origin).parents[1])}
    answer = api.post("jobs/", json={**asked, "max_slots": case.slots, "environment": environment})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def printed(folder: Path, attempt: int, stream: str) -> str:
    logs = sorted((folder / f"attempt-{attempt}" / "log").glob(f"*/{stream}"))
    return "".join(log.read_text() for log in logs)


def test_each_continues_as_its_page_says(stack: RunningStack) -> None:
    with stack.api() as api:
        for library in ("transformers", "lightning"):
            shutil.copytree(MODELS / library, stack.home / "models" / library)
            model = {"name": library, "path": library, "entry_point": "train.py", "engine": "fixed"}
            assert api.post("models/", json={**model, "framework": "PyTorch"}).status_code == 201
        for case in CASES:
            watch(stack, api, case)


def watch(stack: RunningStack, api: httpx.Client, case: Case) -> None:
    job = start(stack, api, case)
    folder = stack.home / "results/admin/batchworkdir" / str(job)

    def now() -> dict[str, Any]:
        return dict(api.get(f"jobs/{job}/").raise_for_status().json())

    saved = folder / (f"_submitted_code/{case.library}/saved" if case.beside else "attempt-1/checkpoint")
    wait_until(lambda: saved.is_dir() and len(list(saved.iterdir())) >= 2, f"{case} has saved")
    assert api.post(f"jobs/{job}/suspend/").status_code == 200
    wait_until(lambda: now()["state"] == "SUSPENDED", f"{case} is suspended")
    told = now()["reason"]
    assert (told["params"]["library"], told["params"]["library_step"] >= 10) == (case.library, True), told
    assert api.post(f"jobs/{job}/resume/").status_code == 200
    wait_until(lambda: now()["attempt"] == 2 and now()["step"] > told["params"]["library_step"], f"{case} goes on")
    wait_until(lambda: now()["finished_at"], f"{case} ends")
    ended = now()
    assert ended["state"] == "SUCCEEDED", ended["error"]
    assert (ended["attempt"], ended["reason"]["params"]["message"]) == (2, "complete")
    assert (ended["step"], ended["progress"]) == (STEPS, 1.0)
    assert ended["final_metrics"]["loss"] is not None
    assert "from None" in printed(folder, 1, "stdout")
    assert ("from None" in printed(folder, 2, "stdout")) is case.forgets
    said = f"the training continues after step {told['params']['library_step']}, from"
    assert (said in printed(folder, 2, "stderr")) is case.forgets
