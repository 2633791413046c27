"""Ten trainings, each slow by one known cause of a known size, and the answer to why each of them is slow.

The causes are real: a disk, a network and a host are held back by the kernel. What each has cost is measured by the
training's script, or known from the limit. Each also runs as somebody would run it who has followed the advice: where
that names an option of the script, with the cause still there; where it names the surroundings, without the cause.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tidepool.protocol import SPENT_PARTS

from insights.step_time.advice import advice_on
from insights.step_time.answer import sentence_of
from insights.step_time.batch_costs import fixed_part
from insights.step_time.shares import RankShare, rank_share, shares_of, straggler_of
from tests.hosts.job import lab_over
from tests.hosts.machines import running_machines
from tests.runtime.lab import Lab, running_forkserver
from tests.waiting import wait_until

__all__ = ["SLOW", "Answer", "SlowTraining", "Told", "answered", "slowed_by", "trained"]

CGROUPS = Path("/sys/fs/cgroup")
DISK_BYTES_PER_SECOND, SAMPLE_BYTES = 4_000_000, 65_536
NETWORK_BITS_PER_SECOND = 40_000_000
#: Samples of a step of the training on a slow network where it sums gradients less often.
NETWORK_BATCH = 256


@dataclass(frozen=True)
class Told:
    """One rank: its newest sums from before its last step, and what its script has measured."""

    #: Part of an entry `time_spent` that belongs to the rank.
    rank: Mapping[str, Any]
    truth: Any

    @property
    def seconds(self) -> float:
        return float(sum(self.rank["seconds"]))

    def part(self, part: str) -> float:
        """Return the seconds of a part."""
        return float(self.rank["seconds"][SPENT_PARTS.index(part)])

    def measured(self, what: str = "", by: "Told | None" = None) -> float:
        """Return the seconds by the script's clock up to the step of the sums, its own or those of the other rank.

        what: "" of `slow_by_cause.py`.
        """
        steps = (by or self).rank["steps"] - 1
        return float(self.truth["sums"][steps][what] if what else self.truth[steps])


@dataclass(frozen=True)
class Answer:
    #: Code of the first advice; "": there is none.
    code: str
    text: str
    sentence: str
    #: Fraction of the time that the advice is about, and the bound of the speedup that it names.
    share: float
    speedup: float
    #: Fraction that the cause has really taken; None: see `slowed_by`.
    truth: float | None
    steps_per_second: float
    #: Part -> fraction of the time of all ranks; and code -> fraction, of all advice.
    shares: Mapping[str, float]
    advised: Mapping[str, float]


@dataclass(frozen=True)
class SlowTraining:
    name: str
    #: Code of the advice that is right, and words in its text.
    code: str
    words: str
    #: Runs it in a folder, until the block ends. The second argument: False, where the advice is followed.
    run: Callable[[Path, bool], Any]
    #: Fraction of the time that the cause has taken, by the first and the last rank; None: see `slowed_by`.
    truth: Callable[[Told, Told], float] | None
    batch: int = 16
    #: Samples of a step where the advice is followed.
    followed_batch: int = 16
    needs_root: bool = False


def answered(training: SlowTraining, lab: Lab) -> Answer:
    """Let the lab train, and ask why it is slow."""
    told = trained(lab)
    ranks = [_share(number, each) for number, each in enumerate(told)]
    shares = shares_of([sum(column) for column in zip(*(each.rank["seconds"] for each in told), strict=True)])
    straggler, fixed = straggler_of(ranks), fixed_part(_points(lab))
    advice = advice_on(shares, ranks, straggler, fixed_computing=fixed)
    pace = told[0].rank["steps"] / told[0].seconds
    sentence = sentence_of(shares, ranks, straggler, advice)
    truth = None if training.truth is None else training.truth(told[0], told[-1])
    code, text, share, speedup = "", "", 0.0, 1.0
    if advice:
        code, text, share, speedup = advice[0].code, advice[0].text, advice[0].fraction, advice[0].speedup
    advised = {one.code: one.fraction for one in advice}
    return Answer(code, text, sentence, share, speedup, truth, pace, shares, advised)


def slowed_by(slow: Answer, free: Answer) -> float:
    """Return the fraction of its time by which a training takes longer than the same one without the cause."""
    return 1 - slow.steps_per_second / free.steps_per_second


def trained(lab: Lab, ranks: int = 2) -> list[Told]:
    """Let so many ranks train. Return what each has told last before its script wrote what it had measured, by the
    places of the ranks. A plain script's rank then sleeps, which counts for what it was in."""
    lab.size(ranks)

    def truths() -> dict[str, Any]:
        places = lab.folder.glob("log/*/truth.json")
        return {path.parent.name.rpartition(".")[0]: json.loads(path.read_text()) for path in places}

    wait_until(lambda: len(truths()) == ranks, lab.story, seconds=180)
    found, newest = truths(), dict[str, Any]()
    for entry in lab.journal("time_spent"):
        for rank in entry["ranks"]:
            truth = found[rank["member_id"]]
            if 0 < rank["steps"] < len(truth["sums"] if isinstance(truth, dict) else truth):
                newest[rank["member_id"]] = rank
    assert set(newest) == set(found), lab.story()
    return [Told(newest[name], found[name]) for name in sorted(newest)]


