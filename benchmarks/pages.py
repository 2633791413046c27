"""Cost of each page to the server with 100,000 trainings in the database.

    python -m benchmarks.pages [--json FILE] [--jobs 100000] [--only overview]

CPU of the whole answer, for an administrator (who sees all jobs) and for the user with the most of them; with
PostgreSQL (`TIDEPOOL_DATABASE_URL`) the database's own process is counted too. `queries` is how many questions it asks.
`benchmarks.job_list` measures the list of jobs. Uses a database of its own, which it makes and drops.
"""

from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import content_of, cpu_of, looked_after, signed_in, with_database

REPEATS = 7


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--only", default="", help="pages whose name holds this")
    options = parser.parse_args()
    show(with_database(lambda: measure(options.jobs, options.only)), options.json)


def measure(jobs: int, only: str) -> list[Result]:
    from django.contrib.auth.models import User

    from tests.factories import UserFactory
    from tests.many_jobs import make_courses, make_many_jobs

    make_many_jobs(jobs)
    make_courses()
    looked_after()
    results = []
    for user in (UserFactory(is_staff=True, username="an administrator"), User.objects.get(username="user-000")):
        client = signed_in(user)
        for name, address in addresses().items():
            if only in name:
                results += page(f"{name}, {user.username}", client, address)
    return results


def page(name: str, client: Any, address: str) -> list[Result]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        content_of(client, address)
    queries = len(captured)
    times = [cpu_of(lambda: content_of(client, address)) for _ in range(REPEATS)]
    return [result(name, "ms", times), result(f"{name}: queries", "", [queries])]


def addresses() -> dict[str, str]:
    from datasets.models import Dataset
    from jobs.models import Job
    from models_registry.models import RegisteredModel

    mine = Job.objects.filter(owner__username="user-000")
    done = mine.filter(state="SUCCEEDED").latest("pk")
    dataset, model = Dataset.objects.earliest("pk"), RegisteredModel.objects.earliest("pk")
    return {
        "overview": "/",
        "overview, again": "/overview/now/",
        "cluster": "/cluster/",
        "cluster, trace of 24 h": "/cluster/trace.json?minutes=1440",
        "job": f"/jobs/{done.pk}/",
        "jobs": "/jobs/",
        "train": "/jobs/new/",
        "palette, a name": "/api/v1/search/?q=ablation",
        "palette, no name": "/api/v1/search/?q=nothing+is+called+so",
        "palette, a number": f"/api/v1/search/?q={done.pk}",
        "datasets": "/datasets/",
        "dataset": f"/datasets/{dataset.pk}/",
        "datasets, REST": "/api/v1/datasets/",
        "models": "/models/",
        "model": f"/models/{model.pk}/",
        "models, REST": "/api/v1/models/",
    }


if __name__ == "__main__":
    main()
