"""Cost of hosts' reports to the control plane: processor time of the intake, PostgreSQL and Redis.

    TIDEPOOL_DATABASE_URL=postgres://… TIDEPOOL_BROKER_URL=redis://… \\
    python -m benchmarks.control_plane [--hosts 16 60] [--rounds 8] [--json FILE]

Each host has 8 GPUs and leads a training of its own with 8 ranks, whose reports carry 4 steps of 3 metrics. A quiet
host's reports repeat its state. All reports of a round go through the broker's queue, and are taken as
`manage.py take_reports` takes them; the competitor stores the same reports one after the other, as the Celery worker of
former versions did. The rows of a number of hosts multiply the cost of a report by 2.5 a second of each host, which is
what hosts that lead a training send at most: its next steps are sent once the ones before are acknowledged. Rows for
numbers that were not simulated take the cost of the largest number that was, and are marked "computed".
"""

import base64
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import cpu_of, looked_after, with_database

SLOTS = 8
STEPS = 4
REPORTS_PER_SECOND = 2.5
SHOWN_HOSTS = (16, 60, 200, 1000)
#: Processor cores that the intake may use at 1,000 hosts.
CORES = 5


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, nargs="+", default=[16, 60])
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    results: list[Result] = []
    costs: dict[int, float] = {}
    for hosts in sorted(options.hosts):
        results += with_database(partial(measure, hosts, options.rounds, costs))
    show([*results, *_cores(costs)], options.json)


def measure(hosts: int, rounds: int, costs: dict[int, float]) -> list[Result]:
    """Return the costs of one report, and note that of one with steps in `costs`."""
    from jobs.control.steady_hosts import SteadyHosts

    site = _Site(hosts)
    looked_after()
    steady = SteadyHosts()
    together, singly, quiet, quiet_singly, logged = [], [], [], [], []
    for _ in range(rounds + 1):  # the first round warms up
        before = _logged_bytes()
        together.append(site.cost_of_round(steady, steps=STEPS))
        logged.append((_logged_bytes() - before) / hosts / 1000)
        singly.append(site.cost_of_round(None, steps=STEPS))
        site.cost_of_round(steady, steps=0)
        quiet.append(site.cost_of_round(steady, steps=0))
        quiet_singly.append(site.cost_of_round(None, steps=0))
    costs[hosts] = statistics.median(together[1:])
    one, repeat = f"{hosts} hosts: a report with {STEPS} steps", f"{hosts} hosts: a report that repeats"
    return [
        result(f"{one}, one by one", "ms", singly[1:]),
        result(one, "ms", together[1:], f"{one}, one by one", singly[1:]),
        result(f"{one}, written to the log of the database", "kB", logged[1:]),
        result(f"{repeat}, one by one", "ms", quiet_singly[1:]),
        result(repeat, "ms", quiet[1:], f"{repeat}, one by one", quiet_singly[1:]),
    ]


def _cores(costs: dict[int, float]) -> list[Result]:
    largest = max(costs)
    rows = []
    for number in sorted({*SHOWN_HOSTS, *costs}):
        milliseconds, how = costs.get(number, costs[largest]), "" if number in costs else ", computed"
        cores = milliseconds / 1000 * REPORTS_PER_SECOND * number
        rows.append(
            result(f"{number} hosts, all stepping, {REPORTS_PER_SECOND} reports a second{how}", "cores", [cores])
        )
        pace = max(1 / REPORTS_PER_SECOND, number * milliseconds / 1000 / CORES)
        rows.append(result(f"{number} hosts, time between two reports of a host on {CORES} cores{how}", "s", [pace]))
    return rows


def _logged_bytes() -> int:
    """Return the length of PostgreSQL's write-ahead log so far; 0 with SQLite."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        return int(cursor.fetchone()[0])


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
        from django.conf import settings

        from core.broker import connect
        from jobs.control.intake import batch_of
        from jobs.control.live_readings import LiveReadings
        from jobs.management.commands.take_reports import store, take_messages
        from jobs.tasks import ingest_report

        for _ in range(steps):
            self.step += 1
            for job in self.jobs:
                self.cluster.log_step(job, self.step, loss=0.5, accuracy=0.5, rate=0.1)
        values = [host.report() for host in self.cluster.hosts.values()]
        broker, readings = connect(), LiveReadings()
        for message in [_message(each) for each in values] if steady is not None else ():
            broker.lpush(settings.CELERY_TASK_DEFAULT_QUEUE, message)

        def take() -> None:
            while messages := take_messages(0.01):
                batch = batch_of(messages)
                store(batch, steady)
                readings.send(batch.reports)

        begun = _broker_cpu()
        cost = cpu_of(take if steady is not None else lambda: [ingest_report(each) for each in values])
        cost += 1000 * (_broker_cpu() - begun)
        self._acknowledge()
        return cost / len(values)

    def _acknowledge(self) -> None:
        from jobs.models import Journal

        stored = dict(Journal.objects.values_list("name", "number"))
        for host in self.cluster.hosts.values():
            host.acknowledged |= {name: number for name, number in stored.items() if name in host.journals}


def _broker_cpu() -> float:
    """Return the seconds that Redis has computed."""
    from core.broker import connect

    used = connect().info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def _message(values: dict[str, Any]) -> bytes:
    """Return a report as Celery writes it to Redis."""
    body = base64.b64encode(json.dumps([[values], {}, {}]).encode()).decode()
    headers, properties = {"task": "jobs.tasks.ingest_report"}, {"body_encoding": "base64"}
    return json.dumps({"body": body, "headers": headers, "properties": properties}).encode()


if __name__ == "__main__":
    main()
