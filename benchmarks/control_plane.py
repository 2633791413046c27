"""Cost of hosts' reports to the control plane, by their number: processor time of the intake and of PostgreSQL.

    python -m benchmarks.control_plane [--hosts 16] [--rounds 10] [--json FILE]

Each host has 8 GPUs and leads a training of its own with 8 ranks, whose reports carry 4 steps of 3 metrics. A quiet
host's reports repeat its state. The intake takes all reports of a round at once, as it does while it is busy; the
competitor stores the same reports one after the other, as the Celery worker of former versions did. Rows marked
"computed" multiply the measured cost of a report by the number of hosts and by 2.5 reports a second of each, which is
what hosts that lead a training send. Needs Redis at `TIDEPOOL_BROKER_URL` for the answers to hosts.
"""

import base64
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import cpu_of, looked_after, with_database

SLOTS = 8
STEPS = 4
REPORTS_PER_SECOND = 2.5
COMPUTED_HOSTS = (16, 60, 200, 1000)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    show(with_database(lambda: measure(options.hosts, options.rounds)), options.json)


def measure(hosts: int, rounds: int) -> list[Result]:
    from jobs.control.steady_hosts import SteadyHosts

    site = _Site(hosts)
    looked_after()
    steady = SteadyHosts()
    together, singly, quiet, quiet_singly = [], [], [], []
    for _ in range(rounds + 1):  # the first round warms up
        together.append(site.cost_of_round(steady, steps=STEPS))
        singly.append(site.cost_of_round(None, steps=STEPS))
        site.cost_of_round(steady, steps=0)
        quiet.append(site.cost_of_round(steady, steps=0))
        quiet_singly.append(site.cost_of_round(None, steps=0))
    one, former = "a report with 4 steps", "a report with 4 steps, one by one"
    repeat, former_repeat = "a report that repeats", "a report that repeats, one by one"
    return [
        result(former, "ms", singly[1:]),
        result(one, "ms", together[1:], former, singly[1:]),
        result(former_repeat, "ms", quiet_singly[1:]),
        result(repeat, "ms", quiet[1:], former_repeat, quiet_singly[1:]),
        *(
            result(f"{number} hosts, all stepping, computed", "cores", [_cores(together, number)])
            for number in COMPUTED_HOSTS
        ),
    ]


def _cores(costs: list[float], hosts: int) -> float:
    return statistics.median(costs[1:]) / 1000 * REPORTS_PER_SECOND * hosts


class _Site:
    """Hosts without processes, each with a training that holds all of its GPUs."""

    def __init__(self, hosts: int) -> None:
        from jobs import actions
        from tests.factories import (
            DatasetVersionFactory,
            InstanceGroupFactory,
            RegisteredModelVersionFactory,
            UserFactory,
        )
        from tests.jobs.cluster import Cluster

        self.cluster = Cluster.of(*(f"host-{number:04}" for number in range(hosts)), slots=SLOTS)
        InstanceGroupFactory(name="group")
        model = RegisteredModelVersionFactory(model__name="model")
        Path(model.path).mkdir(parents=True, exist_ok=True)
        (Path(model.path) / "main.py").write_text("print('training')\n")
        dataset = DatasetVersionFactory(dataset__name="data")
        Path(dataset.path).mkdir(parents=True, exist_ok=True)
        user = UserFactory(is_staff=True)
        self.jobs = [
            actions.submit(
                actions.Submission(
                    name=f"training {number}",
                    model="model",
                    dataset="data",
                    instance_group="group",
                    min_slots=SLOTS,
                    max_slots=SLOTS,
                ),
                user,
            )
            for number in range(hosts)
        ]
        self.cluster.turn(2)
        for job in self.jobs:
            self.cluster.train(job)
        self.step = 1

    def cost_of_round(self, steady: Any, *, steps: int) -> float:
        """Return milliseconds for each report, where each host sends one. `steady`: None to store them one by one."""
        from jobs.control.intake import batch_of
        from jobs.management.commands.take_reports import store
        from jobs.tasks import ingest_report

        for _ in range(steps):
            self.step += 1
            for job in self.jobs:
                self.cluster.log_step(job, self.step, loss=0.5, accuracy=0.5, rate=0.1)
        values = [host.report() for host in self.cluster.hosts.values()]
        messages = [_message(each) for each in values]
        if steady is None:
            cost = cpu_of(lambda: [ingest_report(each) for each in values])
        else:
            cost = cpu_of(lambda: store(batch_of(messages), steady))
        self._acknowledge()
        return cost / len(values)

    def _acknowledge(self) -> None:
        from jobs.models import Journal

        stored = dict(Journal.objects.values_list("name", "number"))
        for host in self.cluster.hosts.values():
            host.acknowledged |= {name: number for name, number in stored.items() if name in host.journals}


def _message(values: dict[str, Any]) -> bytes:
    """Return a report as Celery writes it to Redis."""
    body = base64.b64encode(json.dumps([[values], {}, {}]).encode()).decode()
    headers, properties = {"task": "jobs.tasks.ingest_report"}, {"body_encoding": "base64"}
    return json.dumps({"body": body, "headers": headers, "properties": properties}).encode()


if __name__ == "__main__":
    main()
