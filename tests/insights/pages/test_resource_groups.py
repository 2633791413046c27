"""Resource groups as administrators make, change and delete them, and as everybody sees them."""

import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from core.models import AuditEntry
from jobs.models import Job
from models_registry.models import RegisteredModelVersion
from tests.factories import HostFactory, ResourceGroupFactory, host_with_slots
from tests.html import html_of
from tests.notices import levels
from tests.scene import Scene
from workers.models import Host, ResourceGroup

NEW = "/resource-groups/new/"
FORMULA = {"rule": "formula", "formula": "ngpus", "selection": "dynamic", "requirement": "", "description": ""}


@pytest.fixture
def group(scene: Scene) -> ResourceGroup:
    """A group of all eight GPUs, used by sig-elastic."""
    return ResourceGroup.objects.get(name="ComputeHostsGPU")


def create(client: Client, **fields: Any) -> HttpResponse:
    answer: HttpResponse = client.post(NEW, {**FORMULA, "name": "mine", "kind": "gpu", **fields}, follow=True)
    return answer


def change(client: Client, group: ResourceGroup, **fields: Any) -> HttpResponse:
    answer: HttpResponse = client.post(f"/resource-groups/{group.pk}/", {**FORMULA, **fields}, follow=True)
    return answer


def preview(client: Client, group: ResourceGroup | None = None, **fields: Any) -> dict[str, Any]:
    address = f"/resource-groups/{group.pk}/preview.json" if group else f"{NEW}preview.json"
    answer: dict[str, Any] = client.post(address, {**FORMULA, "name": "mine", "kind": "gpu", **fields}).json()
    return answer


def undo_form(page: HttpResponse) -> tuple[str, dict[str, str]]:
    """Address and fields of the page's Undo button."""
    form = html_of(page).split('<button class="btn btn-sm" type="submit">Undo')[0].rpartition("<form")[2]
    address = re.search(r'action="([^"]+)"', form)
    assert address is not None
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', form)
    return address[1], {name: value.replace("&quot;", '"') for name, value in fields if name != "csrfmiddlewaretoken"}


def test_the_list_tells_type_slots_and_who_uses_each(alices: Client, group: ResourceGroup) -> None:
    ResourceGroupFactory(name="four", slot_rule="4", requirement="ngpus >= 4", description="Large ones")
    page = html_of(alices.get("/resource-groups/"))
    for text in ("ComputeHostsGPU", "8 GPUs", "sig-elastic", "ngpus &gt;= 4", "Large ones", "Dynamic"):
        assert text in page
    assert NEW not in page


def test_instance_groups_are_named_to_who_may_see_them(alices: Client, bobs: Client, group: ResourceGroup) -> None:
    group.instance_groups.get().members.add(User.objects.get(username="alice"))
    for address in ("/resource-groups/", f"/resource-groups/{group.pk}/"):
        assert "sig-elastic" in html_of(alices.get(address))
        assert "sig-elastic" not in html_of(bobs.get(address))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"rule": "number", "number": "2"}, "2"),
        ({"rule": "attribute", "attribute": "ngpus", "factor": "1"}, "ngpus*1"),
        ({"formula": "min(ngpus, 3)"}, "min(ngpus, 3)"),
    ],
)
def test_slots_per_host_come_from_a_number_an_attribute_or_a_formula(
    carols: Client, scene: Scene, fields: dict[str, str], rule: str
) -> None:
    assert levels(create(carols, **fields)) == ["success"]
    assert ResourceGroup.objects.get(name="mine").slot_rule == rule


