"""Scripts of Hugging Face's Trainer and of Lightning: held back and resumed, each does what its page has promised.

Run where `lightning`, `transformers` and `accelerate` are installed; Tidepool itself needs none of them.
"""

import importlib.util
import re
import shutil
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

#: Library, whether it saves in the folder of its code, whether it saves when it is told to end; and whether the page
#: says before it is resumed that it continues. It does in the folder of its code, too, which the page says stays.
CASES = [
    ("transformers", False, False, False),
    ("transformers", False, True, True),
    # Not without saving when told: SIGTERM may come while it saves.
    ("transformers", True, True, False),
    ("lightning", False, False, True),
    ("lightning", True, False, False),
]
STEPS = 600


def start(stack: RunningStack, api: httpx.Client, library: str, *, beside: bool, told: bool) -> int:
    parameters: dict[str, Any] = {"steps": STEPS}
    if beside:
        parameters["folder"] = "saved"
    if told:
        parameters["saves-when-told"] = True
    # The hosts' processes import the packages from the same folder.
    found = importlib.util.find_spec(library)
    assert found is not None
    assert found.origin is not None
    asked = {"name": library, "model": library, "instance_group": "sig-elastic", "parameters": parameters}
    environment = {"PYTHONPATH": str(Path(found.origin).parents[1])}
    answer = api.post("jobs/", json={**asked, "max_slots": 1, "environment": environment})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def begun_at(folder: Path, attempt: int) -> str:
    """Return where the script printed that it begins: None, or a step."""
    [log] = (folder / f"attempt-{attempt}" / "log").glob("*/stdout")
    found = re.search("^from (.*)$", log.read_text(), re.M)
    assert found is not None
    return found[1]


def test_each_continues_as_its_page_says(stack: RunningStack) -> None:
    with stack.api() as api:
        for library in ("transformers", "lightning"):
            shutil.copytree(MODELS / library, stack.home / "models" / library)
            model = {"name": library, "path": library, "entry_point": "train.py", "engine": "fixed"}
            assert api.post("models/", json={**model, "framework": "PyTorch"}).status_code == 201
        jobs = [start(stack, api, library, beside=beside, told=told) for library, beside, told, _ in CASES]
        folders = [stack.home / "results/admin/batchworkdir" / str(job) for job in jobs]

        def now(job: int) -> dict[str, Any]:
            return dict(api.get(f"jobs/{job}/").raise_for_status().json())

        for job, folder, (library, beside, *_) in zip(jobs, folders, CASES, strict=True):
            saved = folder / (f"_submitted_code/{library}/saved" if beside else "attempt-1/checkpoint")
            wait_until(lambda saved=saved: saved.is_dir() and len(list(saved.iterdir())) >= 2, f"job {job} has saved")
            assert api.post(f"jobs/{job}/suspend/").status_code == 200
        for job, (*_, continues) in zip(jobs, CASES, strict=True):
            wait_until(lambda job=job: now(job)["state"] == "SUSPENDED", f"job {job} is suspended")
            assert now(job)["reason"]["params"]["resumable"] is continues
            assert api.post(f"jobs/{job}/resume/").status_code == 200
        for job, folder, (_, beside, _, continues) in zip(jobs, folders, CASES, strict=True):
            wait_until(lambda job=job: now(job)["finished_at"], f"job {job} ends")
            ended = now(job)
            assert ended["state"] == "SUCCEEDED", ended["error"]
            assert (ended["attempt"], ended["reason"]["params"]["message"]) == (2, "complete")
            assert begun_at(folder, 1) == "None"
            assert (begun_at(folder, 2) != "None") is (continues or beside)
