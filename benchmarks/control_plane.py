"""Cost of hosts' reports to the control plane, and how soon browsers know what they say.

    TIDEPOOL_DATABASE_URL=postgres://… TIDEPOOL_BROKER_URL=redis://… \\
    python -m benchmarks.control_plane [--hosts 16 60] [--running 16 60 200 [--intakes 2]] [--growth] \\
        [--json FILE] [--against FILE]

Each host has 8 GPUs and leads a training of its own with 8 ranks and 3 metrics.

--hosts: processor time of intake, PostgreSQL and Redis for a report with 10 steps, and for one that repeats the host's
state. All reports of a round go through the broker's queue, and are taken as `manage.py take_reports` takes them; the
competitor stores the same reports one after the other, as the Celery worker of former versions did. Rows for numbers
that were not simulated take the cost of the largest number that was, and are marked "computed".

--running: real processes of intake, scheduler and web server for so many hosts, which send signed reports of trainings
that make 10 steps a second, and a websocket client that follows 20 of them (`running_control_plane.py`).

--growth: what a day adds to the database (`growth.py`).

--against: a file of --json of an earlier run on this machine; fails where a report costs 30 % more.
"""

import base64
import json
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.growth import growth
from benchmarks.results import Result, arguments, dearer, result, show
from benchmarks.running_control_plane import run
from benchmarks.site import cpu_of, looked_after, with_database
from benchmarks.training_hosts import TrainingHosts

#: Steps of a report, one second's.
STEPS = 10
SHOWN_HOSTS = (16, 60, 200, 1000)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, nargs="*", default=[16, 60])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--growth", action="store_true", help="growth of the database a day")
    parser.add_argument("--running", type=int, nargs="*", default=[], metavar="HOSTS", help="real processes")
    parser.add_argument("--intakes", type=int, default=1, help="number of processes that take reports there")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each run of real processes")
    parser.add_argument("--against", type=Path, help="file of an earlier run: fail where a report costs 30 %% more")
    options = parser.parse_args()
    results: list[Result] = []
    if options.growth:
        results += with_database(partial(growth, SHOWN_HOSTS))
    for hosts in options.running:
        results += with_database(partial(run, hosts, options.seconds, options.intakes))
    costs: dict[int, float] = {}
    for hosts in sorted(options.hosts):
        results += with_database(partial(measure, hosts, options.rounds, costs))
    results += _cores(costs) if costs else []
    show(results, options.json)
    if options.against and (found := dearer(results, options.against, ["ms"])):
        sys.exit("\n".join(found))


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
        rows.append(
            result(f"{number} hosts, each with a report a second{how}", "cores", [milliseconds / 1000 * number])
        )
    return rows


def _logged_bytes() -> int:
    """Return the length of PostgreSQL's write-ahead log so far; 0 with SQLite."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        return int(cursor.fetchone()[0])


class _Site(TrainingHosts):
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
