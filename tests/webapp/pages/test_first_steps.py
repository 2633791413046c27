"""An empty home says in which order it is set up: GPUs, a resource group, an instance group, a training."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import InstanceGroup
from tests.factories import (
    InstanceGroupFactory,
    JobFactory,
    ResourceGroupFactory,
    UserFactory,
    host_with_slots,
)
from tests.html import html_of

pytestmark = pytest.mark.django_db
STEPS = ["GPUs", "Resource group", "Instance group", "Training"]


@pytest.fixture
def carol() -> User:
    return UserFactory(username="carol", is_staff=True)


@pytest.fixture
def carols(carol: User) -> Client:
    client = Client()
    client.force_login(carol)
    return client


def steps(client: Client) -> list[tuple[str, bool]]:
    """Return the titles of the steps on the overview, and whether each has its tick."""
    parts = html_of(client.get("/")).split('<li class="first-step')[1:]
    return [(part.split("<b>")[1].split("</b>")[0], part.startswith(" is-done")) for part in parts]


def test_each_step_gets_its_tick_and_all_go_with_the_first_training(carols: Client) -> None:
    assert steps(carols) == [(name, False) for name in STEPS]
    host_with_slots()
    assert [done for _, done in steps(carols)] == [True, False, False, False]
    group = ResourceGroupFactory()
    assert [done for _, done in steps(carols)] == [True, True, False, False]
    made = InstanceGroupFactory(resource_group=group, state=InstanceGroup.State.STOPPED)
    assert [done for _, done in steps(carols)] == [True, True, False, False], "a stopped group accepts no training"
    InstanceGroup.objects.filter(pk=made.pk).update(state=InstanceGroup.State.STARTED)
    assert [done for _, done in steps(carols)] == [True, True, True, False]
    JobFactory(instance_group=made)
    assert steps(carols) == []


def test_the_first_open_step_is_the_one_to_take(carols: Client) -> None:
    for button, deed in (
        ("/hosts/join/", host_with_slots),
        ("/resource-groups/new/", ResourceGroupFactory),
        ("/instance-groups/new/", InstanceGroupFactory),
        ("/jobs/new/", None),
    ):
        assert f'<a class="btn btn-sm btn-primary" href="{button}">' in html_of(carols.get("/"))
        if deed:
            deed()


def test_who_cannot_set_up_is_told_who_does(alice_client: Client) -> None:
    page = html_of(alice_client.get("/"))
    assert "A cluster administrator does this." in page
    assert "/resource-groups/new/" not in page


def test_the_steps_follow_the_cluster(carols: Client) -> None:
    page = html_of(carols.get("/overview/now/"))
    assert 'id="first-steps" hx-swap-oob="morph"' in page
    assert page.count("first-step ") + page.count('"first-step"') >= len(STEPS)


def test_a_new_instance_group_asks_for_a_resource_group_in_words(carols: Client) -> None:
    for path in ("/instance-groups/new/", "/instance-groups/new/?template=dli-sig-template-2-2-0"):
        page = html_of(carols.get(path))
        assert "An instance group divides the GPUs of a resource group, and there is none with GPUs yet." in page
        assert '<a class="btn btn-primary" href="/resource-groups/new/">' in page
        assert "<select" not in page
    ResourceGroupFactory()
    assert "there is none with GPUs yet" not in html_of(carols.get("/instance-groups/new/"))
