"""Hand-over of the state to new ranks: pause of the training and memory, by routes and one holder to each joiner.

    python -m benchmarks.hand_over [--long] [--only 1M|25M|100M] [--json FILE]

Networks of 1, 25 and 100 million parameters with Adam grow live, 1 -> 4 (the smaller ones also 4 -> 8), and shrink
again. Both ways take turns: `routes`, by which each holder sends a share of the state and joiners pass it on, and
`copies`, as ranks of former releases are handed it: a whole copy from one holder for each joiner. The pause is that of
`resize.py`. Memory is the peak of the largest joiner, and the most by which the peak of a holder grew.
"""

import sys
from collections import defaultdict
from pathlib import Path

from benchmarks.labs import laboratory, running
from benchmarks.resize import Pauses, Steps, count, resize, settle
from benchmarks.results import Result, arguments, result, show
from tests.runtime.lab import Lab

#: Sizes between which each network is resized.
SIZES = {"1M": [1, 4, 8, 1, 4, 8, 1, 4, 8, 1], "25M": [1, 4, 8, 1, 4, 8, 1], "100M": [1, 4, 1, 4, 1]}
SETTLE_STEPS = {"1M": 20, "25M": 4, "100M": 3}
WAYS = ("routes", "copies")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=[*SIZES], help="one network")
    options = parser.parse_args()
    rounds = 4 if options.long else 2
    results: list[Result] = []
    with laboratory() as (forkserver, folder):
        for network in SIZES:
            if options.only in (None, network):
                results += compared(forkserver, folder, network, rounds)
    show(results, options.json)


def compared(forkserver: Path, folder: Path, network: str, rounds: int) -> list[Result]:
    pauses = {way: Pauses() for way in WAYS}
    memory: dict[str, defaultdict[str, list[float]]] = {way: defaultdict(list) for way in WAYS}
    for number in range(rounds):
        for way in WAYS if number % 2 == 0 else reversed(WAYS):
            pauses[way].add(grown(forkserver, folder / f"{network}-{number}-{way}", network, way, memory[way]))
            sys.stderr.write(f"{network}: round {number + 1} of {rounds}, {way}\n")
    found = []
    for change in [change for change in pauses["copies"].pauses if change[0] < change[1]]:
        theirs = pauses["copies"].pauses[change]
        name = f"{network} {change[0]} -> {change[1]}"
        found.append(result(f"{name} copies", "ms", theirs))
        found.append(result(f"{name} routes", "ms", pauses["routes"].pauses[change], "copies", theirs))
        found.append(result(f"{name} step then", "ms", pauses["routes"].steps[change[1]]))
    for who in ("joiner", "holder"):
        theirs = memory["copies"][who]
        found.append(result(f"{network} memory of a {who}, copies", "MiB", theirs))
        found.append(result(f"{network} memory of a {who}, routes", "MiB", memory["routes"][who]))
    return found


def grown(forkserver: Path, folder: Path, network: str, way: str, memory: defaultdict[str, list[float]]) -> Steps:
    sizes = SIZES[network]
    with running(forkserver, folder, "resized.py", network, way, slots=max(sizes)) as lab:
        for size in sizes:
            before = {member_id: _peak(lab, member_id) for member_id in lab.member_ids()}
            resize(lab, size)
            settle(lambda: count(lab, lab.active()["generation"]), SETTLE_STEPS[network])
            if 0 < len(before) < size:
                joined = [each for each in lab.member_ids() if each not in before]
                peaks = {each: _peak(lab, each) for each in lab.member_ids()}
                memory["holder"].append(max(peaks[each] - before[each] for each in before))
                memory["joiner"].append(max(peaks[each] for each in joined))
        return [(record["at"], record["step"], record["world_size"]) for record in lab.steps()]


def _peak(lab: Lab, member_id: str) -> float:
    """Largest resident memory that a rank has had, in MiB."""
    status = Path(f"/proc/{lab.started()[member_id]['pid']}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
