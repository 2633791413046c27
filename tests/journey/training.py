"""A job of a test's own model, driven over REST, and what its ranks wrote."""

import itertools
import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from tests.journey.running_stack import RunningStack
from tests.waiting import wait_until

__all__ = ["MODELS", "RECORDER", "Training", "cancel_all", "register_model", "register_recorder"]

MODELS = Path(__file__).parent / "models"
RECORDER = MODELS / "recorder"


def register_recorder(stack: RunningStack, api: httpx.Client) -> None:
    register_model(stack.home, api, "recorder")


def register_model(home: Path, api: httpx.Client, name: str, engine: str = "elastic") -> None:
    shutil.copytree(MODELS / name, home / "models" / name)
    model = {"name": name, "framework": "PyTorch", "path": str(home / "models" / name)}
    answer = api.post("models/", json={**model, "entry_point": "train.py", "engine": engine})
    assert answer.status_code == 201, answer.text


def cancel_all(api: httpx.Client) -> None:
    """Whatever still trains, for it would take every processor from what comes next."""

    def active() -> list[int]:
        return [job["id"] for job in api.get("jobs/", params={"state": "active"}).raise_for_status().json()["results"]]

    for job in active():
        api.post(f"jobs/{job}/cancel/").raise_for_status()
    wait_until(lambda: not active(), lambda: f"all trainings have ended: {active()} have not")


class Training:
    def __init__(
        self,
        api: httpx.Client,
        home: Path,
        name: str,
        *,
        model: str = "recorder",
        dataset: str = "digits",
        min_slots: int = 1,
        max_slots: int = 8,
        exactness: str = "sum",
        initial_weights: int | dict[str, int] | None = None,
        **parameters: Any,
    ) -> None:
        self.api, self.home = api, home
        asked = {"name": name, "model": model, "dataset": dataset, "instance_group": "sig-elastic"}
        options: dict[str, Any] = {"exactness": exactness, "parameters": parameters}
        if initial_weights is not None:
            options["initial_weights"] = initial_weights
        answer = api.post("jobs/", json={**asked, **options, "min_slots": min_slots, "max_slots": max_slots})
        assert answer.status_code == 201, answer.text
        self.id = int(answer.json()["id"])
        self.folder = home / "results" / self.now["owner"] / "batchworkdir" / str(self.id)

    @property
    def now(self) -> dict[str, Any]:
        return dict(self.api.get(f"jobs/{self.id}/").raise_for_status().json())

    @property
    def sizes(self) -> list[int]:
        series = self.api.get(f"jobs/{self.id}/allocation/").json()
        return [size for size, _ in itertools.groupby(point["slots"] for point in series)]

    def wait_for_size(self, size: int) -> None:
        wait_until(lambda: self.now["slots"] == size, lambda: f"{size} GPUs; it is {self.now}")

    def change(self, **values: Any) -> None:
        self.api.patch(f"jobs/{self.id}/", json=values).raise_for_status()

    def wait_until_over(self) -> None:
        wait_until(lambda: self.now["state"] in ("SUCCEEDED", "FAILED"), lambda: f"the end; it is {self.now}")

    def wait_for_the_end(self) -> None:
        self.wait_until_over()
        assert self.now["state"] == "SUCCEEDED", self.now

    # --- files of its ranks: true even without the control plane ---

    def lines(self, file: str, attempt: int | None = None) -> list[dict[str, Any]]:
        """Records of the present attempt, or of the one that is named."""
        folder = self.folder / ("current" if attempt is None else f"attempt-{attempt}")
        if not (folder / file).exists():
            return []
        return [json.loads(line) for line in (folder / file).read_text().split("\n")[:-1]]

    @property
    def steps(self) -> int:
        """The newest step that was completed."""
        return max((record["step"] for record in self.lines("metrics.jsonl")), default=0)

    @property
    def members(self) -> list[str]:
        """The ranks of the generation that trains, in their order."""
        active = [line["data"] for line in self.lines("plans.jsonl") if line["kind"] == "generation_active"]
        return [member["member_id"] for member in active[-1]["members"]] if active else []

    def samples_by_step(self) -> dict[tuple[int, int], set[int]]:
        """(epoch, step) -> samples that any rank of any attempt read for it, also when it was made again."""
        read: dict[tuple[int, int], set[int]] = defaultdict(set)
        for file in self.folder.glob("attempt-*/log/*/samples"):
            for line in file.read_text().split("\n")[:-1]:
                epoch, index, step = map(int, line.split())
                read[epoch, step].add(index)
        return read
