"""Two people with the same form open: each saves what they touched, and is asked about what both touched."""

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from core.roles import role_of
from jobs.actions.groups import change_instance_group
from jobs.models import InstanceGroup, Job
from tests.factories import host_with_slots
from tests.forms import Posted, posted_form
from tests.html import html_of
from tests.notices import levels
from tests.scene import Scene
from workers.actions import ResourceGroupSpec, change_resource_group
from workers.models import ResourceGroup


def with_values(form: Posted, **values: str) -> Posted:
    """Return the form with other values typed into fields that it has."""
    assert values.keys() <= form.keys()
    return {**form, **{name: [value] for name, value in values.items()}}


def asked_about(page: HttpResponse) -> list[tuple[str, str, str, str, str]]:
    """Return field, former value, present value, author and user's entry of each conflict that the page shows."""
    assert page.status_code == 409
    assert 'id="clashes"' in html_of(page)
    clashes = page.context["clashes"]
    assert all(clash.at for clash in clashes)
    return [(clash.label, clash.before, clash.present, clash.author, clash.mine) for clash in clashes]


# --- A training ----------------------------------------------------------------------------------------------------


def test_a_training_keeps_what_somebody_else_has_set_meanwhile(scene: Scene, alices: Client, carols: Client) -> None:
    job = scene.first
    page = f"/jobs/{job.pk}/"
    first, second = (posted_form(client.get(page), "max_slots") for client in (alices, carols))
    alices.post(f"{page}change/", with_values(first, priority="6100"))
    preview = carols.post(f"{page}change/preview/", with_values(second, max_slots="5"))
    assert preview.json()["errors"] == {}
    saved = carols.post(f"{page}change/", with_values(second, max_slots="5"), follow=True)

    assert levels(saved) == ["success"]
    job.refresh_from_db()
    assert (job.priority, job.max_slots, job.max_seconds) == (6100, 5, None)


def test_a_preview_reckons_with_what_somebody_else_has_set_meanwhile(
    scene: Scene, alices: Client, carols: Client
) -> None:
    page = f"/jobs/{scene.first.pk}/"
    opened = posted_form(carols.get(page), "max_slots")
    alices.post(f"{page}change/", with_values(opened, priority="9000"))
    fresh = posted_form(carols.get(page), "max_slots")
    old, new = (carols.post(f"{page}change/preview/", with_values(form, max_slots="5")) for form in (opened, fresh))
    assert old.json()["preview"]["reason"] == new.json()["preview"]["reason"]


def test_what_both_set_on_a_training_is_asked_with_who_and_when(scene: Scene, alices: Client, carols: Client) -> None:
    job = scene.first
    page, before = f"/jobs/{job.pk}/", str(job.priority)
    first, second = (posted_form(client.get(page), "max_slots") for client in (alices, carols))
    alices.post(f"{page}change/", with_values(first, priority="6100"))
    mine = with_values(second, priority="7000", max_seconds="3600")
    preview = carols.post(f"{page}change/preview/", mine).json()
    assert preview["errors"] == {"priority": ["alice changed this to 6100 meanwhile."]}
    assert preview["preview"]
    refused = carols.post(f"{page}change/", mine)

    assert asked_about(refused) == [("Priority", before, "6100", "alice", "7000")]
    job.refresh_from_db()
    assert (job.priority, job.max_seconds) == (6100, None)
    again = posted_form(refused, "max_slots")
    assert (again["priority"], again["before-priority"]) == (["7000"], ["6100"])
    assert (again["max_seconds"], again["before-max_seconds"]) == (["3600"], [""])
    assert carols.post(f"{page}change/", again).status_code == 302
    job.refresh_from_db()
    assert (job.priority, job.max_seconds) == (7000, 3600)


def test_a_time_limit_that_somebody_has_set_stays_when_only_the_priority_is_changed(
    scene: Scene, alices: Client
) -> None:
    page = f"/jobs/{scene.first.pk}/"
    one, other = (posted_form(alices.get(page), "max_slots") for _ in range(2))
    alices.post(f"{page}change/", with_values(one, max_seconds="7200"))
    alices.post(f"{page}change/", with_values(other, priority="7"))
    job = Job.objects.get(pk=scene.first.pk)
    assert (job.priority, job.max_seconds) == (7, 7200)
    third = posted_form(alices.get(page), "max_slots")
    alices.post(f"{page}change/", with_values(third, max_seconds="100"))
    refused = alices.post(f"{page}change/", with_values(third, max_seconds=""))
    assert asked_about(refused) == [("Time limit", "7200 s", "100 s", "You, in another window", "no limit")]


# --- An instance group ---------------------------------------------------------------------------------------------


@pytest.fixture
def group(scene: Scene) -> InstanceGroup:
    return scene.first.instance_group


@pytest.fixture
def daves(scene: Scene) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("dave", is_staff=True))
    return client


