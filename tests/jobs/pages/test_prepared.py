"""Environments on hosts: what administrators see and do on pages, and by REST."""

from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from core.models import AuditEntry
from jobs.actions.prepared import log_of
from jobs.models import HostEnvironment, JobRun, NamedEnvironment, RequiredEnvironment
from tests.environments import prepared_environment
from tests.factories import JobFactory, ResourceGroupFactory, UserFactory, host_with_slots
from workers.models import Host

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision() -> NamedEnvironment:
    for name in ("gpu1", "gpu2", "gpu3"):
        host_with_slots(name, 2)
    return prepared_environment("vision", "timm>=1.0")


@pytest.fixture
def required(vision: NamedEnvironment) -> RequiredEnvironment:
    return vision.required


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(UserFactory(username="root", is_staff=True))
    return client


def page(required: RequiredEnvironment, *parts: str) -> str:
    return "/".join(["/environments/packages", str(required.pk), *parts, ""])


def messages_of(client: Client, address: str, **values: str) -> str:
    answer = client.post(address, values, follow=True)
    return " ".join(str(message) for message in answer.context["messages"])


def test_pages_tell_where_it_is(admin: Client, required: RequiredEnvironment) -> None:
    RequiredEnvironment.of("albumentations\nopencv-python")
    listed = admin.get("/environments/").content.decode()
    assert "ready on 1 host, being prepared on 1, failed on 1" in listed
    assert "albumentations, opencv-python" in listed
    assert "on no host yet" in listed
    shown = admin.get(page(required)).content.decode()
    for part in ("<h1>vision</h1>", "No solution found", "1.9", "every 2s"):
        assert part in shown
    HostEnvironment.objects.update(state="ready", why="")
    assert "every 15s" in admin.get(page(required, "hosts")).content.decode()


def test_the_output_of_a_build_is_shown_and_no_link_is_followed(
    admin: Client, required: RequiredEnvironment, tmp_path: Path
) -> None:
    log = log_of(required, "gpu1")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("Installing timm>=1.0.\n")
    HostEnvironment.objects.filter(host__name="gpu1").update(log=str(log))
    address = page(required, "output", str(Host.objects.get(name="gpu1").pk))
    assert "Installing timm&gt;=1.0." in admin.get(address).content.decode()
    part = admin.get(address, headers={"hx-request": "true"}).content.decode()
    assert "Installing" in part
    assert "<html" not in part
    (secret := tmp_path / "secret").write_text("hush")
    log.unlink()
    log.symlink_to(secret)
    assert "hush" not in admin.get(address).content.decode()
    HostEnvironment.objects.filter(host__name="gpu1").update(log=str(secret))
    assert not secret.is_relative_to(settings.TIDEPOOL_HOME)
    assert "hush" not in admin.get(address).content.decode()
    assert admin.get(page(required, "output", "0")).status_code == 404


def test_hosts_of_a_resource_group_prepare_it(admin: Client, vision: NamedEnvironment) -> None:
    HostEnvironment.objects.all().delete()
    group = ResourceGroupFactory(name="two", selection="static")
    group.hosts.set(Host.objects.filter(name__in=["gpu1", "gpu2"]))
    address = f"/environments/{vision.pk}/prepare/"
    assert "no resource group" in messages_of(admin, address, resource_group="none")
    assert "prepare the environment vision" in messages_of(admin, address, resource_group="two")
    asked = HostEnvironment.objects.values_list("host__name", "state", "log")
    assert sorted(asked) == [(name, "asked", str(log_of(vision.required, name))) for name in ("gpu1", "gpu2")]
    messages_of(admin, address)
    assert HostEnvironment.objects.count() == 3
    assert AuditEntry.objects.filter(verb="had prepared").count() == 2
    Host.objects.update(state=Host.State.OFFLINE)
    assert "No host" in messages_of(admin, address)


def test_what_is_ready_is_not_asked_again_but_for_a_new_build(admin: Client, vision: NamedEnvironment) -> None:
    messages_of(admin, f"/environments/{vision.pk}/prepare/")
    rows = HostEnvironment.objects.order_by("host__name")
    assert [(row.state, row.number) for row in rows] == [("ready", 1), ("building", 1), ("asked", 2)]
    messages_of(admin, page(vision.required, "again"))
    assert {(row.state, row.is_fresh) for row in rows.all()} == {("asked", True)}
    assert [row.number for row in rows.all()] == [2, 2, 3]


def test_what_trainings_use_or_a_name_has_is_not_taken_away(admin: Client, vision: NamedEnvironment) -> None:
    required = vision.required
    job = JobFactory()
    JobRun.objects.filter(job=job).update(required=required)
    for action in ("again", "remove"):
        assert "1 waiting or running training uses it" in messages_of(admin, page(required, action))
    job.state, job.finished_at = "SUCCEEDED", timezone.now()
    job.save()
    assert "It is the environment vision" in messages_of(admin, page(required, "remove"))
    vision.delete()
    assert "remove it" in messages_of(admin, page(required, "remove"))
    assert not RequiredEnvironment.objects.exists()


def test_it_is_kept_or_not(admin: Client, required: RequiredEnvironment) -> None:
    messages_of(admin, page(required, "keep"), keep="yes")
    required.refresh_from_db()
    assert required.is_pinned
    messages_of(admin, page(required, "keep"), keep="no")
    required.refresh_from_db()
    assert not required.is_pinned
    assert AuditEntry.objects.get(verb="changed", after={"kept": False}).name == "vision"


def test_rest_has_the_same(admin: Client, vision: NamedEnvironment) -> None:
    row = admin.get("/api/v1/environments/vision/").json()
    assert [(host["host"], host["state"]) for host in row["hosts"]] == [
        ("gpu1", "ready"), ("gpu2", "building"), ("gpu3", "failed"),
    ]  # fmt: skip
    [prepared] = admin.get("/api/v1/prepared-environments/").json()["results"]
    address = f"/api/v1/prepared-environments/{prepared['id']}/"
    assert (prepared["names"], prepared["lines"], prepared["trainings"]) == (["vision"], ["timm>=1.0"], 0)
    changed = admin.patch(address, {"is_pinned": True}, content_type="application/json")
    assert changed.json()["is_pinned"] is True
    assert admin.post(f"{address}rebuild/").status_code == 202
    built = admin.post("/api/v1/environments/vision/build/", {}, content_type="application/json")
    assert (built.status_code, len(built.json()["hosts"])) == (202, 3)
    refused = admin.post("/api/v1/environments/vision/build/", {"resource_group": "x"}, content_type="application/json")
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["resource_group"])
    assert admin.delete(address).status_code == 409
    vision.delete()
    assert admin.delete(address).status_code == 204
    assert admin.get(address).status_code == 404


def test_a_change_of_its_lines_is_another_requirement(admin: Client, vision: NamedEnvironment) -> None:
    before = vision.required
    vision.lines = vision.source = "timm>=1.1"
    vision.save(update_fields=["lines", "source"])
    vision.refresh_from_db()
    assert vision.required.lines == "timm>=1.1"
    assert not before.names.exists()
