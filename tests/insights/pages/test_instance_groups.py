"""Pages of instance groups: made from a template, changed with a preview, changed back, stopped; and who sees what."""

import html
import json
import re
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs.actions.groups import PRESETS
from jobs.models import InstanceGroup
from tests.factories import InstanceGroupFactory, JobFactory, ResourceGroupFactory, UserFactory, host_with_slots
from tests.html import html_of, squeezed
from tests.notices import levels
from tests.scene import Scene
from workers.models import Host

LIST = "/instance-groups/"


@pytest.fixture
def group(scene: Scene) -> InstanceGroup:
    return scene.first.instance_group


@pytest.fixture
def davids(group: InstanceGroup) -> Client:
    """David administers the group."""
    david = UserFactory(username="david")
    group.admins.add(david)
    client = Client()
    client.force_login(david)
    return client


@pytest.fixture
def values() -> dict[str, Any]:
    """Values that the form sends."""
    return {
        "name": "sig-2", "description": "", "execution_user": "egoadmin", "deployment_directory": "/home/egoadmin/sig",
        "resource_group": "ComputeHostsGPU", "policy": "fairshare", "preemption": "true", "reclaim_grace_seconds": "10",
        "aim": "soon", "gpu_weights": "", "minimum_run_seconds": "0", "idle_after_seconds": "900",
        "idle_grace_seconds": "300", "idle_reclaims": "false", "least_isolation": "", "quota": "",
        "weight": "1", "borrows": "true", "lends": "true",
        "default_priority": "5000", "lowest_priority": "1", "highest_priority": "10000", "members": "", "admins": "",
        "parameters": "",
    }  # fmt: skip


def text(response: HttpResponse) -> str:
    return html.unescape(html_of(response))


# --- Made ----------------------------------------------------------------------------------------------------------


def test_every_template_is_offered_and_opens_its_form(scene: Scene, carols: Client) -> None:
    page = text(carols.get(f"{LIST}new/"))
    for preset in PRESETS:
        assert preset.label in page
        form = text(carols.get(f"{LIST}new/", {"template": preset.name}))
        assert f'<option value="{preset.terms["policy"]}" selected>' in form
    assert "dli-sig-template-2-2-0" in page


def test_a_template_of_wmla_opens_the_form_and_an_unknown_one_the_choice(scene: Scene, carols: Client) -> None:
    assert "Create and Deploy Instance Group" in text(carols.get(f"{LIST}new/?template=dli-sig-template-2-2-0"))
    choice = text(carols.get(f"{LIST}new/?template=tensorflow"))
    assert 'role="alert"' in choice
    assert "?template=priority" in choice


def test_create_and_deploy_leads_over_the_deployment_to_the_group(carols: Client, scene: Scene, values: dict) -> None:
    sent = {**values, "template": "elastic-fair-share", "deploy": "yes", "members": "alice\n bob \n", "quota": "3"}
    response = carols.post(f"{LIST}new/", sent)
    group = InstanceGroup.objects.get(name="sig-2")
    assert response["Location"] == f"{LIST}{group.pk}/deployment/"
    assert (group.state, group.quota, group.execution_user) == ("STARTED", 3, "egoadmin")
    assert set(group.members.values_list("username", flat=True)) == {"alice", "bob"}

    page = text(carols.get(response["Location"]))
    assert page.count('data-label="Ready">Yes<') == 2
    assert "Continue to Instance Group" in page


def test_weights_of_gpu_models_are_kept_shown_and_checked(carols: Client, scene: Scene, values: dict) -> None:
    sent = {**values, "template": "elastic-fair-share", "gpu_weights": "A100=4"}
    page = text(carols.post(f"{LIST}new/", sent, follow=True))
    assert "Each training uses GPUs of one model, and a GPU counts by its model: A100 4; others 1." in page
    assert "has a GPU of model A100: these weights have no effect." in page
    wrong = text(carols.post(f"{LIST}new/", {**sent, "name": "sig-3", "gpu_weights": "A100"}))
    assert "'A100' is no weight: write MODEL=WEIGHT, such as A100=4, separated by commas." in wrong