def _share(number: int, told: Told) -> RankShare:
    """Return a rank's shares as the control plane has them."""
    rank = told.rank
    stored = {"caused": rank["caused_seconds"], **{key: rank[key] for key in ("seconds", "steps", "sums", "last_in")}}
    stored |= {"workers": rank["workers"], "signs": rank["signs"]}
    return rank_share(rank["member_id"], 1, {rank["member_id"]: number}, stored)


def _points(lab: Lab) -> list[tuple[int, float, int]]:
    newest = {times["batch"]: times for entry in lab.journal("profile") for times in entry["times"]}
    return [(batch, times["compute_seconds"], times["steps"]) for batch, times in newest.items()]


def _by_script(
    cause: str, *arguments: str, followed: tuple[str, ...] = (), batches: tuple[int, int] = (16, 16)
) -> Callable[[Path, bool], Any]:
    """Return how to run `slow_by_cause.py`, which sleeps.

    followed: arguments that follow the advice; (): the cause is removed. batches: without them, and with them.
    """

    @contextmanager
    def run(folder: Path, slow: bool) -> Iterator[Lab]:
        batch = batches[0 if slow else 1]
        with running_forkserver(folder) as forkserver:
            named = ["--cause", cause if slow or followed else "nothing", *arguments, *(() if slow else followed)]
            lab = Lab(
                forkserver, folder / "job", "slow_by_cause.py", arguments=named, min_slots=2, effective_batch_size=batch
            )
            try:
                yield lab
            finally:
                lab.stop()

    return run


def _held_back(
    arguments: list[str], remedy: list[str] | None = None, batches: tuple[int, int] = (16, 16)
) -> Callable[[Path, bool], Any]:
    """Return how to run `held_back.py` on one host, whose cause lies in its arguments."""

    @contextmanager
    def run(folder: Path, slow: bool) -> Iterator[Lab]:
        batch = batches[0 if slow else 1]
        named = [*(arguments if slow or remedy is None else remedy), "--batch", str(batch)]
        with running_forkserver(folder) as forkserver:
            lab = Lab(
                forkserver, folder / "job", "held_back.py", arguments=named, min_slots=2, effective_batch_size=batch
            )
            try:
                yield lab
            finally:
                lab.stop()

    return run


@contextmanager
def _two_hosts(folder: Path, cgroups: list[Path], arguments: list[str], batch: int = 16) -> Iterator[Lab]:
    """Run `held_back.py` on two hosts, each with a forkserver of its own in one of the cgroups."""
    with ExitStack() as stack:
        hosts = {}
        for name, cgroup in zip("ab", cgroups, strict=True):
            (folder / name).mkdir()
            hosts[name] = stack.enter_context(running_forkserver(folder / name, cgroup)), "127.0.0.1"
        launch: dict[str, Any] = {"min_slots": 2, "effective_batch_size": batch}
        launch["arguments"] = [*arguments, "--batch", str(batch)]
        lab = Lab(hosts["a"][0], folder / "job", "held_back.py", sizes={"a": 1, "b": 1}, hosts=hosts, **launch)
        stack.callback(lab.stop)
        yield lab


@contextmanager
def _cgroups(controller: str, count: int) -> Iterator[list[Path]]:
    """Make so many cgroups of version 1."""
    made = [CGROUPS / controller / f"tidepool-slow-{os.getpid()}-{number}" for number in range(count)]
    for cgroup in made:
        cgroup.mkdir()
    try:
        yield made
    finally:
        for cgroup in made:
            wait_until(partial(_is_empty, cgroup), f"the end of all in {cgroup}")
            cgroup.rmdir()


def _is_empty(cgroup: Path) -> bool:
    return not (cgroup / "cgroup.procs").read_text()


@contextmanager
def _slow_disk(folder: Path, slow: bool) -> Iterator[Lab]:
    """Samples of 64 KiB from a file, past the cache, on hosts that read 4 MB a second."""
    file = folder / "samples"
    file.write_bytes(os.urandom(64 * SAMPLE_BYTES))
    arguments = ["--file", str(file), "--sample-bytes", str(SAMPLE_BYTES)]
    device = os.stat(file).st_dev
    with _cgroups("blkio", 2) as cgroups, _two_hosts(folder, cgroups, arguments) as lab:
        if slow:  # the forkservers have loaded torch
            for cgroup in cgroups:
                limit = f"{os.major(device)}:{os.minor(device)} {DISK_BYTES_PER_SECOND}"
                (cgroup / "blkio.throttle.read_bps_device").write_text(limit)
        yield lab