def test_hosts_are_ticked_for_a_static_group(carols: Client, scene: Scene) -> None:
    create(carols, selection="static", hosts=["gpu-host-2"], requirement="dropped")
    made = ResourceGroup.objects.get(name="mine")
    assert (made.selection, [host.name for host in made.hosts.all()], made.requirement) == (
        "static",
        ["gpu-host-2"],
        "",
    )
    assert AuditEntry.objects.get().verb == "created"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"formula": "ngpus + "}, "a number or an attribute is missing (at character 8)"),
        ({"formula": "npgus"}, "use ngpus, ncpus, nprocs, ncores, nthreads, maxmem, maxswp, virtual, min, max, floor"),
        ({"formula": ""}, "Fill in this field."),
        ({"formula": "ngpus*2"}, "gives 8 slots on gpu-host-1, which has 4 GPUs"),
        ({"rule": "number", "number": "5"}, "gives 5 slots on gpu-host-1, which has 4 GPUs"),
        ({"rule": "number", "number": "-1"}, "Enter 0 or more"),
        ({"rule": "some"}, "This choice is not offered"),
        ({"requirement": "ngpus >> 2"}, "The requirement cannot be used"),
        ({"selection": "static"}, "A static group needs a host"),
        ({"selection": "static", "hosts": ["nobody"]}, "The host nobody no longer exists"),
        ({"name": "ComputeHostsGPU"}, "This name is taken."),
        ({"name": ""}, "Fill in this field."),
        ({"description": "x" * 201}, "at most 200 characters"),
    ],
)
def test_what_does_not_fit_is_said_and_what_was_typed_is_kept(
    carols: Client, scene: Scene, fields: dict[str, str], words: str
) -> None:
    answer = create(carols, **{"requirement": "ngpus > 1", **fields})
    page = html_of(answer).replace("&#x27;", "'")
    assert answer.status_code == 400
    assert words in page
    assert 'value="ngpus &gt; 1"' in page or "requirement" in fields
    assert not ResourceGroup.objects.filter(name="mine").exists()


def test_a_mark_stands_under_the_character_that_is_wrong(carols: Client, scene: Scene) -> None:
    page = html_of(create(carols, formula="ngpus *"))
    assert "ngpus *\n       ^" in page
    assert preview(carols, formula="ngpus *", requirement="1 <")["carets"] == {
        "formula": "ngpus *\n       ^",
        "requirement": "1 <\n   ^",
    }


def test_totals_and_members_follow_what_is_typed(carols: Client, scene: Scene) -> None:
    HostFactory(name="login", ngpus=0, ncpus=16)
    seen = preview(carols, name="", requirement="ngpus > 0", formula="min(ngpus, 2)")
    assert seen["preview"]["totals"] == {"hosts": 2, "cpus": 16, "slots": 4}
    assert seen["preview"]["hosts"]["login"]["member"] is False
    assert seen["preview"]["hosts"]["gpu-host-1"] == {"member": True, "slots": 2, "free": 0, "problem": ""}
    assert list(seen["errors"]) == ["name"]
    wrong = preview(carols, name="", formula="nsockets")["errors"]
    assert list(wrong) == ["name", "formula"]
    assert "overlaps" not in seen["preview"]


def test_overlaps_are_told_when_they_are_asked_for(carols: Client, group: ResourceGroup) -> None:
    asked = preview(carols, selection="static", hosts=["gpu-host-1"], overlaps="yes")
    assert asked["preview"]["overlaps"] == ["ComputeHostsGPU also offers 4 GPUs of these, on gpu-host-1."]
    assert preview(carols, group, overlaps="yes")["preview"]["overlaps"] == []


def test_a_change_tells_first_which_trainings_move_off(carols: Client, scene: Scene, group: ResourceGroup) -> None:
    assert preview(carols, group)["preview"]["moves"] == []
    moves = preview(carols, group, selection="static", hosts=["gpu-host-2"])["preview"]["moves"]
    assert re.findall("“(.+?)” (leaves|finishes)", " ".join(moves)) == [
        ("T1 digits-cnn", "leaves"),
        ("T2 digits-cnn", "leaves"),
    ]
    RegisteredModelVersion.objects.update(engine="fixed")
    Job.objects.filter(pk=scene.first.pk).update(max_slots=3)
    moves = preview(carols, group, selection="static", hosts=["gpu-host-2"])["preview"]["moves"]
    assert any(move.startswith("“T1 digits-cnn” finishes") for move in moves)