def test_hosts_that_cannot_be_reached_are_named(carols: Client, scene: Scene, values: dict) -> None:
    Host.objects.update(state=Host.State.LOST)
    page = carols.post(f"{LIST}new/", {**values, "template": "priority", "deploy": "yes"}, follow=True)
    assert InstanceGroup.objects.get(name="sig-2").state == "REGISTERED"
    assert text(page).count('data-label="Ready">The host has stopped reporting') == 2


def test_created_only_it_says_what_is_missing(carols: Client, scene: Scene, values: dict) -> None:
    page = text(carols.post(f"{LIST}new/", {**values, "template": "priority"}, follow=True))
    assert "sig-2 was registered. It accepts trainings once it is started." in page
    assert InstanceGroup.objects.get(name="sig-2").state == "REGISTERED"


def test_pasted_parameters_go_before_the_fields(carols: Client, scene: Scene, values: dict) -> None:
    lines = "SPARK_EGO_APP_SCHEDULE_POLICY=fifo\nSPARK_EGO_SLOTS_MAX=8"
    page = carols.post(f"{LIST}new/", {**values, "template": "priority", "parameters": lines}, follow=True)
    assert InstanceGroup.objects.get(name="sig-2").policy == "fifo"
    assert "SPARK_EGO_SLOTS_MAX has no effect here" in text(page)


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"name": ""}, "name", "Fill in this field"),
        ({"name": "a/b"}, "name", "must not contain a slash"),
        ({"name": "sig-elastic"}, "name", "Instance group “sig-elastic” already exists"),
        ({"weight": "10001"}, "weight", "The weight must be a whole number"),
        ({"weight": "0", "quota": ""}, "weight", "With weight 0, a group uses its quota only"),
        ({"quota": "many"}, "quota", "Enter a whole number"),
        ({"quota": "9" * 30}, "quota", "The quota must be a whole number"),
        ({"members": "alice\n<b>nobody</b>"}, "members", "User '<b>nobody</b>' not found"),
        ({"parameters": "SPARK_EGO_PRIORTY=1"}, "parameters", "did you mean SPARK_EGO_PRIORITY?"),
        ({"resource_group": "nowhere"}, "resource_group", "This choice is not offered"),
        ({"highest_priority": "10"}, "default_priority", "The default priority, 5000, must lie between 1 and 10"),
        ({"deployment_directory": "home"}, "deployment_directory", "begins with a slash"),
    ],
)
def test_what_does_not_fit_stays_typed(
    carols: Client, scene: Scene, values: dict, changes: dict[str, str], field: str, sentence: str
) -> None:
    page = carols.post(f"{LIST}new/", {**values, "template": "priority", "description": "typed", **changes})
    assert sentence in text(page)
    assert f'id="id_{field}_error"' in html_of(page)
    assert 'value="typed"' in html_of(page)
    assert InstanceGroup.objects.count() == 1


# --- Changed -------------------------------------------------------------------------------------------------------


def test_a_change_says_what_it_changed_and_is_taken_back(carols: Client, group: InstanceGroup, values: dict) -> None:
    page = carols.post(f"{LIST}{group.pk}/change/", {**values, "quota": "4", "policy": "fifo"}, follow=True)
    group.refresh_from_db()
    assert (group.quota, group.policy) == (4, "fifo")
    assert "quota from no quota to 4 GPUs" in text(page)

    [message] = page.context["messages"]
    address, fields = json.loads(message.extra_tags)
    undone = carols.post(address, fields, follow=True)
    group.refresh_from_db()
    assert (group.quota, group.policy) == (None, "fairshare")
    assert levels(undone) == ["success"]
    late = carols.post(address, fields, follow=True)
    assert levels(late) == ["error"]
    assert re.search(r"carol has changed the group at .* UTC: undo is no longer possible.", text(late))
    group.refresh_from_db()
    assert group.revision == 3


