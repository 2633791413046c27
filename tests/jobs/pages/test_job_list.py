"""The list of jobs: what it shows to whom, filtered, sorted, page by page, and at what cost."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.actions.tags import TagChange, change_tags
from jobs.models import Job
from jobs.queries.job_columns import FACTS
from jobs.queries.job_list import ORDERS, JobFilter, all_pages, job_page_of
from jobs.states import TERMINAL, JobState
from tests.factories import JobFactory, UserFactory, set_job
from tests.html import html_of
from tests.many_jobs import make_many_jobs
from tests.scene import Scene

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MANY = 1_000

#: Each kind of filter, alone and together.
FILTERS = [
    {},
    {"state": "RUNNING"},
    {"state": "FAILED"},
    {"state": "active"},
    {"state": "finished"},
    {"owner": "user-000"},
    {"model": "network-00"},
    {"dataset": "pictures-11"},
    {"instance_group": "group-1"},
    {"search": "Ablation"},
    {"search": "17"},
    {"search": "nothing is called so"},
    {"submitted_after": "2025-01-01", "submitted_before": "2025-03-01"},
    {"state": "FAILED", "model": "network-01", "instance_group": "group-0", "search": "deep"},
]


@pytest.fixture
def many(db: None) -> None:
    make_many_jobs(MANY, now=NOW)


@pytest.fixture
def carol_sees_all(many: None, carol: User) -> User:
    return carol


def walked(user: User, given: dict[str, str], size: int) -> Iterator[Job]:
    """Every row, by following the pages."""
    page = job_page_of(user, JobFilter(given), given, size)
    yield from page.rows
    while page.next:
        page = job_page_of(user, JobFilter(given), {"after": page.next}, size)
        yield from page.rows


def fits(job: Job, given: dict[str, str]) -> bool:
    """The same question, asked of one row in plain words."""
    states = {"active": set(JobState) - TERMINAL, "finished": set(TERMINAL)}
    search = given.get("search", "").casefold()
    return all(
        [
            "state" not in given or job.state in states.get(given["state"], {given["state"]}),
            job.owner.username == given.get("owner", job.owner.username),
            job.model.model.name == given.get("model", job.model.model.name),
            job.dataset.dataset.name == given.get("dataset", job.dataset.dataset.name),
            job.instance_group.name == given.get("instance_group", job.instance_group.name),
            search in job.name.casefold() or search == str(job.pk),
            job.submitted_at.date().isoformat() >= given.get("submitted_after", ""),
            job.submitted_at.date().isoformat() < given.get("submitted_before", "9999"),
        ]
    )


def test_filters_give_the_rows_that_fit(carol_sees_all: User) -> None:
    rows = list(Job.objects.select_related("owner", "model__model", "dataset__dataset", "instance_group"))
    for given in FILTERS:
        expected = {job.pk for job in rows if fits(job, given)}
        assert {job.pk for job in all_pages(carol_sees_all, JobFilter(given))} == expected, given


def test_pages_lead_through_each_order_once_and_back(carol_sees_all: User) -> None:
    for sort in ORDERS:
        _walk_there_and_back(carol_sees_all, sort)


def _walk_there_and_back(carol_sees_all: User, sort: str) -> None:
    given, order = {"sort": sort, "owner": "user-001"}, ORDERS[sort]
    rows = list(walked(carol_sees_all, given, 17))
    keys = [(getattr(job, order.column), job.pk) for job in rows]

    expected = Job.objects.filter(owner__username="user-001")
    expected = expected.filter(finished_at__isnull=False) if sort == "ended" else expected
    assert keys == sorted(keys, reverse=order.descending)
    assert {job.pk for job in rows} == set(expected.values_list("pk", flat=True))
    assert len(rows) == expected.count() > 2 * 17

    last = job_page_of(carol_sees_all, JobFilter(given), {"before": f"{_text(keys[-1][0])}~{keys[-1][1]}"}, 17)
    assert [job.pk for job in last.rows] == [job.pk for job in rows[-18:-1]]


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def test_the_first_page_is_whole_even_when_one_comes_back_to_it(carol_sees_all: User) -> None:
    wanted = JobFilter({})
    first = job_page_of(carol_sees_all, wanted, {}, 50)
    third = first.rows[2]

    back = job_page_of(carol_sees_all, wanted, {"before": f"{third.submitted_at.isoformat()}~{third.pk}"}, 50)

    assert [job.pk for job in back.rows] == [job.pk for job in first.rows]
    assert (back.previous, back.next) == (None, first.next)


def test_a_new_job_shifts_no_page(carol_sees_all: User) -> None:
    wanted = JobFilter({})
    first = job_page_of(carol_sees_all, wanted, {}, 50)
    second = job_page_of(carol_sees_all, wanted, {"after": first.next or ""}, 50)

    JobFactory(submitted_at=NOW + timedelta(seconds=1))

    again = job_page_of(carol_sees_all, wanted, {"after": first.next or ""}, 50)
    assert [job.pk for job in again.rows] == [job.pk for job in second.rows]


def test_names_are_found_whatever_the_size_of_their_letters(carol: User) -> None:
    JobFactory(name="GRÖSSE-Ablation")

    for search in ("größe", "GRÖSSE", "ablation", "sse-abl"):
        assert [job.name for job in all_pages(carol, JobFilter({"search": search}))] == ["GRÖSSE-Ablation"]


@pytest.mark.parametrize("search", ["100%", "a_b", "back\\slash"])
def test_signs_in_a_search_mean_themselves(carol: User, search: str) -> None:
    JobFactory(name=f"x{search}y")
    JobFactory(name="x100 percent, a-b, back/slash")

    assert [job.name for job in all_pages(carol, JobFilter({"search": search}))] == [f"x{search}y"]


@pytest.mark.parametrize("path", ["/jobs/", "/jobs/rows/"])
def test_everybody_sees_what_is_theirs(scene: Scene, alices: Client, bobs: Client, carols: Client, path: str) -> None:
    pages = {name: html_of(client.get(path)) for name, client in (("a", alices), ("b", bobs), ("c", carols))}

    assert "T1 digits-cnn" in pages["a"]
    assert "bobs-secret" not in pages["a"]
    assert "bobs-secret" in pages["b"]
    assert "T1 digits-cnn" not in pages["b"]
    assert "bobs-secret" in pages["c"]
    assert "T1 digits-cnn" in pages["c"]
    assert "T1 digits-cnn" not in html_of(bobs.get(f"{path}?owner=alice"))
    assert Client().get(path).status_code == 302


def test_only_administrators_may_pick_an_owner(scene: Scene, alices: Client, carols: Client) -> None:
    assert 'name="owner"' in html_of(carols.get("/jobs/"))
    page = html_of(alices.get("/jobs/"))
    assert 'name="owner"' not in page
    assert 'value="bob"' not in page


@pytest.mark.parametrize("topic", ["cluster", "jobs.{alice}"])
def test_the_list_follows_its_own_topics(scene: Scene, alices: Client, bobs: Client, topic: str) -> None:
    topic = topic.format(alice=scene.alice.pk)

    assert alices.get(f"/live/{topic}.json").json()["seq"] >= 0
    assert bobs.get(f"/live/{topic}.json").status_code == (200 if topic == "cluster" else 404)
    assert alices.get("/live/jobs.json").status_code == 404


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("state=NONSENSE", "Unknown state"),
        ("sort=colour", "The list has no such order"),
        ("within=yesterday", "Unknown period"),
        ("submitted_after=soon", "Enter a date such as"),
        ("submitted_before=99999-01-01", "Enter a date such as"),
        ("after=nonsense", "start with the first page"),
        ("sort=priority&before=high~1", "start with the first page"),
        ("after=2026-03-01~99999999999999999999", "start with the first page"),
    ],
)
def test_what_cannot_be_asked_is_said_and_kept(scene: Scene, alices: Client, query: str, sentence: str) -> None:
    page = alices.get(f"/jobs/?q=ignored&owner=alice&model=kept&{query}")

    assert page.status_code == 400
    assert sentence in html_of(page)
    assert 'value="kept"' in html_of(page)
    assert alices.get(f"/api/v1/jobs/?{query}").status_code == 400


def test_columns_without_a_word_are_hidden(scene: Scene, alices: Client) -> None:
    def without(query: str) -> set[str]:
        found = re.search(r'data-without="([^"]*)"', html_of(alices.get(f"/jobs/?{query}")))
        assert found
        return set(found[1].split())

    assert without("state=PENDING") == {"slots", "progress", "ended", "owner", "group", "duration", "dataset", "tags"}
    assert without("state=RUNNING") == {"place", "ended", "owner", "group", "dataset"}
    assert without("state=SUCCEEDED") == {"place", "slots", "owner", "group", "dataset", "tags"}
    assert without("columns=reason,owner,metric:loss") == set(FACTS) - {"reason", "owner"}


def test_any_metric_and_any_parameter_is_a_column(scene: Scene, alices: Client) -> None:
    Job.objects.filter(pk=scene.first.pk).update(parameters={"wide": True}, arguments=["--lr=0.01"])
    set_job(scene.first, final_metrics={"loss": 0.25, "accuracy": 97.5})

    page = html_of(alices.get("/jobs/?columns=reason&columns=metric:loss&columns=parameter:lr"))

    row = page.split(f'<tr id="job-{scene.first.pk}"')[1].split("</tr>")[0]
    assert re.findall(r'<td data-label="(loss|lr)" class="number extra" title="[^"]*">([^<]*)<', row) == [
        ("loss", "0.25"),
        ("lr", "0.01"),
    ]
    assert 'value="metric:accuracy"' in page
    assert 'value="parameter:wide"' in page
    assert 'name="columns" value="metric:loss" checked' in page.replace("  ", " ")
    assert "/api/v1/jobs/export/?columns=reason%2Cmetric%3Aloss%2Cparameter%3Alr" in page
    assert 'value="reason,metric:loss,parameter:lr"' in page  # the form keeps them

    answer = alices.get("/api/v1/jobs/export/?columns=metric:loss&search=T1")
    head, line = b"".join(answer.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert head.endswith(",metric loss")
    assert line.endswith(",0.25")


@pytest.mark.parametrize(
    "columns", ["colour", "metric:", "metric", f"metric:{'x' * 201}", ",".join(f"metric:{n}" for n in range(25))]
)
def test_a_column_that_there_is_not_is_refused_in_words(alices: Client, columns: str) -> None:
    page = alices.get(f"/jobs/?columns={columns}")

    assert page.status_code == 400
    assert "The list has no column" in html_of(page) or "at most 24 columns" in html_of(page)


def test_more_columns_cost_no_more_questions(carol_sees_all: User, client: Client) -> None:
    client.force_login(carol_sees_all)

    def questions(path: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path).status_code == 200
        return len(captured)

    questions("/jobs/")  # the forecast is kept for a while
    usual = questions("/jobs/")
    columns = "reason,duration,metric:loss,metric:accuracy,parameter:lr,parameter:epochs"
    assert questions(f"/jobs/?columns={columns}") == usual - 1, "nobody asks for those that were chosen last"


def test_states_have_counts_of_what_fits_the_rest_of_the_filter(carol_sees_all: User, client: Client) -> None:
    client.force_login(carol_sees_all)
    fitting = [job for job in Job.objects.select_related("owner") if job.owner.username == "user-000"]

    with CaptureQueriesContext(connection) as captured:
        page = html_of(client.get("/jobs/counts/?owner=user-000&state=FAILED"))

    assert len([query for query in captured if "COUNT(" in query["sql"]]) == 1
    shown = dict(re.findall(r">([A-Z][a-z ]+) <b>(\d+)</b>", page))
    expected = Counter(str(job.state).capitalize() for job in fitting)
    over = sum(job.state in TERMINAL for job in fitting)
    totals = {"All": len(fitting), "Finished": over, "Active": len(fitting) - over}
    assert {name: int(count) for name, count in shown.items()} == {**totals, **expected}
    assert f'data-fitting="{expected["Failed"]}"' in page


def test_an_order_can_be_turned_round(scene: Scene, alices: Client) -> None:
    page = html_of(alices.get("/jobs/?state=finished"))
    head = '<th scope="col" data-column="submitted" aria-sort="descending">'
    assert f'{head}<a href="?state=finished&amp;sort=oldest">Submitted</a>' in page
    page = html_of(alices.get("/jobs/?sort=name"))
    assert '<th scope="col" aria-sort="ascending"><a href="?sort=-name">Training</a>' in page


# --- Cost -----------------------------------------------------------------------------------------------------------


def is_by_index(plan: str) -> bool:
    """The database's plan reads the jobs by an index; SQLite says SCAN for an index in its order as well."""
    whole = [line for line in plan.splitlines() if re.search(r"SCAN jobs_job(?! USING)|Seq Scan on jobs_job", line)]
    return whole == [] and "job_" in plan