@contextmanager
def _few_cores(folder: Path, slow: bool) -> Iterator[Lab]:
    """One of two hosts has half a core. Both come before whatever else runs here, which would halve them, too."""
    arguments = ["--layers", "2", "--width", "600", "--samples", "4096", "--train-steps", "120"]
    with _cgroups("cpu", 2) as cgroups, _two_hosts(folder, cgroups, arguments, batch=1024) as lab:
        for cgroup in cgroups:
            (cgroup / "cpu.shares").write_text("50000")
        if slow:
            (cgroups[1] / "cpu.cfs_period_us").write_text("20000")
            (cgroups[1] / "cpu.cfs_quota_us").write_text("10000")
        yield lab


@contextmanager
def _slow_network(folder: Path, slow: bool) -> Iterator[Lab]:
    """Two machines, to which 40 Mbit a second arrive, whatever is done. A step sums some 1 MB."""
    with running_machines(2) as network:
        for machine in network.machines:
            machine.slow_down(NETWORK_BITS_PER_SECOND)
        batch = 16 if slow else NETWORK_BATCH
        arguments = ["--width", "500", "--samples", "1024", "--batch", str(batch)]
        launch: dict[str, Any] = {"arguments": arguments, "effective_batch_size": batch}
        with lab_over(network, "held_back.py", **launch) as lab:
            yield lab


def _sleeps(first: Told, last: Told) -> float:
    return (first.measured() / first.seconds + last.measured() / last.seconds) / 2


def _tiny_batch(first: Told, last: Told) -> float:
    """Return the share of sums, of updates, and of what computing takes for each batch in a process on its own."""
    base, per_sample = first.truth["base"], first.truth["per_sample"]
    fixed = base / (base + max(0.0, per_sample) * 4)
    updates = first.measured("updating") + _summing(first, last)
    return float((updates + fixed * first.measured("computing")) / first.seconds)


def _summing(first: Told, last: Told) -> float:
    """Return the seconds of the sums themselves: of each step, the shorter wait of the two ranks."""
    waits = [
        [after["summing"] - before["summing"] for before, after in pairwise(told.truth["sums"][: first.rank["steps"]])]
        for told in (first, last)
    ]
    return float(sum(map(min, *waits)))


def _late_network(first: Told, last: Told) -> float:
    """Return the share of the time in which the gradients travel at the network's full speed: each rank sends and
    receives all of them once."""
    seconds = first.rank["steps"] * first.truth["bytes"] * 8 / NETWORK_BITS_PER_SECOND
    return float(seconds / first.seconds)


SLOW = [
    SlowTraining(
        "one rank's loader sleeps",
        "STRAGGLER",
        "waits longer for its data",
        _by_script("data", "--slot", "1"),
        lambda first, last: last.measured(by=first) / first.seconds,
    ),
    SlowTraining(
        "tiny batch",
        "BATCH",
        "does not depend on its size",
        # Times of steps by their size are told once in ten seconds, at first perhaps of one size alone.
        _held_back(
            ["--layers", "60", "--width", "16", "--samples", "42", "--train-steps", "300", "--train-seconds", "25"],
            *(None, (8, 128)),
        ),
        _tiny_batch,
        batch=8,
        followed_batch=128,
    ),
    SlowTraining(
        "slow disk",
        "DATA",
        "waits for storage",
        _slow_disk,
        # Both ranks share the disk: they also wait for each other's reads.
        None,
        needs_root=True,
    ),
    SlowTraining(
        "slow network",
        "COMMUNICATION",
        "network between the hosts is slow",
        _slow_network,
        _late_network,
        followed_batch=NETWORK_BATCH,
        needs_root=True,
    ),
    SlowTraining(
        "a host with half a core",
        "STRAGGLER",
        "computes longer",
        _few_cores,
        # On half a core, all takes longer: what the script measures, sums, and the runtime's own work.
        None,
        needs_root=True,
    ),
    SlowTraining(
        "checkpoint at each step",
        "CHECKPOINTS",
        "checkpoint_seconds",
        _by_script(*("checkpoint", "--seconds", "0.5", "--train-steps", "200"), followed=("--checkpoint-every", "50")),
        lambda first, last: max(told.measured() / told.seconds for told in (first, last)),
    ),
    SlowTraining(
        "item() in each step",
        "READS",
        "held_back.py line",
        _held_back(["--late", "0.2"], ["--late", "0.2", "--read-every", "100"]),
        lambda first, last: (first.measured("asking") / first.seconds + last.measured("asking") / last.seconds) / 2,
    ),
    SlowTraining(
        "validation",
        "VALIDATION",
        "held-out",
        _by_script("validation", "--seconds", "0.5", "--train-steps", "120", followed=("--validate-every", "50")),
        _sleeps,
    ),
    SlowTraining("work between steps", "SCRIPT", "between its gradients", _by_script("script"), _sleeps),
    SlowTraining(
        "slow update",
        "OPTIMIZER",
        "Update less often",
        _by_script("optimizer", "--samples", "2048", followed=("--batch", "1024"), batches=(16, 1024)),
        _sleeps,
        followed_batch=1024,
    ),
]