def test_the_preview_says_what_the_form_would_do(
    carols: Client, scene: Scene, group: InstanceGroup, values: dict
) -> None:
    changed = {**values, "policy": "priority", "parameters": "SPARK_EGO_SLOTS_MAX=2"}
    seen = squeezed(carols.post(f"{LIST}{group.pk}/change/preview/", changed).json()["preview"])
    assert "<li>policy from fair share to priority</li>" in seen
    for name, words in (("T1 digits-cnn", "stops"), ("T2 digits-cnn", "gains")):
        assert f"{name}</a></td><td>{words}" in seen
    assert "SPARK_EGO_SLOTS_MAX has no effect here" in seen
    errors = carols.post(f"{LIST}{group.pk}/change/preview/", {**values, "weight": "0"}).json()["errors"]
    assert set(errors) == {"weight"}
    group.refresh_from_db()
    assert group.policy == "fairshare"


def test_its_own_administrator_hears_of_others_trainings(davids: Client, group: InstanceGroup) -> None:
    page = " ".join(text(davids.get(f"{LIST}{group.pk}/")).split())
    assert "No training of yours has run in this group yet." in page
    assert "2 trainings of others run in it and 2 wait. Their owners and cluster administrators see them." in page


def test_its_own_administrator_may_change_a_part_of_it(davids: Client, group: InstanceGroup, values: dict) -> None:
    form = html_of(davids.get(f"{LIST}{group.pk}/change/"))
    assert 'name="quota" class="form-control"' not in form or "disabled" in form
    davids.post(f"{LIST}{group.pk}/change/", {**values, "policy": "fifo", "quota": "8"})
    group.refresh_from_db()
    assert (group.policy, group.quota) == ("fifo", None), "a field that is not theirs is not taken"
    preview = davids.post(f"{LIST}{group.pk}/change/preview/", {**values, "policy": "priority"})
    assert "T1 digits-cnn" not in html_of(preview), "others' trainings are not named"


def test_lines_of_parameters_are_read(carols: Client, scene: Scene) -> None:
    good = carols.post(f"{LIST}parameters.json", {"parameters": "spark.ego.enable.preemption=true\nJAVA_HOME=/usr"})
    assert good.json()["terms"] == {"preemption": "true"}
    assert good.json()["sentences"] == ["JAVA_HOME has no effect here: Java is not used."]
    assert list(carols.post(f"{LIST}parameters.json", {"parameters": "X=1"}).json()) == ["error"]


@pytest.mark.parametrize("terms", ["", "[]", "{", '{"name": "x"}', '{"state": "STARTED"}', '{"quota": -1}'])
def test_an_undo_that_was_tampered_with_changes_nothing(carols: Client, group: InstanceGroup, terms: str) -> None:
    page = carols.post(f"{LIST}{group.pk}/undo/", {"revision": "1", "terms": terms}, follow=True)
    assert 'role="alert"' in html_of(page)
    group.refresh_from_db()
    assert group.revision == 1


# --- Started, stopped, deleted -------------------------------------------------------------------------------------


def test_stopped_it_is_not_offered_for_trainings(carols: Client, alices: Client, group: InstanceGroup) -> None:
    stopped = carols.post(f"{LIST}{group.pk}/stop/", follow=True)
    assert levels(stopped) == ["success"]
    assert "Train in this group" not in text(stopped)
    assert 'name="instance_group"' not in text(alices.get("/jobs/new/"))
    assert levels(carols.post(f"{LIST}{group.pk}/start/", follow=True)) == ["success"]
    assert 'name="instance_group"' in text(alices.get("/jobs/new/"))


def test_with_trainings_it_is_not_deleted(carols: Client, group: InstanceGroup) -> None:
    assert "delete-dialog" not in html_of(carols.get(f"{LIST}{group.pk}/"))
    assert levels(carols.post(f"{LIST}{group.pk}/delete/", follow=True)) == ["error"]
    empty = InstanceGroupFactory(name="empty")
    assert levels(carols.post(f"{LIST}{empty.pk}/delete/", follow=True)) == ["success"]
    assert list(InstanceGroup.objects.all()) == [group]