def plan_of(user: User, given: dict[str, str]) -> str:
    """Return how the database finds the keys of the page: the first question that the list asks of the jobs."""
    with CaptureQueriesContext(connection) as captured:
        job_page_of(user, JobFilter(given), given, 50)
    [sql, *_] = [query["sql"] for query in captured if 'FROM "jobs_job"' in query["sql"]]
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def check_plans(users: list[User]) -> None:
    # PostgreSQL looks for a part of a name in the rows themselves, where nothing else tells them apart.
    by_index = [given for given in FILTERS if connection.vendor == "sqlite" or [*given] != ["search"]]
    for user, given, sort in product(users, by_index, ORDERS):
        asked = {**given, "sort": sort}
        page = job_page_of(user, JobFilter(asked), asked, 50)
        plans = [plan_of(user, asked), *([plan_of(user, {**asked, "after": page.next})] if page.next else [])]
        assert all(is_by_index(plan) for plan in plans), (user, asked, plans)


def check_order(user: User) -> None:
    """A page stops after its last row: the order is the index's, nothing is sorted."""
    for sort in ORDERS:
        page = job_page_of(user, JobFilter({"sort": sort}), {}, 50)
        for given in ({"sort": sort}, {"sort": sort, "after": page.next or ""}):
            assert not re.search("TEMP B-TREE|Sort", plan_of(user, given)), given


