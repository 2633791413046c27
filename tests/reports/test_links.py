"""Public links: allowed by the site, for some days, counted, withdrawn at once; and the page that they open."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import Conflict, NotAllowed, UserError
from core.models import AuditEntry
from jobs.models import AllocationPoint, Job, JobEvent
from reports import actions, links
from reports.figures import figure_choices, freeze
from reports.models import Report, ReportBlock, ShareLink
from tests.factories import HostFactory, JobFactory, UserFactory, set_job
from tests.scene import Scene

_LONG_AGO = timedelta(days=40)


@pytest.fixture
def allowed(settings: Any) -> Any:
    settings.TIDEPOOL_PUBLIC_REPORT_DAYS = 30
    return settings


@pytest.fixture
def report(scene: Scene) -> Report:
    report = actions.make_report(scene.alice, "Rates")
    actions.add_text(scene.alice, report.pk, "Lower *is* better.")
    return report


def test_links_require_a_setting_of_the_site(scene: Scene, report: Report) -> None:
    with pytest.raises(NotAllowed, match="An administrator can allow them"):
        links.share(scene.alice, report.pk, 7)


@pytest.mark.parametrize("days", [0, 31, -1])
def test_no_longer_than_allowed(scene: Scene, report: Report, allowed: Any, days: int) -> None:
    with pytest.raises(UserError, match="1 to 30 days"):
        links.share(scene.alice, report.pk, days)


def test_read_by_anybody_counted_and_withdrawn_at_once(scene: Scene, report: Report, allowed: Any) -> None:
    made = links.share(scene.alice, report.pk, 7)
    secret = made.path.split("/")[2]
    assert len(secret) == 43
    assert secret not in str(ShareLink.objects.values())
    stranger = Client()

    answer = stranger.get(made.path)
    assert answer.status_code == 200
    assert "Lower <em>is</em> better." in answer.content.decode()
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "noindex" in answer.headers["X-Robots-Tag"]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert not answer.cookies
    stranger.head(made.path)
    stranger.get(made.path)
    made.row.refresh_from_db()
    assert made.row.uses == 2
    assert made.row.last_used_at is not None
    assert stranger.post(made.path).status_code == 405

    links.withdraw(scene.alice, report.pk, made.row.pk)
    links.withdraw(scene.alice, report.pk, made.row.pk)
    gone = stranger.get(made.path)
    assert (gone.status_code, gone.headers["Cache-Control"]) == (410, "no-store")
    assert "was revoked" in gone.content.decode()
    assert list(AuditEntry.objects.order_by("pk").values_list("verb", flat=True)) == [
        "created a public link to",
        "revoked a public link to",
    ]
    assert secret not in str(AuditEntry.objects.values())


def test_the_page_is_the_same_for_logged_in_users(scene: Scene, report: Report, allowed: Any, alices: Client) -> None:
    path = links.share(scene.alice, report.pk, 7).path
    assert alices.get(path).content == Client().get(path).content


@pytest.mark.parametrize("end", ["time", "setting", "days", "account", "report"])
def test_a_link_ends(scene: Scene, report: Report, allowed: Any, end: str) -> None:
    made = links.share(scene.alice, report.pk, 30)
    made_at = timezone.now() - timedelta(days=10)
    ShareLink.objects.update(created_at=made_at, expires_at=made_at + timedelta(days=30))
    assert Client().get(made.path).status_code == 200
    if end == "time":
        ShareLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif end == "setting":
        allowed.TIDEPOOL_PUBLIC_REPORT_DAYS = 0
    elif end == "days":
        allowed.TIDEPOOL_PUBLIC_REPORT_DAYS = 9
    elif end == "account":
        User.objects.filter(pk=scene.alice.pk).update(is_active=False)
    else:
        actions.delete_report(scene.alice, report.pk)
    assert Client().get(made.path).status_code == (404 if end == "report" else 410)


def test_guesses_are_throttled(scene: Scene, report: Report, allowed: Any) -> None:
    path = links.share(scene.alice, report.pk, 7).path
    assert [Client().get(f"/shared/guess-{number}/").status_code for number in range(10)] == [404] * 9 + [429]
    assert Client().get(path).status_code == 429
    assert Client(REMOTE_ADDR="192.0.2.7").get(path).status_code == 200


def test_the_error_lists_the_names_in_the_report(scene: Scene, report: Report, allowed: Any) -> None:
    actions.add_text(scene.alice, report.pk, "Bob saw it on gpu-host-1, in /data/x.")
    with pytest.raises(Conflict, match="The report names user Bob, host gpu-host-1, path /data/x") as refused:
        links.share(scene.alice, report.pk, 7)
    assert list(refused.value.fields) == ["confirmed"]
    assert links.share(scene.alice, report.pk, 7, confirmed=True).path


def test_the_number_of_links_is_limited(scene: Scene, report: Report, allowed: Any) -> None:
    made = [links.share(scene.alice, report.pk, 1) for _ in range(links.MAX_LINKS)]
    with pytest.raises(Conflict, match="20 links"):
        links.share(scene.alice, report.pk, 1)
    old = timezone.now() - _LONG_AGO
    ShareLink.objects.filter(pk=made[0].row.pk).update(created_at=old, expires_at=old + timedelta(days=1))
    links.share(scene.alice, report.pk, 1)


def test_texts_have_no_links_to_the_site(scene: Scene, report: Report, allowed: Any) -> None:
    own = "[a](/jobs/1/) [b](http://testserver/jobs/1/) [d](jobs/1/) [e](//testserver/x)"
    actions.add_text(scene.alice, report.pk, f"{own} [c](https://example.org/) [f](mailto:a@b.org)")
    content = Client().get(links.share(scene.alice, report.pk, 7, confirmed=True).path).content.decode()
    [article] = re.findall(r"<article.*</article>", content, re.DOTALL)
    assert re.findall(r'href="([^"]*)"', article) == ["https://example.org/", "mailto:a@b.org"]
    assert all(f">{letter}</a>" in article for letter in "abcdef")


# --- Shared reports contain no other names ---------------------------------------------------------------------------

#: Names that stand nowhere else in a page of this site.
HOSTS = ("xhost-quartz", "xhost-7.basalt.internal")
PATHS = ("/srv/xsecret/digits", "/home/xuser-otto/run.py", "~/xsecret")
PEOPLE = ("xuser-otto", "xuser-ines")
OTHERS = ("xjob-of-otto", "xjob-of-ines")
places = st.sampled_from([*HOSTS, *PATHS])
wrapped = st.builds(
    str.format,
    st.sampled_from(
        ["{}", "--at={}", "{}:8080", "[{}]", "a {} b", "'{}',", "x={},y={}", "see {}.", "({})", "x_{}_0", "{}-a"]
    ),
    places,
    places,
)
parameters = st.dictionaries(
    st.one_of(st.sampled_from(["data", "master", "resume"]), places),
    st.one_of(wrapped, st.lists(wrapped, max_size=2), st.dictionaries(places, wrapped, max_size=1), st.integers()),
    max_size=4,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_parameters=parameters)
def test_a_shared_page_names_no_other_job_user_host_or_path(
    scene: Scene, allowed: Any, given_parameters: dict[str, Any]
) -> None:
    report = actions.make_report(scene.alice, "All of it")
    jobs = [scene.first, scene.done]
    for host in HOSTS:
        HostFactory._meta.model.objects.get_or_create(name=host, defaults={"state": "OFFLINE"})
    for person, name in zip(PEOPLE, OTHERS, strict=True):
        owner = User.objects.filter(username=person).first() or UserFactory(username=person)
        other = JobFactory(owner=owner, name=name, model=scene.model, instance_group=scene.first.instance_group)
        reason = {"code": "compared", "params": {"others": [{"job": other.pk, "name": name, "owner": person}]}}
        JobEvent.objects.filter(job=scene.first).update(detail=reason, actor=person)
        AllocationPoint.objects.filter(job=scene.first).update(reason_params=reason)
    Job.objects.filter(pk=scene.first.pk).update(
        parameters=given_parameters,
        environment={"HOME": PATHS[0], "MASTER": HOSTS[0]},
        arguments=["--at", PATHS[0]],
    )
    error = {"kind": "OSError", "message": f"{PATHS[0]} on {HOSTS[0]}", "traceback": PATHS[1]}
    set_job(scene.first, error=error)
    scene.first.refresh_from_db()
    keys = [choice.key for choice in figure_choices(jobs) if not choice.key.startswith("note:")]

    actions.add_figures(scene.alice, report.pk, jobs, keys)
    path = links.share(scene.alice, report.pk, 7).path  # unconfirmed: it names nothing
    content = Client().get(path).content.decode()

    names = [
        *HOSTS,
        *PATHS,
        *PEOPLE,
        *OTHERS,
        "alice",
        "bob",
        "bobs-secret",
        "digits-wide",
        "digits-resume",
        "gpu-host",
    ]
    assert [name for name in names if name.casefold() in content.casefold()] == []
    assert re.findall(r'href="/(?!static/)[^"]*"', content) == []
    data = str(list(ReportBlock.objects.filter(report=report).values("data", "title", "text", "sources")))
    assert [name for name in names if name.casefold() in data.casefold()] == []
    assert freeze(jobs, ["chart:GPUs"])[0].data["lines"][0].keys() == {"job", "label", "metric", "every", "points"}
