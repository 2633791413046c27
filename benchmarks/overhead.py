"""Cost of a step of an elastic session at a fixed size, against plain DistributedDataParallel.

    python -m benchmarks.overhead [--long] [--json FILE]

Real ranks, with their shim and coordinator, make blocks of steps in turns with DDP in the same processes
(`overhead_ranks.py`). Of each block the fastest step counts: on a machine with other work the median of all steps
measures that work. The processor's time of rank 0 is shown too, which other work changes less. The ratio is the median
of the ratios of blocks that follow each other. More ranks than cores are shown but mean little.

A loop of its own under `prepare`, on one rank, takes turns with the same loop without it, in a process beside it
(`own_loop.py`), because `prepare` refuses a second model that the same script trains.
"""

import json
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.labs import HERE, laboratory, running, until
from benchmarks.results import Result, arguments, result, show
from tests.runtime.lab import GrowingFile

#: Name -> width of the network; its parameters with 256 inputs and 10 classes.
NETWORKS = {"1M parameters": 850, "25M parameters": 4860}
SIZES = (1, 2, 4)
WARM_UP_BLOCKS = 2
BLOCK_STEPS = {"1M parameters": 25, "25M parameters": 5}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    blocks = 60 if options.long else 20
    found: list[Result] = []
    with laboratory() as (forkserver, folder):
        for network in NETWORKS if options.long else list(NETWORKS)[:1]:
            for size in SIZES:
                place = folder / f"{NETWORKS[network]}-{size}"
                name = f"{network}, {size} {'rank' if size == 1 else 'ranks'}"
                found += figures(name, alternated(forkserver, place, network, size, blocks))
        for network in NETWORKS if options.long else list(NETWORKS)[:1]:
            found += own_loop(forkserver, folder / f"own-{NETWORKS[network]}", network, blocks)
    show(found, options.json)


def own_loop(forkserver: Path, folder: Path, network: str, blocks: int) -> list[Result]:
    folder.mkdir()
    (folder / "turn").write_text("plain")
    count = blocks + WARM_UP_BLOCKS
    words = [str(word) for word in (folder, NETWORKS[network], count, BLOCK_STEPS[network])]
    plain = subprocess.Popen([sys.executable, str(HERE / "own_loop.py"), "plain", *words])
    try:
        limits = {"min_slots": 1, "max_slots": 1}
        with running(forkserver, folder / "job", "own_loop.py", "prepared", *words, slots=1, **limits) as lab:
            lab.size(1)
            file = GrowingFile(folder / "prepared.jsonl")
            prepared = until(file.lines, count, lambda: f"{count} blocks: {lab.story()}", 1800)
    finally:
        plain.kill()
        plain.wait()
    beside = [json.loads(line) for line in (folder / "plain.jsonl").read_text().splitlines()]
    pairs = list(zip(prepared, beside, strict=False))[WARM_UP_BLOCKS:]
    return [
        *_compared(
            f"step, {network}, prepared loop", [(min(a["seconds"]), min(b["seconds"])) for a, b in pairs], "plain loop"
        ),
        *_compared(f"CPU, {network}, prepared loop", [(a["cpu"], b["cpu"]) for a, b in pairs], "plain loop"),
    ]


def figures(name: str, blocks: list[dict[str, Any]]) -> list[Result]:
    return [
        *_compared(f"step, {name}", [(min(block["ours"]), min(block["ddp"])) for block in blocks]),
        *_compared(f"CPU, {name}", [(block["ours_cpu"][0], block["ddp_cpu"][0]) for block in blocks]),
    ]


def _compared(name: str, pairs: list[tuple[float, float]], competitor: str = "plain DDP") -> list[Result]:
    ratio = statistics.median(ours / ddp for ours, ddp in pairs)
    ours = result(name, "ms", [1000 * one for one, _ in pairs])
    return [
        replace(ours, competitor=competitor, ratio=ratio),
        result(f"{name}, {competitor}", "ms", [1000 * other for _, other in pairs]),
    ]


def alternated(forkserver: Path, folder: Path, network: str, size: int, blocks: int) -> list[dict[str, Any]]:
    count = blocks + WARM_UP_BLOCKS
    words = (NETWORKS[network], count, BLOCK_STEPS[network])
    limits = {"min_slots": size, "max_slots": size}
    with running(forkserver, folder, "overhead_ranks.py", *words, slots=size, **limits) as lab:
        file = GrowingFile(lab.folder / "blocks.jsonl")
        lab.size(size)
        found = until(file.lines, count, lambda: f"{count} blocks: {lab.story()}", 1800)
    print(f"{network}, {size} ranks", file=sys.stderr)
    return found[WARM_UP_BLOCKS:]


if __name__ == "__main__":
    main()