def test_every_page_is_read_by_an_index(carol_sees_all: User) -> None:
    check_plans([carol_sees_all, User.objects.get(username="user-003")])
    check_order(carol_sees_all)


@pytest.mark.long
@pytest.mark.services
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_jobs_are_read_by_indexes(carol: User) -> None:
    make_many_jobs(100_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    check_plans([carol, User.objects.get(username="user-003")])
    check_order(carol)


def test_a_deep_page_asks_as_little_as_the_first(carol_sees_all: User, client: Client) -> None:
    client.force_login(carol_sees_all)

    def questions(path: str) -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path).status_code == 200
        return [query["sql"] for query in captured]

    deep = job_page_of(carol_sees_all, JobFilter({}), {}, MANY - 100).next
    first, later = questions("/jobs/"), questions(f"/jobs/?after={deep}")
    assert len(later) <= 13
    assert len(first) <= 25, "some of these wait: their line is played once"
    assert not [sql for sql in first + later if "COUNT(" in sql]
    assert len(questions("/jobs/?state=FAILED&owner=user-000&model=network-00&search=a&within=30d")) <= 13


def test_nobody_without_jobs_reads_others(many: None, client: Client) -> None:
    client.force_login(UserFactory())

    assert "There are no trainings yet" in html_of(client.get("/jobs/"))
    assert "There are no trainings yet" not in html_of(client.get("/jobs/?owner=user-000"))


