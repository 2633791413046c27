"""Pages of named environments: who sees which, and two administrators who write at once."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import DefaultEnvironment, InstanceGroup, NamedEnvironment
from tests.factories import InstanceGroupFactory, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def group() -> InstanceGroup:
    group: InstanceGroup = InstanceGroupFactory(name="sig-elastic")
    return group


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(UserFactory(username="root", is_staff=True))
    return client


@pytest.fixture
def vision() -> NamedEnvironment:
    return NamedEnvironment.objects.create(name="vision", kind="text", source="timm>=1.0", lines="timm>=1.0")


FIELDS = {"name": "vision", "source": "timm>=1.0", "lock": "", "notes": ""}


def opened(**values: object) -> dict[str, object]:
    return {f"before-{name}": value for name, value in {**FIELDS, **values}.items()}


def test_an_administrator_writes_one(admin: Client, group: InstanceGroup) -> None:
    values = {**FIELDS, "source": "timm>=1.0\r\n", "groups": ["sig-elastic"], "default_of": ["sig-elastic"]}
    assert admin.post("/environments/new/", values).status_code == 302
    row = NamedEnvironment.objects.get()
    assert (row.lines, row.source, [*row.groups.all()]) == ("timm>=1.0", "timm>=1.0\n", [group])
    assert DefaultEnvironment.objects.get().group == group
    page = admin.get("/environments/").content.decode()
    assert page.count("sig-elastic") >= 2


def test_what_cannot_be_used_stays_in_the_form_with_the_cause(admin: Client) -> None:
    answer = admin.post("/environments/new/", {**FIELDS, "source": "mine @ file:///home/me/x.whl"})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert "on another machine" in page
    assert "file:///home/me/x.whl" in page
    assert not NamedEnvironment.objects.exists()


def test_what_only_one_of_two_changes_stays(admin: Client, vision: NamedEnvironment) -> None:
    NamedEnvironment.objects.filter(pk=vision.pk).update(notes="by somebody else")
    answer = admin.post(f"/environments/{vision.pk}/", {**FIELDS, "source": "timm>=1.1", **opened()})
    vision.refresh_from_db()
    assert (answer.status_code, vision.lines, vision.notes) == (302, "timm>=1.1", "by somebody else")


def test_what_both_change_is_asked(admin: Client, vision: NamedEnvironment) -> None:
    NamedEnvironment.objects.filter(pk=vision.pk).update(notes="theirs")
    answer = admin.post(f"/environments/{vision.pk}/", {**FIELDS, "notes": "mine", **opened()})
    vision.refresh_from_db()
    assert (answer.status_code, vision.notes) == (409, "theirs")
    assert "changed this to theirs meanwhile" in answer.content.decode()


def test_users_see_those_of_their_groups_and_change_none(
    client: Client, vision: NamedEnvironment, group: InstanceGroup, alice: User
) -> None:
    client.force_login(alice)
    assert 'href="/environments/new/"' not in client.get("/environments/").content.decode()
    shown = client.get(f"/environments/{vision.pk}/").content.decode()
    assert "timm&gt;=1.0" in shown
    assert "Save changes" not in shown
    assert client.post(f"/environments/{vision.pk}/", FIELDS).status_code == 403
    closed: InstanceGroup = InstanceGroupFactory(name="closed")
    closed.members.set([UserFactory()])
    vision.groups.set([closed])
    assert client.get(f"/environments/{vision.pk}/").status_code == 404
    assert "vision" not in client.get("/environments/").content.decode()


def test_a_folder_is_written_instead_of_requirements(admin: Client, alice: User) -> None:
    answer = admin.post("/environments/new/", {**FIELDS, "source": "", "folder": "/opt/envs/vision"})
    assert answer.status_code == 302
    row = NamedEnvironment.objects.get()
    assert (row.kind, row.lines) == ("folder", "--folder /opt/envs/vision")
    assert "Folder" in admin.get("/environments/").content.decode()
    admin.force_login(alice)
    assert "/opt/envs/vision" in admin.get(f"/environments/{row.pk}/").content.decode()


def test_one_is_deleted(admin: Client, vision: NamedEnvironment) -> None:
    assert admin.post(f"/environments/{vision.pk}/delete/").status_code == 302
    assert not NamedEnvironment.objects.exists()
