"""Three machines of one training: how soon plain DDP has met, and for how long the others stand when one vanishes.

    python -m benchmarks.hosts [--long] [--json FILE]

The machines are namespaces of this one, with networks, names and processes of their own: it needs root and iproute2.
Plain DDP is timed from the order for its ranks to the end of its first sum. A machine vanishes when its cable is
pulled: nothing is closed. The figure is the time until the others have made a step without it. When it was the lead
one, another is told to lead at once: in service the control plane does so after TIDEPOOL_LEASE_SECONDS, which come on
top.
"""

import sys
import time
from collections import defaultdict

from benchmarks.results import arguments, result, show
from tests.hosts.job import lab_over, steady_training, vanish
from tests.hosts.machines import running_machines, why_impossible
from tests.waiting import wait_until

SIZE = 3


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    if reason := why_impossible():
        sys.exit(f"hosts: {reason}")
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(10 if options.long else 3):
        found["plain DDP over 3 hosts meets"].append(meeting())
        found["a member vanishes"].append(standing("gpu3"))
        found["the lead vanishes, another leads"].append(standing("gpu1"))
    show([result(name, "s", values) for name, values in found.items()], options.json)


def meeting() -> float:
    with running_machines(SIZE) as network, lab_over(network, "gang.py", engine="fixed", arguments=["env"]) as lab:
        begun = time.monotonic()
        lab.size(SIZE)
        wait_until(lambda: len(list(lab.folder.glob("log/*/total"))) == SIZE, lab.story)
        return time.monotonic() - begun


def standing(victim: str) -> float:
    with running_machines(SIZE) as network, steady_training(network) as lab:
        begun = time.monotonic()
        vanish(lab, network, victim)
        return time.monotonic() - begun


if __name__ == "__main__":
    main()