def names_found(alices: Client, search: str) -> list[str]:
    """Return the names in the list of the API, which shares the filter with the page."""
    answer = alices.get("/api/v1/jobs/", {"search": search, "sort": "name"})
    assert answer.status_code == 200, answer.content
    return [job["name"] for job in answer.json()["results"]]


def test_a_regular_expression_between_slashes_finds_names(scene: Scene, alices: Client) -> None:
    for name in ("resnet-lr0.1", "ResNet-lr0.01", "vit-lr0.1", "my-resnet-lr0.1"):
        JobFactory(owner=scene.alice, instance_group=scene.first.instance_group, name=name)
    assert names_found(alices, "/^resnet.*lr0/") == ["ResNet-lr0.01", "resnet-lr0.1"]
    assert names_found(alices, r"/lr0\.1$/") == ["my-resnet-lr0.1", "resnet-lr0.1", "vit-lr0.1"]
    assert names_found(alices, "/") == names_found(alices, "//") == []


def test_a_regular_expression_takes_linear_time_and_a_bad_one_is_refused(scene: Scene, alices: Client) -> None:
    JobFactory(owner=scene.alice, instance_group=scene.first.instance_group, name="a" * 60)
    assert names_found(alices, "/(a+)+$/") == ["a" * 60]
    for bad in ("/(/", "/a{1000000}/", f"/{'a' * 300}/", r"/(a)\1/"):
        answer = alices.get("/api/v1/jobs/", {"search": bad})
        assert (answer.status_code, list(answer.json()["fields"])) == (400, ["search"]), bad
        assert "regular expression" in alices.get("/jobs/", {"search": bad}).content.decode()


