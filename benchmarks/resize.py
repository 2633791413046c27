"""Pause of a training that is resized, against stopping it and starting it again from a checkpoint.

    python -m benchmarks.resize [--long] [--only 1M|25M|random] [--json FILE]

Networks of 1 and 25 million parameters with Adam are resized 1 -> 2 -> 4 -> 2 -> 1; the small one live
also to 8 and back. The pause of a change is the gap between the last step at the old size and the first at the new one,
less a median step at the new size: what the training lost, wherever it was lost. Ratios take 5 ms where it is less:
such a pause is not told from a step's noise.

Three ways to do it, taken in turns, round after round:

live       Tidepool, a native script on this machine's virtual GPUs
torchrun   `--nnodes=1:4`, an agent for each rank, a checkpoint every 5 steps. Agents wait 1 s for others once there are
           enough (the default of 30 s would add up to that to each change that does not reach the maximum), and without
           torch's shared store, with which growing fails (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)
restart    as AdaptDL does it: SIGTERM, checkpoint, exit, new processes, load

Then a small training is resized at random, and its steps and samples are counted: by `--only random` alone, since that
needs no quiet machine.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from benchmarks.labs import laboratory, median_step, plain_ddp, running, steps_of, torchrun
from benchmarks.results import Result, arguments, result, show
from tests.journey.running_stack import free_port
from tests.runtime.lab import SCRIPTS, Lab
from tests.waiting import wait_until

SIZES = [1, 2, 4, 2, 1]
CHANGES = list(itertools.pairwise(SIZES))
#: Live changes go further with the small network: more ranks than the machine may have cores.
LIVE_SIZES = {"1M": [1, 2, 4, 8, 4, 2, 1], "25M": SIZES}
#: Steps at each size before the next change.
SETTLE_STEPS = {"1M": 30, "25M": 6}
#: Live rounds are short: so many for one of the others.
LIVE_CYCLES = {"1M": 4, "25M": 2}
FLOOR_MS = 5.0
RANDOM_SAMPLES, RANDOM_BATCH = 1030, 64

#: (unix seconds, step, world size) of each step.
Steps = list[tuple[float, int, int]]


class Pauses:
    """Pauses of one way to resize one network: milliseconds by change, and the median steps that they are net of."""

    def __init__(self) -> None:
        self.pauses: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        self.steps: defaultdict[int, list[float]] = defaultdict(list)
        self.redone = 0

    def add(self, steps: Steps) -> None:
        blocks = [list(block) for _, block in itertools.groupby(steps, key=lambda step: step[2])]
        for before, after in itertools.pairwise(blocks):
            change = (before[-1][2], after[-1][2])
            if len(after) > 2:
                step = median_step([at for at, _, _ in after[1:]])
                self.pauses[change].append(1000 * (after[0][0] - before[-1][0] - step))
                self.steps[change[1]].append(1000 * step)
        self.redone += len(steps) - len({step for _, step, _ in steps})


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=[*LIVE_SIZES, "random"], help="one network, or the random resizes")
    options = parser.parse_args()
    rounds, resizes = (3, 1000) if options.long else (1, 40)
    results: list[Result] = []
    with laboratory() as (forkserver, folder):
        for network in LIVE_SIZES:
            if options.only in (None, network):
                results += compared(forkserver, folder, network, rounds)
        if options.only in (None, "random"):
            results += random_resizes(forkserver, folder / "random", resizes)
    sys.stdout.write("\n")
    show(results, options.json)


def compared(forkserver: Path, folder: Path, network: str, rounds: int) -> list[Result]:
    ways = {"live": Pauses(), "torchrun": Pauses(), "restart": Pauses()}
    for number in range(rounds):
        place = folder / f"{network}-{number}"
        ways["live"].add(live_steps(forkserver, place / "live", network))
        ways["torchrun"].add(torchrun_steps(place / "torchrun", network))
        ways["restart"].add(restarted_steps(place / "restart", network))
        sys.stderr.write(f"{network}: round {number + 1} of {rounds}\n")
    found = figures(network, ways)
    show(found, None)
    return found


def figures(network: str, ways: dict[str, Pauses]) -> list[Result]:
    found = []
    for change in dict.fromkeys([*CHANGES, *itertools.pairwise(LIVE_SIZES[network])]):
        name = f"{network} {change[0]} -> {change[1]}"
        live = [max(pause, FLOOR_MS) for pause in ways["live"].pauses[change]]
        for other in ("torchrun", "restart"):
            theirs = ways[other].pauses[change]
            if theirs:
                found.append(result(f"{name} {other}", "ms", theirs))
                found.append(result(f"{name} live, floored", "ms", live, other, theirs))
        found.append(result(f"{name} live", "ms", ways["live"].pauses[change]))
        found.append(result(f"{network} step at {change[1]}", "ms", ways["live"].steps[change[1]]))
    return [*found, *(result(f"{network} {name} steps redone", "", [way.redone]) for name, way in ways.items())]


def live_steps(forkserver: Path, folder: Path, network: str) -> Steps:
    sizes = LIVE_SIZES[network]
    with running(forkserver, folder, "resized.py", network, slots=max(sizes)) as lab:
        for size in sizes[:1] + sizes[1:] * LIVE_CYCLES[network]:
            resize(lab, size)
            settle(lambda: count(lab, lab.active()["generation"]), SETTLE_STEPS[network])
        return [(record["at"], record["step"], record["world_size"]) for record in lab.steps()]


def random_resizes(forkserver: Path, folder: Path, number: int) -> list[Result]:
    """Steps and samples of a training that is resized at random: what is lost or done twice."""
    dice, size = random.Random(7), 1
    options = ["--epochs", 1_000_000, "--no-evaluation", "--step-seconds", 0.002]
    with running(forkserver, folder, "mlp.py", *options, slots=8, code_folder=str(SCRIPTS)) as lab:
        resize(lab, size)
        for made in range(1, number + 1):
            size = dice.choice([other for other in range(1, 9) if other != size])
            resize(lab, size)
            if made % 50 == 0:
                sys.stderr.write(f"{made} of {number} random resizes, step {len(lab.steps())}\n")
        settle(lambda: len(lab.steps()), len(lab.steps()) + 20)
        steps = [record["step"] for record in lab.steps()]
        changes = len(lab.journal("generation_active")) - 1
        tell_of_recoveries(lab)
        died = sum(1 for end in lab.exits().values() if end["signal"])
        read = Counter(line for path in lab.folder.glob("log/*/samples") for line in path.read_text().split("\n"))
    epochs = steps[-1] // -(-RANDOM_SAMPLES // RANDOM_BATCH)
    whole = [read[f"{epoch} {index}"] for epoch in range(epochs) for index in range(RANDOM_SAMPLES)]
    lost = len(set(range(1, steps[-1] + 1)) - set(steps)) + sum(1 for times in whole if times == 0)
    redone = len(steps) - len(set(steps)) + sum(1 for times in whole if times > 1)
    return [
        result("random resizes", "", [changes]),
        result("steps or samples lost in them", "", [lost]),
        result("steps or samples done twice", "", [redone]),
        result("ranks that died", "", [died]),
    ]


def tell_of_recoveries(lab: Lab) -> None:
    """There should be none: what the journal and the ranks say about each."""
    for plan in lab.journal("generation_planned"):
        if plan["cause"] == "failure":
            sys.stderr.write(f"generation {plan['generation']} is for a failure: {plan}\n")
    for log in sorted(lab.folder.glob("log/*/stderr")):
        if text := log.read_text():
            sys.stderr.write(f"{log.parent.name}: {text}")


def resize(lab: Lab, size: int) -> None:
    lab.size(size)
    wait_until(lambda: lab.active()["world_size"] == size, lab.story)


def count(lab: Lab, generation: int) -> int:
    return sum(1 for record in lab.steps() if record["generation"] == generation)


def settle(steps: Callable[[], int], wanted: int) -> None:
    wait_until(lambda: steps() >= wanted, lambda: f"{wanted} steps, not {steps()}")


def torchrun_steps(folder: Path, network: str) -> Steps:
    folder.mkdir(parents=True)
    port, agents, done = free_port(), list[subprocess.Popen[bytes]](), 0
    try:
        for size in SIZES:
            for agent in agents[size:]:
                agent.send_signal(signal.SIGTERM)
            for agent in agents[size:]:
                agent.wait(60)
            agents = agents[:size]
            agents += [_start_agent(folder, network, port, number) for number in range(len(agents), size)]
            try:
                settle(lambda done=done, size=size: _count(folder, size, done), SETTLE_STEPS[network])
            except AssertionError as stall:
                # torchrun stands still now and then. Ours is measured all the same, and compared with what there is.
                sys.stderr.write(f"torchrun stood still at {size} ranks, the rest of its round is left out: {stall}\n")
                break
            done = len(steps_of(folder))
    finally:
        for agent in reversed(agents):
            agent.terminate()
        for agent in agents:
            agent.wait(60)
    return steps_of(folder)


def _start_agent(folder: Path, network: str, port: int, number: int) -> subprocess.Popen[bytes]:
    rendezvous = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=resize"]
    limits = ["--nnodes=1:4", "--nproc-per-node=1", "--max-restarts=100", "--rdzv-conf=last_call_timeout=1"]
    options = [*limits, *rendezvous, "--local-addr=127.0.0.1"]
    return torchrun(folder / f"agent-{number}.log", options, plain_ddp(folder, network, folder, 5))


def restarted_steps(folder: Path, network: str) -> Steps:
    folder.mkdir(parents=True)
    done = 0
    for size in SIZES:
        ranks = _start_ranks(folder, network, size)
        settle(lambda done=done, size=size: _count(folder, size, done), SETTLE_STEPS[network])
        done = len(steps_of(folder))
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        for rank in ranks:
            rank.wait(60)
    return steps_of(folder)


def _start_ranks(folder: Path, network: str, size: int) -> list[subprocess.Popen[bytes]]:
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, *plain_ddp(folder, network, folder)]
    return [subprocess.Popen(command, env=os.environ | place | {"RANK": str(rank)}) for rank in range(size)]


def _count(folder: Path, size: int, after: int) -> int:
    """Steps of that size since the `after`-th one."""
    return sum(1 for _, _, found in steps_of(folder)[after:] if found == size)


if __name__ == "__main__":
    main()