def test_the_train_form_begins_with_the_group_asked_for_and_tells_its_bounds(
    alices: Client, group: InstanceGroup
) -> None:
    other = InstanceGroupFactory(
        name="zz", resource_group=group.resource_group, lowest_priority=40, default_priority=50
    )
    page = text(alices.get(f"/jobs/new/?group={other.pk}"))
    assert f'<option value="{other.pk}" selected>' in page
    assert 'name="priority" value="50"' in page
    assert "It allows priorities from 40 to 10000." in page


# --- Who sees what -------------------------------------------------------------------------------------------------


def test_members_see_it_and_others_do_not(alices: Client, bobs: Client, scene: Scene, group: InstanceGroup) -> None:
    group.members.add(scene.alice)
    assert "sig-elastic" in text(alices.get(LIST))
    assert "sig-elastic" not in text(bobs.get(LIST))
    for path in ("", "now/", "deployment/", "change/"):
        assert bobs.get(f"{LIST}{group.pk}/{path}").status_code == 404
    for path in ("stop/", "undo/", "change/preview/"):
        assert bobs.post(f"{LIST}{group.pk}/{path}").status_code == 404


def test_members_change_nothing(alices: Client, group: InstanceGroup, values: dict) -> None:
    page = html_of(alices.get(f"{LIST}{group.pk}/"))
    for words in ("Change</a>", "stop-dialog", "delete-dialog"):
        assert words not in page
    assert alices.get(f"{LIST}{group.pk}/change/").status_code == 403
    assert alices.post(f"{LIST}{group.pk}/change/", values).status_code == 403
    assert alices.post(f"{LIST}new/", values).status_code == 403
    refused = alices.post(f"{LIST}{group.pk}/stop/", follow=True)
    assert refused.status_code in (200, 403)
    group.refresh_from_db()
    assert (group.state, group.revision) == ("STARTED", 1)


def test_trainings_are_the_viewers_own(alices: Client, bobs: Client, group: InstanceGroup) -> None:
    assert "T1 digits-cnn" in text(alices.get(f"{LIST}{group.pk}/"))
    page = text(bobs.get(f"{LIST}{group.pk}/"))
    assert "T1 digits-cnn" not in page
    assert "bobs-secret" in page


def test_more_groups_cost_no_more_queries(carols: Client, scene: Scene) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert carols.get(LIST).status_code == 200
        return len(captured)

    few = queries()
    for number in range(8):
        static = ResourceGroupFactory(selection="static")
        static.hosts.add(host_with_slots(f"more-{number}", 2))
        JobFactory(instance_group=InstanceGroupFactory(resource_group=static))
    assert queries() == few
    assert few <= 14


def test_the_list_adds_up(carols: Client, scene: Scene) -> None:
    cells = text(carols.get(LIST))
    for label, value in (("Running trainings", "2"), ("Waiting", "2"), ("GPUs", "8 of 8"), ("Hosts", "2")):
        assert f'<td data-label="{label}" class="number">{value}</td>' in cells


@pytest.mark.parametrize("policy", InstanceGroup.Policy.values)
def test_first_come_first_served_takes_no_gpus_and_nobody_says_so(
    alices: Client, group: InstanceGroup, policy: str
) -> None:
    InstanceGroup.objects.filter(pk=group.pk).update(policy=policy, preemption=True)
    page = squeezed(html_of(alices.get(f"{LIST}{group.pk}/")))
    train = html_of(alices.get("/jobs/new/"))
    takes = policy != "fifo"
    assert ("Running trainings can lose GPUs" in page, "Running trainings keep their GPUs" in page) == (
        takes,
        not takes,
    )
    assert f'"takes_gpus": {str(takes).lower()}' in train
    assert "Under fair share, twice the priority means twice the GPUs." in train