def groups_of(alices: Client, query: str) -> list[tuple[object, ...]]:
    """Return (name, trainings, active, succeeded, failed) of each group on the page."""
    answer = alices.get(f"/jobs/?{query}")
    assert answer.status_code == 200
    return [(group.name, group.jobs, group.active, group.succeeded, group.failed) for group in answer.context["groups"]]


def test_the_list_is_grouped_and_each_group_opens_its_trainings(scene: Scene, alices: Client) -> None:
    listed = alices.get("/api/v1/jobs/", {"page_size": 200}).json()["results"]
    by_model = Counter(job["model"] for job in listed)
    groups = groups_of(alices, "group=model")
    assert {name: count for name, count, *_ in groups} == by_model
    active = Counter(job["model"] for job in listed if not job["finished_at"])
    assert {name: count for name, _, count, *_ in groups if count} == active

    page = alices.get("/jobs/?group=model&state=active&search=T")
    [group, *_] = page.context["groups"]
    opened = alices.get(f"/jobs/?{group.address}")
    assert len(opened.context["page"].rows) == group.jobs
    assert opened.context["given"]["state"] == "active"


def test_a_training_counts_for_each_of_its_tags_and_for_none(scene: Scene, alices: Client) -> None:
    change_tags(scene.first.pk, TagChange(["baseline", "paper"], []), "alice")
    change_tags(scene.second.pk, TagChange(["paper"], []), "alice")
    groups = {name: (count, *_) for name, count, *_ in groups_of(alices, "group=tag")}
    assert (groups["baseline"][0], groups["paper"][0]) == (1, 2)
    [both] = [group for group in alices.get("/jobs/?group=tag&tag=paper").context["groups"] if group.name == "baseline"]
    assert [job.pk for job in alices.get(f"/jobs/?{both.address}").context["page"].rows] == [scene.first.pk]


def test_a_list_is_not_grouped_by_anything(scene: Scene, alices: Client) -> None:
    assert alices.get("/jobs/?group=secret").status_code == 400
