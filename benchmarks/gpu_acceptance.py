"""Acceptance of a machine's GPUs: what has to be seen before trainings are trusted to them, in ten minutes.

    python -m benchmarks.gpu_acceptance [--cpu] [--minutes 10] [--folder test-results/gpu]

It writes `gpu.json` and `gpu.html` into the folder, and ends with 1 if something failed. It adapts to the GPUs: with
one, two ranks share it; with none, or with `--cpu`, CPU processes stand in, and what only a GPU can show is left out.
The parts, in order: the host (`manage.py doctor`), resizes with communicators and their transport, deaths, `bitwise`, a
step against plain DistributedDataParallel, the host's waits in a step, a full GPU, the stall of a checkpoint.
"""

import argparse
import hashlib
import html
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.labs import HERE, laboratory, running, until
from benchmarks.resize import resize
from tests.runtime.lab import RUNTIME, SCRIPTS, GrowingFile, Lab
from tests.waiting import wait_until

#: Longest gap between two steps of a resize, in median steps beside a floor in milliseconds.
GAP_STEPS, GAP_FLOOR_MS = 1.5, 1000.0
#: Deaths that one job is asked to bear: a shim starts a rank again a few times only.
KILLS_PER_JOB = 6
#: Steps at each size before the next change.
SETTLE_STEPS = 5
#: Blocks of steps in turns with DDP, after those that warm both up; and the steps of a block.
DDP_BLOCKS, DDP_WARM_UP, DDP_BLOCK_STEPS = 8, 2, 25
#: Patience for them.
DDP_SECONDS = 600.0
#: Words of NCCL's log about the way between two ranks.
_TRANSPORT = re.compile(r"via (P2P/\w+|SHM\S*|NET/\w+)")


@dataclass(frozen=True)
class Shape:
    """Trainings that are run on a machine with a number of GPUs."""

    device: str
    sizes: list[int]
    #: Parameters, in words -> width of the network.
    networks: dict[str, int]
    kills: int
    #: Several ranks share the only GPU.
    shares: bool = False

    @property
    def most(self) -> int:
        return max(self.sizes)