def test_two_administrators_of_a_group_change_different_terms(
    group: InstanceGroup, carols: Client, daves: Client
) -> None:
    page = f"/instance-groups/{group.pk}/change/"
    first, second = (posted_form(client.get(page), "weight") for client in (carols, daves))
    assert carols.post(page, with_values(first, weight="7", members="alice")).status_code == 302
    preview = daves.post(f"{page}preview/", with_values(second, quota="4")).json()
    assert "weight" not in preview["preview"]
    assert daves.post(page, with_values(second, quota="4")).status_code == 302
    group.refresh_from_db()
    assert (group.weight, group.quota) == (7, 4)
    assert [user.username for user in group.members.all()] == ["alice"]


def test_two_administrators_of_a_group_are_asked_about_the_same_term(
    group: InstanceGroup, carols: Client, daves: Client, carol: User
) -> None:
    page = f"/instance-groups/{group.pk}/change/"
    opened = with_values(posted_form(daves.get(page), "weight"), weight="3", quota="4", preemption="false")
    change_instance_group(group.pk, {"weight": 7, "description": "hers"}, carol)
    preview = daves.post(f"{page}preview/", opened).json()
    assert preview["errors"] == {"weight": ["carol changed this to 7 meanwhile."]}
    refused = daves.post(page, opened)

    assert asked_about(refused) == [("Weight", "1", "7", "carol", "3")]
    group.refresh_from_db()
    assert (group.weight, group.quota) == (7, None)
    again = posted_form(refused, "weight")
    assert (again["weight"], again["quota"], again["preemption"]) == (["3"], ["4"], ["false"])
    assert again["description"] == ["hers"], "a field that was not touched follows the present"
    assert daves.post(page, with_values(again, weight="7")).status_code == 302
    group.refresh_from_db()
    assert (group.weight, group.quota, group.preemption, group.description) == (7, 4, False, "hers")


def test_a_third_change_between_two_attempts_is_asked_about_again(
    group: InstanceGroup, daves: Client, carol: User
) -> None:
    page = f"/instance-groups/{group.pk}/change/"
    opened = with_values(posted_form(daves.get(page), "weight"), weight="3")
    change_instance_group(group.pk, {"weight": 7}, carol)
    again = posted_form(daves.post(page, opened), "weight")
    change_instance_group(group.pk, {"weight": 8, "quota": 2}, carol)
    refused = daves.post(page, again)
    assert asked_about(refused) == [("Weight", "7", "8", "carol", "3")]
    assert posted_form(refused, "weight")["quota"] == ["2"]


def test_members_that_two_administrators_add_are_both_members(
    group: InstanceGroup, daves: Client, carol: User, bobs: Client
) -> None:
    change_instance_group(group.pk, {"members": ["alice"]}, carol)
    page = f"/instance-groups/{group.pk}/change/"
    opened = with_values(posted_form(daves.get(page), "weight"), members="alice\r\nbob")
    change_instance_group(group.pk, {"members": ["alice", "carol"]}, carol)
    assert daves.post(page, opened).status_code == 302
    assert {user.username for user in group.members.all()} == {"alice", "bob", "carol"}


def test_a_groups_own_administrator_is_asked_about_their_terms_alone(group: InstanceGroup, carol: User) -> None:
    david = User.objects.create_user("david")
    group.admins.add(david)
    davids = Client()
    davids.force_login(david)
    page = f"/instance-groups/{group.pk}/change/"
    opened = with_values(posted_form(davids.get(page), "minimum_run_seconds"), minimum_run_seconds="60")
    assert "before-quota" not in opened
    change_instance_group(group.pk, {"quota": 6, "reclaim_grace_seconds": 20}, carol)
    assert davids.post(page, opened).status_code == 302
    group.refresh_from_db()
    assert (group.quota, group.reclaim_grace_seconds, group.minimum_run_seconds) == (6, 20, 60)


def test_pasted_parameters_of_wmla_are_entries_like_others(group: InstanceGroup, daves: Client, carol: User) -> None:
    page = f"/instance-groups/{group.pk}/change/"
    opened = with_values(posted_form(daves.get(page), "weight"), parameters="SPARK_EGO_PRIORITY=4000")
    change_instance_group(group.pk, {"default_priority": 3000}, carol)
    refused = daves.post(page, opened)
    assert asked_about(refused) == [("Default priority", "5000", "3000", "carol", "4000")]
    assert posted_form(refused, "weight")["default_priority"] == ["4000"]


# --- A resource group ----------------------------------------------------------------------------------------------


@pytest.fixture
def hosts(scene: Scene) -> ResourceGroup:
    return scene.first.instance_group.resource_group


def test_two_administrators_of_a_resource_group_change_different_fields(
    hosts: ResourceGroup, carols: Client, daves: Client
) -> None:
    page = f"/resource-groups/{hosts.pk}/"
    first, second = (posted_form(client.get(page), "formula") for client in (carols, daves))
    assert carols.post(page, with_values(first, rule="number", number="1")).status_code == 302
    preview = daves.post(f"{page}preview.json", with_values(second, description="ours")).json()
    assert preview["preview"]["totals"]["slots"] == 2
    assert daves.post(page, with_values(second, description="ours")).status_code == 302
    hosts.refresh_from_db()
    assert (hosts.slot_rule, hosts.description) == ("1", "ours")


