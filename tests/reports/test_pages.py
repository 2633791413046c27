"""The pages and forms of reports."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import Job
from reports import actions
from reports.models import Report, ReportBlock, ShareLink
from tests.html import html_of
from tests.scene import Scene


def test_a_training_is_added_to_a_new_and_to_an_existing_report(scene: Scene, alices: Client) -> None:
    address = f"/reports/add/?jobs={scene.first.pk}"
    assert f'href="{address}"' in html_of(alices.get(f"/jobs/{scene.first.pk}/"))
    form = html_of(alices.get(address))
    assert form.count('name="figures"') == 11
    assert f'value="note:{scene.first.pk}"' in form
    sent = {"report": "new", "title": "Rates", "figures": ["chart:Loss", "table:summary"], "text": "# Why"}
    made = alices.post(address, sent)
    report = Report.objects.get(title="Rates")
    assert made["Location"] == f"/reports/{report.pk}/edit/#block-{report.blocks.order_by('place')[0].pk}"
    assert [block.kind for block in report.blocks.order_by("place")] == ["text", "chart", "table"]

    both = f"/reports/add/?jobs={scene.first.pk},{scene.second.pk}"
    assert both.replace(",", "%2C") in html_of(alices.get(f"/jobs/compare/{both.removeprefix('/reports/add/')}"))
    alices.post(both, {"report": report.pk, "figures": ["table:settings"], "text": ""})
    assert report.blocks.order_by("place").last().sources == [[job.pk, job.name] for job in (scene.first, scene.second)]
    page = html_of(alices.get(f"/reports/{report.pk}/"))
    assert "<h3>Why</h3>" in page
    assert "Settings and parameters" in page
    assert f'<a href="/jobs/{scene.second.pk}/">T2 digits-cnn</a>' in page


def test_a_study_offers_its_best_trials(scene: Scene, alices: Client) -> None:
    Job.objects.filter(pk=scene.done.pk).update(bundle=scene.study.pk)
    address = f"/reports/add/?jobs={scene.done.pk}"
    assert f'href="{address}"' in html_of(alices.get(f"/studies/{scene.study.pk}/"))
    form = html_of(alices.get(address))
    chosen = re.findall(r'value="([^"]*)"[^>]* checked', form)
    assert chosen[:2] == [f"study:{scene.study.pk}", f"trials:{scene.study.pk}"]
    alices.post(address, {"report": "new", "title": "Rates", "figures": chosen, "text": ""})
    report = Report.objects.get(title="Rates")
    page = html_of(alices.get(f"/reports/{report.pk}/"))
    assert "Trial 1 is the best: its last test_accuracy, 96.4, is the highest" in page
    assert "Trials of Learning rates" in page


def test_a_failed_form_keeps_its_input(scene: Scene, alices: Client) -> None:
    address = f"/reports/add/?jobs={scene.first.pk}"
    failed = alices.post(address, {"report": "new", "title": " ", "figures": ["chart:Loss"], "text": "Typed."})
    content = html_of(failed)
    assert failed.status_code == 400
    assert "Give the report a title." in content
    assert "Typed." in content
    assert re.findall(r'value="([^"]*)"[^>]* checked', content) == ["chart:Loss"]
    assert not Report.objects.exclude(pk=scene.report.pk).exists()

    edit = f"/reports/{scene.report.pk}/"
    text = scene.report.blocks.get(kind="text")
    for address, sent in [
        (f"{edit}edit/", {"title": "Kept" * 60}),
        (f"{edit}texts/", {"text": "Kept\0"}),
        (f"{edit}blocks/{text.pk}/text/", {"text": "Kept", "after": "7"}),
    ]:
        failed = alices.post(address, sent)
        assert failed.status_code == 400
        assert "Kept" in html_of(failed)
    assert '<details class="report-text" open>' in html_of(failed)


def test_order_texts_readers_and_end(scene: Scene, alices: Client) -> None:
    report, edit = scene.report, f"/reports/{scene.report.pk}/"
    first, chart = report.blocks.order_by("place")[:2]
    moved = alices.post(f"{edit}blocks/{first.pk}/move/", {"place": "1"})
    assert moved["Location"] == f"{edit}edit/#block-{first.pk}"
    assert report.blocks.order_by("place")[0] == chart
    assert 'name="below" value' in html_of(alices.get(f"{edit}edit/?below={chart.pk}"))
    alices.post(f"{edit}texts/", {"text": "Between", "below": chart.pk})
    assert report.blocks.get(place=1).text == "Between"
    alices.post(f"{edit}blocks/{first.pk}/text/", {"text": "Another", "after": "0"})
    alices.post(f"{edit}blocks/{chart.pk}/remove/")
    assert list(report.blocks.order_by("place").values_list("kind", flat=True)) == ["text", "text", "table", "note"]
    assert report.blocks.get(place=1).text == "Another"
    alices.post(f"{edit}edit/", {"title": "Again"})
    alices.post(f"{edit}readers/", {"readers": "everybody"})
    report.refresh_from_db()
    assert (report.title, report.readers) == ("Again", "everybody")
    assert alices.post(f"{edit}blocks/{chart.pk}/remove/").status_code == 404
    alices.post(f"{edit}delete/")
    assert not Report.objects.exists()
    assert not ReportBlock.objects.exists()


def test_readers_see_no_training_and_change_nothing(scene: Scene, bobs: Client) -> None:
    edit = f"/reports/{scene.report.pk}/"
    assert bobs.get(edit).status_code == 404
    actions.set_readers(scene.alice, scene.report.pk, "everybody")
    page = html_of(bobs.get(edit))
    assert "T1 digits-cnn" in page
    assert not re.search(
        r'href="/jobs/\d', page.replace('<a href="/jobs/1/" rel', "")
    )  # the note's text contains that link
    assert "Edit report" not in page
    assert 'id="sharing"' not in page
    assert bobs.get(f"{edit}edit/").status_code == 404
    assert bobs.post(f"{edit}delete/").status_code == 403
    assert "Two learning rates" in html_of(bobs.get("/reports/"))


def test_a_public_link_is_shown_once(scene: Scene, alices: Client, settings: Any) -> None:
    address = f"/reports/{scene.report.pk}/"
    assert "TIDEPOOL_PUBLIC_REPORT_DAYS" in html_of(alices.get(address))
    refused = alices.post(f"{address}links/", {"days": 7})
    assert (refused.status_code, "does not allow public links" in html_of(refused)) == (400, True)
    settings.TIDEPOOL_PUBLIC_REPORT_DAYS = 14
    unconfirmed = alices.post(f"{address}links/", {"days": 7})
    assert unconfirmed.status_code == 400
    assert "The report names path /jobs/1/" in html_of(unconfirmed)
    made = alices.post(f"{address}links/", {"days": 7, "confirmed": "on"}, follow=True)
    [path] = set(re.findall(r"/shared/[\w-]{43}/", html_of(made)))
    assert Client().get(path).status_code == 200
    alices.cookies.pop("tidepool_shown")
    page = html_of(alices.get(address))
    assert "/shared/" not in page
    assert "Revoke" in page
    assert "public link" in html_of(alices.get("/reports/"))
    alices.post(f"{address}links/{ShareLink.objects.get().pk}/withdraw/")
    assert Client().get(path).status_code == 410
    assert "public link" not in html_of(alices.get("/reports/"))


@pytest.mark.parametrize(
    "address", ["/reports/add/?jobs=x", "/reports/add/?jobs=1,2,3,4,5,6,7,8,9", "/reports/?after=nonsense"]
)
def test_invalid_addresses(scene: Scene, alices: Client, address: str) -> None:
    assert alices.get(address).status_code == 400


def test_the_number_of_queries_does_not_depend_on_the_data(
    scene: Scene, alices: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        report = actions.make_report(scene.alice, f"Report {number}")
        actions.add_figures(scene.alice, report.pk, [scene.first, scene.done], ["table:results", "table:settings"])
        actions.add_figures(scene.alice, scene.report.pk, [scene.done], ["table:results"])
    with django_assert_max_num_queries(6):
        alices.get("/reports/")
    with django_assert_max_num_queries(12):
        alices.get(f"/reports/{scene.report.pk}/")


def test_hostile_input_is_escaped(scene: Scene, alices: Client) -> None:
    report = actions.make_report(scene.alice, "</title><script>alert(1)</script>")
    actions.add_text(scene.alice, report.pk, "<script>alert(2)</script> [x](javascript:alert(3))")
    User.objects.filter(pk=scene.alice.pk).update(username="<b>alice</b>")
    for address in (f"/reports/{report.pk}/", f"/reports/{report.pk}/edit/", "/reports/"):
        content = html_of(alices.get(address))
        assert "<script>alert" not in content
        assert 'href="javascript' not in content
        assert "<b>alice" not in content
