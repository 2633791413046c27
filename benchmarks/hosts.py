"""Three machines of one training: how soon plain DDP has met, and for how long the others stand when one vanishes.

    python -m benchmarks.hosts [--long] [--json FILE]
    python -m benchmarks.hosts --cuts N [--seed N] [--json FILE]

The machines are namespaces of this one, with networks, names and processes of their own: it needs root and iproute2.
Plain DDP is timed from the order for its ranks to the end of its first sum. With a whole site, which the machines join
by the documented command, it is timed from submission until it is RUNNING: the first training of all, which comes while
the machines still load torch, and later ones. A machine vanishes when its cable is pulled: nothing is closed. The
figure is the time until the others have made a step without it. When it was the lead one, another is told to lead at
once: in service the control plane does so after TIDEPOOL_LEASE_SECONDS, which come on top.

A stranger on the same network then forges messages at every port of a training, and is to have none of them taken; the
handshake that stops it is timed with the right secret.

--cuts: instead of all that, machines are cut off and come back so many times at random; see `random_cuts.py`.
"""

import os
import socket
import sys
import time
from collections import defaultdict

import httpx
from tidepool.handshake import introduce

from benchmarks.random_cuts import cut_at_random
from benchmarks.results import arguments, result, show
from tests.hosts.job import lab_over, listening, place, steady_training, vanish
from tests.hosts.machines import ROOT, running_machines, why_impossible
from tests.hosts.site import Site, running_site
from tests.runtime.strangers import forge
from tests.waiting import wait_until

SIZE = 3
HANDSHAKES = 200


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--cuts", type=int, help="number of random cuts and heals")
    parser.add_argument("--seed", type=int, default=1, help="which cuts")
    options = parser.parse_args()
    if reason := why_impossible():
        sys.exit(f"hosts: {reason}")
    if options.cuts:
        with running_machines(SIZE) as network:
            show(cut_at_random(network, options.cuts, options.seed), options.json)
        return
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(10 if options.long else 3):
        found["plain DDP over 3 hosts meets"].append(meeting())
        found["a member vanishes"].append(standing("gpu3"))
        found["the lead vanishes, another leads"].append(standing("gpu1"))
    taken, handshakes = strangers()
    first, *later = submissions(11 if options.long else 4)
    found["plain DDP over 3 hosts, submitted as they join, is RUNNING"].append(first)
    found["plain DDP over 3 hosts, submitted later, is RUNNING"] += later
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    results = [result(name, "s", values) for name, values in found.items()]
    results.append(result("forged messages that are taken", "", [taken]))
    results.append(result("handshake with a coordinator", "ms", handshakes))
    show(results, options.json)


def meeting() -> float:
    with running_machines(SIZE) as network, lab_over(network, "gang.py", engine="fixed", arguments=["env"]) as lab:
        begun = time.monotonic()
        lab.size(SIZE)
        wait_until(lambda: len(list(lab.folder.glob("log/*/total"))) == SIZE, lab.story)
        return time.monotonic() - begun


def strangers() -> tuple[int, list[float]]:
    """Return the number of forged messages that a training has taken, and the milliseconds of handshakes with it."""
    with running_machines(SIZE) as network, steady_training(network) as lab:
        found = [forge(machine.address, listening(machine)) for machine in network.machines]
        taken = sum(what == "answered" for each in found for ports in each.values() for what in ports.values())
        handshakes = []
        for _ in range(HANDSHAKES):
            with socket.create_connection(place(lab)) as connection:
                begun = time.perf_counter()
                introduce(connection, lab.secret, "coordinator")
                handshakes.append(1000 * (time.perf_counter() - begun))
        return taken, handshakes


def submissions(count: int) -> list[float]:
    """Seconds from each submission until its training is RUNNING, one after the other's end."""
    with running_machines(SIZE) as network, running_site(network) as site:
        token = site.join_token(SIZE)
        for machine in network.machines:
            site.join(machine, token)
        site.wait_for_hosts(*(machine.name for machine in network.machines))
        site.register_plain(ROOT / "examples/ddp-digits", "ddp")
        with site.api() as api:
            return [_submission(api, site) for _ in range(count)]


def _submission(api: httpx.Client, site: Site) -> float:
    given = {"model": "ddp", "dataset": "digits", "instance_group": "sig-elastic", "parameters": {"epochs": 20}}
    begun = time.monotonic()
    answer = api.post("jobs/", json={"name": "ddp", **given, "min_slots": SIZE, "max_slots": SIZE}).raise_for_status()
    job = answer.json()["id"]
    wait_until(lambda: api.get(f"jobs/{job}/").json()["state"] == "RUNNING", site.story)
    running = time.monotonic() - begun
    api.post(f"jobs/{job}/cancel/").raise_for_status()
    wait_until(lambda: api.get(f"jobs/{job}/").json()["state"] == "CANCELLED", site.story)
    return running


def standing(victim: str) -> float:
    with running_machines(SIZE) as network, steady_training(network) as lab:
        begun = time.monotonic()
        vanish(lab, network, victim)
        return time.monotonic() - begun


if __name__ == "__main__":
    main()
