"""Environments of trainings: time to the first step, pause of a resize, memory and disk in each.

    python -m benchmarks.environments [--long] [--json FILE]

The stack runs as `manage.py up` starts it, in a home of its own, with a cache of uv that is empty at first. The same
elastic script trains with the cluster's own packages, with one package more in a layer over them, in a whole
environment with another numpy, torch included, and, as root where podman and mmdebstrap are, in a container image.
The first training of each has to wait for its installation (cold); those after it find it there (warm). The whole
environment's is timed again with a filled cache, under other requirements. Times to the first step are from the
submission by REST to the step's own record; pauses are those that the coordinator notes. All ratios are to the
cluster's own packages in the same run. The image is there before: pulling depends on the registry.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.results import Result, arguments, result, show
from tests.container_images import can_make_images, made
from tests.journey.running_stack import RunningStack, free_port
from tests.waiting import wait_until
from workers.executor.environments.disk import size_on_disk

#: World -> its requirements.
WORLDS: Final = {"cluster's own": "# none", "layer": "humanize==4.12.0", "whole": "numpy<2\ntorch"}
SECOND_WHOLE: Final = "numpy<2\ntorch\nhumanize==4.12.0"
_GROUP: Final = "sig-elastic"
SCRIPT: Final = """
import time
import torch
import tidepool.torch as elastic

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
loader = torch.utils.data.DataLoader(data, batch_size=16)
model, optimizer, loader = elastic.prepare(model, optimizer, loader)
for epoch in elastic.epochs(range({epochs})):
    for inputs, wanted in loader:
        time.sleep({pause})
        optimizer.zero_grad()
        ((model(inputs) - wanted) ** 2).mean().backward()
        optimizer.step()
"""


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    runs, resizes = (10, 40) if options.long else (5, 12)
    with tempfile.TemporaryDirectory(prefix="tidepool-") as home:
        stack = RunningStack(Path(home), free_port())
        stack.start()
        try:
            worlds = WORLDS | ({"image": f"--image {made(Path(home))}"} if can_make_images() else {})
            with stack.api() as api:
                show([*_figures(stack, api, worlds, runs, resizes)], options.json)
        finally:
            stack.stop()


def _figures(
    stack: RunningStack, api: httpx.Client, worlds: Mapping[str, str], runs: int, resizes: int
) -> Iterator[Result]:
    _register(stack, api, "short", epochs=1, pause=0)
    _register(stack, api, "long", epochs=100_000, pause=0.02)
    _first_step(stack, api, "short", "# none")  # the stack's own first start
    first = {world: [_first_step(stack, api, "short", lines)] for world, lines in worlds.items()}
    place = next(stack.home.glob("run/.environments"))
    before = size_on_disk(place)
    cached = [_first_step(stack, api, "short", SECOND_WHOLE)]
    grown = (size_on_disk(place) - before) / 2**20
    warm: dict[str, list[float]] = {world: [] for world in worlds}
    for _ in range(runs):
        for world, lines in worlds.items():
            warm[world].append(_first_step(stack, api, "short", lines))
    own, *others = worlds
    yield result(f"{own}, submit to first step", "s", warm[own])
    for world in others:
        yield result(f"{world}, submit to first step, cold", "s", first[world])
        yield result(f"{world}, submit to first step, warm", "s", warm[world], own, warm[own])
    yield result("whole, submit to first step, cache of uv filled", "s", cached)
    yield result("second whole environment with the same torch", "MiB", [grown])
    pauses = {world: _pauses(stack, api, lines, resizes) for world, lines in worlds.items()}
    for world in worlds:
        yield result(f"{world}, pause of a resize", "ms", pauses[world], *((own, pauses[own]) if world != own else ()))
    prepared = api.get("prepared-environments/").raise_for_status().json()["results"]
    for one in prepared:
        for host in one["hosts"]:
            if host["memory_bytes"]:
                yield result(f"forkserver of {one['lines'][0]}", "MiB", [host["memory_bytes"] / 2**20])


def _register(stack: RunningStack, api: httpx.Client, name: str, *, epochs: int, pause: float) -> None:
    (folder := stack.home / "models" / name).mkdir()
    (folder / "train.py").write_text(SCRIPT.format(epochs=epochs, pause=pause))
    model = {"name": name, "path": name, "entry_point": "train.py", "engine": "elastic", "framework": "PyTorch"}
    api.post("models/", json=model).raise_for_status()


def _submitted(api: httpx.Client, model: str, requirements: str) -> int:
    asked = {"name": model, "model": model, "instance_group": _GROUP, "max_slots": 1, "requirements": requirements}
    return int(api.post("jobs/", json=asked).raise_for_status().json()["id"])


def _first_step(stack: RunningStack, api: httpx.Client, model: str, requirements: str) -> float:
    """Return the seconds from a submission to the first step."""
    sent = time.time()
    job = _submitted(api, model, requirements)
    wait_until(partial(_is_over, api, job), f"the end of training {job}", seconds=1800)
    end = api.get(f"jobs/{job}/").json()
    if end["state"] != "SUCCEEDED":
        sys.exit(f"training {job} has ended as {end['state']}: {end['reason']['text']}")
    [metrics] = stack.home.glob(f"results/*/batchworkdir/{job}/attempt-1/metrics.jsonl")
    return float(json.loads(metrics.read_text().splitlines()[0])["at"] - sent)


def _is_over(api: httpx.Client, job: int) -> bool:
    return bool(api.get(f"jobs/{job}/").json()["finished_at"])


def _pauses(stack: RunningStack, api: httpx.Client, requirements: str, resizes: int) -> list[float]:
    """Return the pauses in ms of a training that goes from one GPU to two and back."""
    job = _submitted(api, "long", requirements)
    address, sizes = f"jobs/{job}/", [2, 1] * (resizes // 2)
    wait_until(partial(_has_size, stack, job, 1), "it trains", seconds=600)
    for size in sizes:
        api.patch(address, json={"max_slots": size}).raise_for_status()
        wait_until(partial(_has_size, stack, job, size), f"it trains on {size}", seconds=120)
    found = [float(entry["pause_ms"]) for entry in _generations(stack, job)[1:]]
    api.post(f"{address}cancel/").raise_for_status()
    wait_until(partial(_is_over, api, job), "it ends", seconds=60)
    return found


def _has_size(stack: RunningStack, job: int, size: int) -> bool:
    active = _generations(stack, job)
    return bool(active) and active[-1]["world_size"] == size


def _generations(stack: RunningStack, job: int) -> list[dict[str, Any]]:
    plans = [*stack.home.glob(f"results/*/batchworkdir/{job}/attempt-1/plans.jsonl")]
    entries = [json.loads(line) for path in plans for line in path.read_text().splitlines()]
    return [entry["data"] for entry in entries if entry["kind"] == "generation_active"]


if __name__ == "__main__":
    main()
