"""The list of jobs with 100,000 of them: CPU that a page costs the server, first and deep, by filter and order.

    python -m benchmarks.job_list [--json FILE] [--jobs 100000]

Each page is the whole answer: middleware, queries, 50 rows of HTML. On PostgreSQL (`TIDEPOOL_DATABASE_URL`) the CPU of
the database's own process is counted too. The competitor is the usual page: OFFSET, LIMIT and COUNT(*) over the same
filter and order, with the same rows drawn by the same template, in the same run. Uses a database of its own, which it
makes and drops.
"""

from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import content_of, cpu_of, looked_after, signed_in, with_database

REPEATS = 9
PAGE = 50
#: Name -> what is asked for, and how deep into the list the page lies (0 to 1).
PAGES = {
    "first page": ("", 0.0),
    "page in the middle": ("", 0.5),
    "last page": ("", 0.999),
    "failed, deep": ("state=FAILED", 0.9),
    "one owner by priority, deep": ("owner=user-000&sort=priority", 0.9),
    "one model by name, deep": ("model=network-00&sort=name", 0.9),
    "a name that few have": ("search=sweep-deep-17", 0.0),
    "a name that nobody has": ("search=nothing+is+called+so", 0.0),
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    show(with_database(lambda: measure(options.jobs)), options.json)


def measure(jobs: int) -> list[Result]:
    from tests.factories import UserFactory
    from tests.many_jobs import make_many_jobs

    make_many_jobs(jobs)
    looked_after()
    user = UserFactory(is_staff=True)
    client = signed_in(user)
    results = []
    for name, (query, depth) in PAGES.items():
        after = key_at(user, query, depth)
        address = f"/jobs/?{query}{'&' if query and after else ''}{after}"
        ours, theirs = [], []
        for _ in range(REPEATS + 1):
            ours.append(cpu_of(lambda address=address: content_of(client, address)))
            theirs.append(cpu_of(lambda query=query, depth=depth: page_by_offset(client, user, query, depth)))
        competitor = f"{name}, OFFSET + COUNT"
        results.append(result(competitor, "ms", theirs[1:]))
        results.append(result(name, "ms", ours[1:], competitor, theirs[1:]))
    return results


def key_at(user: Any, query: str, depth: float) -> str:
    """The parameter of the page so deep in the list."""
    if not depth:
        return ""
    from django.http import QueryDict

    from jobs.queries.job_list import JobFilter, job_page_of, list_keys

    wanted = JobFilter(QueryDict(query).dict())
    skipped = int(list_keys(user, wanted).count() * depth)
    token = job_page_of(user, wanted, {}, max(1, skipped)).next
    return f"after={token}" if token else ""


def page_by_offset(client: Any, user: Any, query: str, depth: float) -> str:
    """A page by number at its full cost: a page's frame without rows, the count, the rows at an offset, their HTML."""
    from django.core.paginator import Paginator
    from django.http import QueryDict
    from django.template.loader import render_to_string

    from jobs.queries.job_list import JobFilter, list_keys

    wanted = JobFilter(QueryDict(query).dict())
    rows = list_keys(user, wanted).select_related("owner", "model__model", "dataset__dataset", "instance_group")
    pages = Paginator(rows.order_by(*wanted.order.columns(backwards=False)), PAGE)
    page = pages.page(max(1, int(pages.num_pages * depth)))
    frame = content_of(client, "/jobs/?state=SUSPENDED&owner=nobody")
    return frame + "".join(render_to_string("jobs/list/_row.html", {"job": job}) for job in page)


if __name__ == "__main__":
    main()