def test_a_change_is_undone_unless_somebody_changed_the_group_since(carols: Client, group: ResourceGroup) -> None:
    page = change(carols, group, formula="min(ngpus, 2)", description="halved")
    assert levels(page) == ["success"]
    address, fields = undo_form(page)
    assert levels(carols.post(address, fields, follow=True)) == ["success"]
    group.refresh_from_db()
    assert (group.slot_rule, group.description) == ("ngpus", "")

    page = change(carols, group, formula="min(ngpus, 2)")
    address, fields = undo_form(page)
    ResourceGroup.objects.update(description="by somebody else")
    assert levels(carols.post(address, fields, follow=True)) == ["error"]
    group.refresh_from_db()
    assert group.slot_rule == "min(ngpus, 2)"


def test_nothing_changed_is_said_so(carols: Client, group: ResourceGroup) -> None:
    assert levels(change(carols, group)) == ["success"]
    assert not AuditEntry.objects.exists()


def test_a_group_in_use_is_not_deleted_and_another_is_made_again_by_undo(carols: Client, group: ResourceGroup) -> None:
    assert levels(carols.post(f"/resource-groups/{group.pk}/delete/", follow=True)) == ["error"]
    assert ResourceGroup.objects.filter(pk=group.pk).exists()
    create(carols, formula="2")
    spare = ResourceGroup.objects.get(name="mine")
    page = carols.post(f"/resource-groups/{spare.pk}/delete/", follow=True)
    assert not ResourceGroup.objects.filter(name="mine").exists()
    address, fields = undo_form(page)
    carols.post(address, fields)
    assert ResourceGroup.objects.get(name="mine").slot_rule == "2"


@pytest.mark.parametrize(
    "spec",
    ["", "{", "[]", "null", '{"name": 3}', '{"name": "a", "other": 1}', '{"name": "a", "hosts": [1]}', "[" * 9000],
)
def test_what_cannot_be_put_back_is_refused_in_words(carols: Client, scene: Scene, spec: str) -> None:
    assert levels(carols.post("/resource-groups/put-back/", {"spec": spec}, follow=True)) == ["error"]
    assert ResourceGroup.objects.count() == 1


def test_everybody_looks_at_a_group_and_only_administrators_change_it(alices: Client, group: ResourceGroup) -> None:
    address = f"/resource-groups/{group.pk}/"
    page = html_of(alices.get(address))
    assert "Apply" not in page.partition("<dialog")[0]
    assert re.search(r'<fieldset class="all-fields" disabled', page)
    for path in (address, f"{address}delete/", f"{address}preview.json", NEW, f"{NEW}preview.json"):
        assert alices.post(path, FORMULA).status_code == 403
    assert alices.post("/resource-groups/put-back/", {"spec": json.dumps({"name": "x"})}).status_code == 403
    assert alices.get(NEW).status_code == 403
    assert ResourceGroup.objects.get().slot_rule == "ngpus"


def test_chosen_columns_are_shown(carols: Client, group: ResourceGroup) -> None:
    carols.cookies["tidepool_member_columns"] = "ngpus"
    page = html_of(carols.get(f"/resource-groups/{group.pk}/"))
    assert re.search(r'<th scope="col" data-column="ngpus" class="number">', page)
    assert re.search(r'<th scope="col" data-column="ncpus" class="number" hidden>', page)


def test_pages_cost_the_same_number_of_queries_however_many_hosts_there_are(
    carols: Client, group: ResourceGroup, django_assert_max_num_queries: Any
) -> None:
    addresses = ["/resource-groups/", NEW, f"/resource-groups/{group.pk}/"]
    with django_assert_max_num_queries(60) as few:
        for address in addresses:
            carols.get(address)
    for number in range(20):
        host_with_slots(f"more-{number}", 2)
        static = ResourceGroupFactory(selection=ResourceGroup.Selection.STATIC)
        static.hosts.set(Host.objects.all())
    with django_assert_max_num_queries(len(few.captured_queries)):
        for address in addresses:
            carols.get(address)
