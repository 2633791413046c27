"""The Train form's typed parameters, previews of both forms, and the undoing of a change."""

import pytest
from django.test import Client

from jobs.models import InstanceGroup, Job, JobEvent
from tests.factories import UserFactory
from tests.html import html_of
from tests.scene import Scene


@pytest.mark.parametrize(
    ("typed", "parameters"), [("7", {"epochs": 7}), ("20", {}), ("", {}), (" 1.5 ", {"epochs": 1.5})]
)
def test_only_what_differs_from_the_model_is_given(
    training: dict, alices: Client, typed: str, parameters: dict
) -> None:
    alices.post("/jobs/new/", {**training, "parameter.epochs": typed})
    assert Job.objects.get(name="mine").parameters == parameters


@pytest.mark.parametrize("where", [{"parameter.epochs": "many"}, {"parameters": "epochs = many"}])
def test_a_parameter_of_another_kind_is_refused(training: dict, alices: Client, where: dict) -> None:
    response = alices.post("/jobs/new/", {**training, **where})
    assert "The parameter epochs must be a number, such as 20." in html_of(response)
    if "parameter.epochs" in where:
        typed = response.context["typed_parameters"]
        assert (typed["values"], list(typed["errors"])) == ({"epochs": "many"}, ["epochs"])
    assert not Job.objects.filter(name="mine").exists()


def test_a_parameter_is_given_once(training: dict, alices: Client) -> None:
    response = alices.post("/jobs/new/", {**training, "parameter.epochs": "3", "parameters": "epochs = 4"})
    assert "epochs has a separate field above" in html_of(response)


def test_the_preview_says_what_does_not_fit_instead(training: dict, alices: Client) -> None:
    answer = alices.post("/jobs/new/preview/", {**training, "max_slots": "99", "name": ""})
    assert answer.status_code == 200
    assert answer.json() == {"errors": {"name": ["Fill in this field."]}, "awaited": ["name"]}
    answer = alices.post("/jobs/new/preview/", {**training, "max_slots": "99"})
    assert answer.json()["errors"]["max_slots"] == ["sig-elastic has 8 GPUs: request at most 8, not 99."]


def test_the_preview_writes_nothing_and_names_nobody_else(training: dict, alices: Client, bobs: Client) -> None:
    before = Job.objects.count()
    seen = alices.post("/jobs/new/preview/", {**training, "priority": 9999}).json()["preview"]
    assert {other["name"] for other in seen["others"]} >= {"T2 digits-cnn", "another user's training"}
    strangers = html_of(bobs.post("/jobs/new/preview/", training))
    assert "digits-cnn shrinks" not in strangers
    assert "bobs-secret" not in repr(seen)
    assert Job.objects.count() == before


@pytest.mark.parametrize("address", ["change/preview/", "undo/"])
def test_others_jobs_cannot_be_asked_about(scene: Scene, bobs: Client, carols: Client, address: str) -> None:
    values = {"priority": 9000, "max_slots": 8, "events": "1"}
    assert bobs.post(f"/jobs/{scene.first.pk}/{address}", values).status_code == 404
    assert carols.post(f"/jobs/{scene.first.pk}/{address}", values).status_code in (200, 302)


def test_a_change_of_both_is_undone_as_one(scene: Scene, alices: Client) -> None:
    job = scene.first
    page = html_of(alices.post(f"/jobs/{job.pk}/change/", {"priority": 9000, "max_slots": 6}, follow=True))
    events = JobEvent.objects.filter(job=job, reason__in=["PRIORITY_CHANGED", "LIMIT_CHANGED"]).order_by("seq")
    numbers = " ".join(str(event.seq) for event in events)
    assert f'value="{numbers}"' in page
    assert "Undo: priority 5000" in page
    alices.post(f"/jobs/{job.pk}/undo/", {"events": numbers})
    job.refresh_from_db()
    assert (job.priority, job.max_slots) == (5000, 8)


def test_a_time_limit_is_set_and_taken_off_beside_the_others(scene: Scene, alices: Client) -> None:
    job, address = scene.first, f"/jobs/{scene.first.pk}/change/"
    values = {"priority": job.priority, "max_slots": job.max_slots}

    def limit_after(**given: object) -> int | None:
        assert alices.post(address, {**values, **given}).status_code == 302
        job.refresh_from_db()
        return job.max_seconds

    assert limit_after(max_seconds=3600) == 3600
    page = alices.get(f"/jobs/{job.pk}/")
    assert (page.context["form"]["max_seconds"].value(), "Undo: time limit none" in html_of(page)) == (
        3600,
        True,
    )
    assert limit_after() == 3600, "who does not send the field leaves it"
    assert limit_after(max_seconds="") is None
    answer = alices.post(f"{address}preview/", {**values, "max_seconds": 5}).json()
    assert list(answer["errors"]) == ["max_seconds"]


def test_an_undo_that_comes_too_late_undoes_nothing(scene: Scene, alices: Client, carols: Client) -> None:
    job = scene.first
    alices.post(f"/jobs/{job.pk}/change/", {"priority": 9000, "max_slots": 6})
    numbers = " ".join(
        str(seq) for seq in JobEvent.objects.filter(job=job).order_by("-seq")[:2].values_list("seq", flat=True)
    )
    carols.post(f"/jobs/{job.pk}/change/", {"priority": 100, "max_slots": 6})
    page = html_of(alices.post(f"/jobs/{job.pk}/undo/", {"events": numbers}, follow=True))
    assert "by carol, to 100" in page
    job.refresh_from_db()
    assert (job.priority, job.max_slots) == (100, 6)


def test_nonsense_is_no_event(scene: Scene, alices: Client) -> None:
    for events in ("x", "99999999999999999999", "1", ""):
        assert alices.post(f"/jobs/{scene.first.pk}/undo/", {"events": events}).status_code == 302
    assert Job.objects.get(pk=scene.first.pk).priority == 5000


def test_an_administrator_is_told_which_group_to_start_or_to_make_one(scene: Scene, carols: Client) -> None:
    InstanceGroup.objects.update(state=InstanceGroup.State.STOPPED)
    group = scene.first.instance_group
    shown = html_of(carols.get("/jobs/new/"))
    assert "Ask an administrator" not in shown
    assert f'Start one: <a href="/instance-groups/{group.pk}/">{group.name}</a>.' in shown


def test_an_administrator_of_an_empty_site_is_led_to_the_first_group(db: None) -> None:
    carols = Client()
    carols.force_login(UserFactory(is_staff=True))
    assert '<a href="/instance-groups/new/">Create one from a template</a>' in html_of(carols.get("/jobs/new/"))