def test_two_administrators_of_a_resource_group_are_asked_about_the_same_field(
    hosts: ResourceGroup, carols: Client, daves: Client
) -> None:
    page = f"/resource-groups/{hosts.pk}/"
    first, second = (posted_form(client.get(page), "formula") for client in (carols, daves))
    assert carols.post(page, with_values(first, rule="number", number="1", description="hers")).status_code == 302
    refused = daves.post(page, with_values(second, formula="min(ngpus, 3)"))
    assert asked_about(refused) == [("Slots per host", hosts.slot_rule, "1", "carol", "min(ngpus, 3)")]
    again = posted_form(refused, "formula")
    assert (again["rule"], again["formula"], again["description"]) == (["formula"], ["min(ngpus, 3)"], ["hers"])
    assert daves.post(page, again).status_code == 302
    hosts.refresh_from_db()
    assert (hosts.slot_rule, hosts.description) == ("min(ngpus, 3)", "hers")


def test_hosts_that_two_administrators_add_are_both_members(
    hosts: ResourceGroup, carols: Client, daves: Client
) -> None:
    for number in (3, 4):
        host_with_slots(f"gpu-host-{number}", 1)
    change_resource_group(hosts, ResourceGroupSpec(hosts.name, selection="static", hosts=["gpu-host-1"]), "carol")
    page = f"/resource-groups/{hosts.pk}/"
    first, second = (posted_form(client.get(page), "formula") for client in (carols, daves))
    carols.post(page, {**first, "hosts": ["gpu-host-1", "gpu-host-3"]})
    assert daves.post(page, {**second, "hosts": ["gpu-host-1", "gpu-host-4"]}).status_code == 302
    assert set(hosts.hosts.values_list("name", flat=True)) == {"gpu-host-1", "gpu-host-3", "gpu-host-4"}


# --- Forms of a single field ---------------------------------------------------------------------------------------


def test_readers_that_somebody_else_has_set_stay_if_they_were_not_touched(
    scene: Scene, carols: Client, daves: Client
) -> None:
    model, report = scene.first.model.model, scene.report
    for row, page, address in (
        (model, f"/models/{model.pk}/", f"/models/{model.pk}/readers/"),
        (report, f"/reports/{report.pk}/", f"/reports/{report.pk}/readers/"),
    ):
        opened = posted_form(daves.get(page), "before-readers")
        [other] = {"owner", "everybody"} - set(opened["readers"])
        carols.post(address, with_values(opened, readers=other))
        daves.post(address, opened)
        row.refresh_from_db()
        assert row.readers == other


def test_two_administrators_give_a_user_different_roles(scene: Scene, carols: Client, daves: Client) -> None:
    bob = User.objects.get(username="bob")
    page = f"/users/{bob.pk}/"
    opened = posted_form(daves.get(page), "before-role")
    assert levels(carols.post(f"{page}role/", with_values(opened, role="viewer"), follow=True)) == ["success"]
    refused = daves.post(f"{page}role/", with_values(opened, role="cluster_admin"), follow=True)
    [message] = refused.context["messages"]
    assert "carol changed role from data_scientist to viewer at " in message.message
    assert message.message.endswith("UTC, and you to cluster_admin. Choose a value, then save again.")
    assert levels(daves.post(f"{page}role/", opened, follow=True)) == []
    assert role_of(User.objects.get(pk=bob.pk)) == "viewer"


def test_a_title_of_a_report_that_two_people_have_changed_is_asked_about(
    scene: Scene, alices: Client, carols: Client
) -> None:
    report, page = scene.report, f"/reports/{scene.report.pk}/edit/"
    opened = posted_form(carols.get(page), "title")
    alices.post(page, with_values(opened, title="Hers"))
    carols.post(page, opened)
    refused = carols.post(page, with_values(opened, title="Another"))
    assert refused.status_code == 400
    assert "and you to Another." in html_of(refused)
    report.refresh_from_db()
    assert report.title == "Hers"
    assert carols.post(page, posted_form(refused, "title")).status_code == 302
    report.refresh_from_db()
    assert report.title == "Another"


def test_two_people_compare_a_study_by_different_metrics(scene: Scene, alices: Client, carols: Client) -> None:
    study = scene.study
    study.trials.filter(state="PRUNED").delete()
    page, address = f"/studies/{study.pk}/", f"/studies/{study.pk}/metric/"
    opened = posted_form(carols.get(page), "value_of")
    [other] = {"last", "best"} - set(opened["value_of"])
    alices.post(address, with_values(opened, value_of=other))
    assert carols.post(address, with_values(opened, metric="accuracy")).status_code == 302
    study.refresh_from_db()
    assert (study.value_of, study.metric) == (other, "accuracy")
    refused = carols.post(address, with_values(opened, metric="f1"))
    assert "to accuracy at " in html_of(refused)
    assert carols.post(address, posted_form(refused, "value_of")).status_code == 302
    study.refresh_from_db()
    assert study.metric == "f1"