def shape_for(gpus: int) -> Shape:
    """Return what to run. Networks have 128 inputs, two hidden layers of the same width, and ten classes."""
    if not gpus:
        return Shape("cpu", [1, 4, 2, 4, 1], {"1M": 940}, kills=2)
    networks = {"10M": 3100, "1G": 31550}
    if gpus == 1:
        return Shape("cuda", [1, 2, 1, 2, 1], {"10M": 3100, "500M": 22300}, kills=20, shares=True)
    return Shape("cuda", [1, gpus, max(1, gpus // 2), gpus, 1], networks, kills=20)


@dataclass(frozen=True)
class Check:
    name: str
    #: Whether it passed; None: it is left out here, and `words` says why.
    passed: bool | None
    words: str
    figures: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    forkserver: Path
    folder: Path
    shape: Shape

    def run(self, name: str, width: int, *options: object, **environment: str) -> AbstractContextManager[Lab]:
        """Return a context with the lab of a job."""
        words = [self.shape.device, width, int(self.shape.shares), *options]
        variables = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P,SHM,NET", **environment}
        variables |= {"CUDA_VISIBLE_DEVICES": "0"} if self.shape.shares else {}
        virtual = self.shape.device == "cpu" or self.shape.shares
        return running(
            *(self.forkserver, self.folder / name, "gpu_acceptance_rank.py", *words),
            slots=self.shape.most,
            virtual=virtual,
            environment=variables,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="let CPU processes stand in for GPUs")
    parser.add_argument("--minutes", type=float, default=10.0, help="deaths are fewer where the time is short")
    parser.add_argument("--folder", type=Path, default=Path("test-results/gpu"))
    options = parser.parse_args()
    gpus = 0 if options.cpu or not torch.cuda.is_available() else torch.cuda.device_count()
    heading = {"torch": str(torch.__version__), "gpus": gpus, "stand_ins": gpus == 0}
    options.folder.mkdir(parents=True, exist_ok=True)
    found: list[Check] = []
    for check in accepted(shape_for(gpus), options.minutes):
        found.append(check)
        write(options.folder, heading, found)  # a check that hangs takes none of the others with it
    failed = [check.name for check in found if check.passed is False]
    sys.stdout.write(f"{options.folder / 'gpu.html'}: {len(failed)} of {len(found)} failed {', '.join(failed)}\n")
    sys.exit(1 if failed else 0)


def write(folder: Path, heading: dict[str, object], found: list[Check]) -> None:
    content = heading | {"checks": [asdict(check) for check in found]}
    (folder / "gpu.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "gpu.html").write_text(page(heading, found))


def accepted(shape: Shape, minutes: float) -> Iterator[Check]:
    with laboratory() as (forkserver, folder):
        place = Place(forkserver, folder, shape)
        for name, check in checks(place, minutes):
            begun = time.monotonic()
            try:
                one = check()
            except Exception as error:  # one check's failure is a figure, and the others follow
                one = Check(name, passed=False, words=why(error))
            seconds = time.monotonic() - begun
            state = {True: "ok", False: "FAILED", None: "left out"}[one.passed]
            sys.stdout.write(f"{state:9} {seconds:5.0f} s  {one.name}: {one.words.splitlines()[0]}\n")
            sys.stdout.flush()
            yield replace(one, figures={"seconds": round(seconds, 1), **one.figures})


def why(error: BaseException) -> str:
    """Return the error in words: first the one in whose handling others came, such as that a process did not end."""
    chain = [error]
    while (before := chain[0].__cause__ or chain[0].__context__) is not None:
        chain.insert(0, before)
    return "\n".join(f"{type(each).__name__}: {str(each)[:3000]}" for each in chain)


def checks(place: Place, minutes: float) -> Iterator[tuple[str, Callable[[], Check]]]:
    yield "host", lambda: host(place.shape)
    for name, width in place.shape.networks.items():
        yield f"resizes, {name}", lambda name=name, width=width: resizes(place, name, width)
    for kind in ("in a step", "while a group is made", "while the state is handed over", "two at once"):
        yield f"deaths {kind}", lambda kind=kind: deaths(place, kind, 60.0 * minutes / 15)
    yield "bitwise", lambda: bitwise(place)
    yield "step against DDP", lambda: against_ddp(place)
    yield "host waits", lambda: host_waits(place)
    yield "full GPU", lambda: full_gpu(place)
    yield "stall of a checkpoint", lambda: checkpoint_stall(place)


# --- the checks ---


def host(shape: Shape) -> Check:
    command = [sys.executable, "manage.py", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=HERE.parent)
    findings = json.loads(done.stdout)
    missing = [f"{each['sentence']} {each['remedy']}" for each in findings if each["level"] == "missing"]
    if shape.device == "cpu":
        return Check("host", None, "CPU processes stand in for GPUs.", {"findings": findings})
    return Check("host", not missing, " ".join(missing) or "Nothing is missing.", {"findings": findings})


def resizes(place: Place, name: str, width: int) -> Check:
    """Resize through all sizes; the longest gap between two steps, and what groups and memory cost.

    The gap of CPU processes is not judged: they share the processors with whatever else runs.
    """
    with place.run(f"resizes-{name}", width) as lab:
        for size in place.shape.sizes:
            resize(lab, size)
            lab.wait_for_steps(SETTLE_STEPS)
        steps = lab.steps()
        told = records(lab)
        transports = transports_of(lab)
    pauses = changes(steps)
    groups = [one for one in told if one["kind"] == "group" and one["size"] > 1]
    worst = max(pauses, key=lambda pause: pause["gap_ms"] - GAP_STEPS * pause["step_ms"])
    figures: dict[str, object] = {
        "changes": pauses,
        "group_seconds": round(statistics.median(one["seconds"] for one in groups), 3),
        "backend": "nccl" if any(one["nccl"] for one in groups) else "gloo",
        "state": "broadcasts" if any(one["broadcasts"] for one in groups) else "sockets",
        "group_mib": round(statistics.median(one["bytes"] for one in groups) / 2**20, 1),
        "first_sum_ms": sum_ms(told, 1),
        "second_sum_ms": sum_ms(told, 2),
        "transports": transports,
        "peak_gib": round(max(one["peak_bytes"] for one in told if one["kind"] == "memory") / 2**30, 3),
    }
    is_short = worst["gap_ms"] <= GAP_STEPS * worst["step_ms"] + GAP_FLOOR_MS
    passed = (is_short or place.shape.device == "cpu") and is_whole(steps)
    words = (
        f"longest gap {worst['gap_ms']:.0f} ms at {worst['from']} -> {worst['to']} (a step: {worst['step_ms']:.0f} ms)"
        f", groups by {figures['backend']} in {figures['group_seconds']} s{' via ' * bool(transports)}"
        f"{' and '.join(transports)}, "
        f"{'no' if is_whole(steps) else 'SOME'} steps lost"
    )
    return Check(f"resizes, {name}", passed, words, figures)


def sum_ms(told: list[dict[str, Any]], number: int) -> float:
    """Return the median wait for the first or second sum of a group."""
    return round(
        1000 * statistics.median(one["seconds"] for one in told if (one["kind"], one.get("number")) == ("sum", number)),
        2,
    )


def changes(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each change of size, the gap between the steps around it and the first and the median step after."""
    blocks = [list(block) for _, block in itertools.groupby(steps, key=lambda step: step["world_size"])]
    found = []
    for before, after in itertools.pairwise(blocks):
        moments = [step["at"] for step in after]
        lengths = [1000 * (late - early) for early, late in itertools.pairwise(moments)] or [0.0]
        found.append(
            {
                "from": before[-1]["world_size"],
                "to": after[0]["world_size"],
                "gap_ms": 1000 * (after[0]["at"] - before[-1]["at"]),
                "longest_step_ms": max(lengths),
                "step_ms": statistics.median(lengths),
            }
        )
    return found


def deaths(place: Place, kind: str, seconds: float) -> Check:
    """Kill ranks until there were enough deaths, or the time is over. All others have to survive each of them."""
    shape, deadline = place.shape, time.monotonic() + seconds
    [width, *_] = shape.networks.values()
    recoveries: list[float] = []
    ended: list[str] = []
    told: list[dict[str, Any]] = []
    whole = True
    for number in itertools.count():
        if len(recoveries) >= shape.kills or (recoveries and time.monotonic() > deadline):
            break
        with place.run(f"deaths-{kind.replace(' ', '-')}-{number}", width) as lab:
            for _ in range(min(KILLS_PER_JOB, shape.kills - len(recoveries))):
                took, unexpected = one_death(lab, kind, shape.most)
                recoveries.append(took)
                ended += unexpected
                if time.monotonic() > deadline:
                    break
            whole = whole and is_whole(lab.steps())
            told += records(lab)
    figures: dict[str, object] = {
        "recoveries_ms": [round(took, 1) for took in recoveries],
        "survivors_ended": ended,
        "aborts_s": [round(one["seconds"], 3) for one in told if one["kind"] == "abort"],
        "leaked_connects": max((one["leaked"] for one in told if one["kind"] == "memory"), default=0),
    }
    words = (
        f"{len(recoveries)} deaths, median recovery {statistics.median(recoveries):.0f} ms, longest "
        f"{max(recoveries):.0f} ms; {len(ended)} survivors ended, {'no' if whole else 'SOME'} steps lost"
    )
    return Check(f"deaths {kind}", not ended and whole, words, figures)


def one_death(lab: Lab, kind: str, most: int) -> tuple[float, list[str]]:
    """Kill; return the milliseconds to the next step, and the ranks that ended beside."""
    joins = kind in {"while a group is made", "while the state is handed over"}
    lab.size(most - 1 if joins else most)
    lab.wait_for_size(most - 1 if joins else most)
    lab.wait_for_steps(SETTLE_STEPS)
    before = lab.member_ids()
    if joins:
        lab.size(most)
        [victims] = [until(lambda: joiners(lab, kind, before), 1, lab.story)]
    else:
        victims = before[-1:] if kind == "in a step" else before[-min(2, len(before) - 1) :]
    exits, killed_at = set(lab.exits()), time.time()
    for victim in victims:
        lab.kill(victim)
    [next_step, *_] = until(lambda: [one for one in lab.steps() if one["at"] > killed_at], 2, lab.story)
    wait_until(lambda: set(victims) <= set(lab.exits()), lab.story)
    return 1000 * (next_step["at"] - killed_at), sorted(set(lab.exits()) - exits - set(victims))


def joiners(lab: Lab, kind: str, before: list[str]) -> list[str]:
    """Return the rank that joins: once its group is planned, or once it has got a place in it."""
    journal = lab.journal("generation_planned" if kind == "while a group is made" else "generation_active")
    members = [one["member_id"] for entry in journal[-1:] for one in entry["members"]]
    alive = set(lab.started()) - set(lab.exits())
    return [member for member in members if member not in before and member in alive][:1]


def bitwise(place: Place) -> Check:
    """Train the same with several sizes; the weights have to have the same bits."""
    shape = place.shape
    digests: dict[int, str] = {}
    for size in sorted({1, min(3, shape.most), shape.most}):
        words = ["--epochs", 1, "--samples", 512, "--no-evaluation", "--device", shape.device]
        launch: dict[str, Any] = {
            "exactness": "bitwise",
            "virtual_ranks": 8,
            "code_folder": str(SCRIPTS),
            "min_slots": size,
        }
        variables = {"CUDA_VISIBLE_DEVICES": "0"} if shape.shares else {}
        virtual = shape.device == "cpu" or shape.shares
        folder = place.folder / f"bitwise-{size}"
        job = running(
            *(place.forkserver, folder, "mlp.py", *words),
            slots=shape.most,  # their parts of a step are as many as the ranks that there may be
            virtual=virtual,
            environment=variables,
            **launch,
        )
        with job as lab:
            lab.size(size)
            lab.wait_for_the_end()
            weights = torch.load(
                lab.folder / "model/train/model_epoch_final.pth", map_location="cpu", weights_only=True
            )
        content = b"".join(tensor.contiguous().numpy().tobytes() for tensor in weights.values())
        digests[size] = hashlib.sha256(content).hexdigest()[:16]
    sizes = ", ".join(map(str, digests))
    same = len(set(digests.values())) == 1
    words_ = f"the same bits on {sizes} ranks" if same else f"other bits: {digests}"
    return Check("bitwise", same, words_, {"digests": digests})


def against_ddp(place: Place) -> Check:
    """Make steps in turns with plain DDP in the same processes; the ratio is not judged."""
    shape = place.shape
    [width, *_] = shape.networks.values()
    ratios: dict[str, dict[str, float]] = {}
    for size in sorted({1, 1 if shape.shares else shape.most}):
        words = (width, DDP_BLOCKS + DDP_WARM_UP, DDP_BLOCK_STEPS, shape.device)
        virtual, limits = shape.device == "cpu" or shape.shares, {"min_slots": size, "max_slots": size}
        variables = {"CUDA_VISIBLE_DEVICES": "0"} if shape.shares else {}
        how: dict[str, Any] = {"slots": size, "virtual": virtual, "environment": variables, **limits}
        with running(place.forkserver, place.folder / f"ddp-{size}", "overhead_ranks.py", *words, **how) as lab:
            file = GrowingFile(lab.folder / "blocks.jsonl")
            lab.size(size)
            blocks = until(file.lines, DDP_BLOCKS + DDP_WARM_UP, lab.story, DDP_SECONDS)[DDP_WARM_UP:]
        ratio = statistics.median(min(block["ours"]) / min(block["ddp"]) for block in blocks)
        milliseconds = 1000 * statistics.median(min(block["ours"]) for block in blocks)
        ratios[f"{size} ranks" if size > 1 else "1 rank"] = {"ratio": round(ratio, 3), "ms": round(milliseconds, 2)}
    told = ", ".join(f"{each['ratio']:.2f} x on {name} ({each['ms']:.1f} ms)" for name, each in ratios.items())
    return Check("step against DDP", passed=True, words=told, figures={**ratios})


def host_waits(place: Place) -> Check:
    """Count what has the host wait for the device in a step: the sums that it reads, and nothing else."""
    file = place.folder / "host-waits.json"
    command = [sys.executable, str(SCRIPTS / "host_waits.py"), str(file), place.shape.device]
    environment = os.environ | {"PYTHONPATH": str(RUNTIME)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
    if done.returncode:
        return Check("host waits", passed=False, words=done.stderr[-2000:])
    settled = json.loads(file.read_text())[3:]
    most = {kind: max(one.get(kind, 0) for one in settled) for kind in ("read", "made", "waited")}
    words = f"at most {most['read']} reads, {most['made']} copies of numbers and {most['waited']} other waits in a step"
    return Check("host waits", most["read"] <= 1 and not most["made"] and most["waited"] <= 1, words, {"most": most})


def full_gpu(place: Place) -> Check:
    """Grow while the first rank's GPU is 95 % full: it trains on, and the journal says why it did not grow."""
    if place.shape.device == "cpu":
        return Check("full GPU", None, "Only a GPU's memory can be full.")
    [width, *_] = place.shape.networks.values()
    with place.run("full", width, 0.95) as lab:
        resize(lab, 1)
        lab.wait_for_steps(SETTLE_STEPS)
        lab.size(place.shape.most)
        lab.wait_for_steps(20 * SETTLE_STEPS)
        size, errors = lab.active()["world_size"], [str(one) for one in lab.journal("generation_abandoned")]
        whole = is_whole(lab.steps())
    words = f"it trains on {size} ranks; {len(errors)} plans were abandoned{': ' + errors[-1] if errors else ''}"
    return Check("full GPU", whole, words, {"size": size, "abandoned": errors})


def checkpoint_stall(place: Place) -> Check:
    """Write checkpoints every second; the longest step beside them, in median steps."""
    name, width = list(place.shape.networks.items())[-1]
    with place.run("checkpoints", width, ACCEPTANCE_CHECKPOINT_SECONDS="1") as lab:
        resize(lab, 1)
        wait_until(lambda: len(lab.journal("checkpoint")) >= 3, lab.story)
        moments = [step["at"] for step in lab.steps()]
    lengths = [1000 * (late - early) for early, late in itertools.pairwise(moments)]
    median, longest = statistics.median(lengths), max(lengths[len(lengths) // 4 :])
    words = f"{name}: the longest step is {longest:.0f} ms, the median {median:.0f} ms"
    return Check(
        "stall of a checkpoint", passed=True, words=words, figures={"longest_ms": longest, "median_ms": median}
    )


# --- files of a job ---


def records(lab: Lab) -> list[dict[str, Any]]:
    lines = [line for path in lab.folder.glob("log/*/acceptance.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def transports_of(lab: Lab) -> list[str]:
    texts = [path.read_text(errors="replace") for path in lab.folder.glob("log/*/std*")]
    return sorted({found for text in texts for found in _TRANSPORT.findall(text)})


def is_whole(steps: list[dict[str, Any]]) -> bool:
    numbers = [step["step"] for step in steps]
    return numbers == list(range(1, len(numbers) + 1))


def page(heading: dict[str, object], found: list[Check]) -> str:
    """Return the page: a row for each check, with its figures below."""
    states = {True: "passed", False: "FAILED", None: "left out"}
    rows = [
        f"<tr><th>{html.escape(check.name)}</th><td>{states[check.passed]}</td><td>{html.escape(check.words)}"
        f"<details><summary>figures</summary><pre>{html.escape(json.dumps(check.figures, indent=1))}</pre></details>"
        "</td></tr>"
        for check in found
    ]
    stand_ins = "<p>CPU processes stood in for GPUs: this says nothing of GPUs.</p>" if heading["stand_ins"] else ""
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>GPU acceptance</title>"
        "<style>body{font:16px sans-serif;margin:2em}th,td{text-align:left;vertical-align:top;padding:.3em 1em}</style>"
        f"<h1>GPU acceptance</h1><p>torch {heading['torch']}, {heading['gpus']} GPUs</p>{stand_ins}"
        f"<table>{''.join(rows)}</table></html>\n"
    )


if __name__ == "__main__":
    main()
