"""Cost of the pages that show every GPU, with 1,000 hosts of 8 GPUs each.

    python -m benchmarks.many_slots [--json FILE] [--hosts 60 1000]

CPU of the whole answer for an administrator (with PostgreSQL, `TIDEPOOL_DATABASE_URL`, the database's own process is
counted, too), and its size. One training holds the GPUs of each host. Uses a database of its own, which it makes and
drops.
"""

from functools import partial

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import content_of, cpu_of, looked_after, signed_in, with_database

REPEATS = 3
SLOTS = 8
PAGES = {
    "overview": "/",
    "its cluster": "/api/v1/cluster/",
    "hosts": "/hosts/",
    "cluster": "/cluster/",
    "metrics": "/metrics",
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--hosts", type=int, nargs="+", default=[60, 1000])
    options = parser.parse_args()
    results: list[Result] = []
    for hosts in options.hosts:
        results += with_database(partial(measure, hosts))
    show(results, options.json)


def measure(hosts: int) -> list[Result]:
    from tests.factories import UserFactory

    _make(hosts)
    looked_after()
    client = signed_in(UserFactory.create(is_staff=True, username="an administrator"))
    results = []
    for name, address in PAGES.items():
        size = len(content_of(client, address)) / 1e6
        times = [cpu_of(lambda address=address: content_of(client, address)) for _ in range(REPEATS)]
        results += [result(f"{name}, {hosts} hosts", "ms", times), result(f"{name}, {hosts} hosts: size", "MB", [size])]
    return results


def _make(hosts: int) -> None:
    """One training in the middle of its course on all GPUs of each host, in four groups of ten people."""
    from datetime import timedelta

    from django.utils import timezone

    from jobs.models import SlotClaim
    from tests.factories import (
        DatasetVersionFactory,
        InstanceGroupFactory,
        JobFactory,
        RegisteredModelVersionFactory,
        UserFactory,
        host_with_slots,
    )

    groups = InstanceGroupFactory.create_batch(4)
    owners = UserFactory.create_batch(10)
    began = timezone.now() - timedelta(hours=1)
    code = {"model": RegisteredModelVersionFactory.create(), "dataset": DatasetVersionFactory.create()}
    for number in range(hosts):
        host = host_with_slots(f"host-{number}", SLOTS)
        whose = {"owner": owners[number % 10], "instance_group": groups[number % 4]}
        job = JobFactory.create(name=f"training {number}", state="RUNNING", **whose, **code)
        given = {"job": job, "attempt": 1, "claimed_at": began, "trains_from": began}
        SlotClaim.objects.bulk_create(SlotClaim(slot=slot, **given) for slot in host.slots.all())


if __name__ == "__main__":
    main()
