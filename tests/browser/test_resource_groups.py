"""A resource group is made and changed as in the tutorial, and says what it would do before it is applied."""

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import listen, log_in
from tests.browser.test_hostile_texts import HARM, HOSTILE
from tests.factories import HostFactory
from tests.scene import Scene, user_who_can_log_in
from workers.actions import drain_host
from workers.models import Host, ResourceGroup


@pytest.fixture
def carols(scene: Scene, context: BrowserContext, complaints: list[str]) -> Page:
    """An administrator's browser."""
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    return page


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def total(page: Page, name: str) -> object:
    return expect(page.locator(f"[data-totals] [data-field={name}]"))


def test_a_group_is_made_as_in_the_tutorial(carols: Page) -> None:
    HostFactory(name="login-1", ngpus=0, ncpus=16)
    carols.goto("/resource-groups/")
    carols.get_by_role("link", name="Create a Resource Group").click()
    carols.get_by_label("Resource group name").fill("TutorialGPU")
    carols.get_by_label("Advanced formula").check()
    carols.get_by_label("Formula", exact=True).fill("ngpus")
    carols.get_by_label("Static (List of Names)").check()
    for name in ("gpu-host-1", "gpu-host-2", "login-1"):
        carols.get_by_label(f"{name} is a member").set_checked(name.startswith("gpu"))
    total(carols, "hosts").to_have_text("2")
    total(carols, "slots").to_have_text("8")

    ngpus = carols.locator("#members th[data-column=ngpus]")
    expect(ngpus).to_be_hidden()
    carols.get_by_role("button", name="Preferences").click()
    carols.get_by_label("ngpus").check()
    carols.get_by_role("dialog").get_by_role("button", name="Apply").click()
    expect(ngpus).to_be_visible()
    expect(carols.locator("#members tr[data-host=gpu-host-1] td[data-column=ngpus]")).to_have_text("4")
    carols.get_by_role("button", name="Check for overlaps").click()
    expect(carols.locator("[data-overlaps]")).to_contain_text("ComputeHostsGPU also offers 8 GPUs of these")

    carols.get_by_role("button", name="Create", exact=True).click()
    row = carols.locator("#resource-groups tr", has_text="TutorialGPU")
    expect(row).to_contain_text("Static (List of Names)")
    expect(row).to_contain_text("8 GPUs")
    carols.get_by_role("button", name="Undo").click()
    expect(row).to_have_count(0)
    carols.get_by_role("link", name="ComputeHostsGPU").click()
    expect(carols.locator("#members th[data-column=ngpus]")).to_be_visible()  # the browser remembers


def test_a_mistake_is_marked_while_one_types_and_totals_follow(carols: Page, scene: Scene) -> None:
    carols.set_viewport_size({"width": 390, "height": 844})
    carols.goto(f"/resource-groups/{scene.first.instance_group.resource_group_id}/")
    formula = carols.get_by_label("Formula", exact=True)
    formula.fill("min(ngpus, ")
    expect(carols.locator("#id_formula_error")).to_contain_text("a number or an attribute is missing (at character 11)")
    assert carols.locator("[data-caret=formula]").text_content() == "min(ngpus, \n          ^"

    formula.fill("min(ngpus, 3)")
    expect(carols.locator("[data-caret=formula]")).to_be_hidden()
    total(carols, "slots").to_have_text("6")
    expect(carols.locator("[data-moves]")).to_contain_text("“T2 digits-cnn” leaves")

    carols.get_by_label("Requirement").fill("ngpus > 4")
    total(carols, "hosts").to_have_text("0")
    expect(carols.get_by_label("gpu-host-1 is a member")).not_to_be_checked()
    expect(carols.get_by_label("gpu-host-1 is a member")).to_be_disabled()


def test_a_group_is_changed_by_keyboard_and_changed_back(carols: Page, scene: Scene) -> None:
    group = scene.first.instance_group.resource_group_id
    carols.goto(f"/resource-groups/{group}/")
    carols.get_by_label("Advanced formula").focus()
    carols.keyboard.press("ArrowUp")
    carols.keyboard.press("ArrowUp")
    expect(carols.get_by_label("A fixed number")).to_be_checked()
    carols.keyboard.press("Tab")
    carols.keyboard.type("9")
    total(carols, "slots").to_have_text("18")
    expect(carols.locator("#id_number_error")).to_contain_text("gives 9 slots on gpu-host-1, which has 4 GPUs")
    carols.keyboard.press("Backspace")
    carols.keyboard.type("1")
    carols.keyboard.press("Enter")
    expect(carols.get_by_role("status").filter(has_text="ComputeHostsGPU was changed").first).to_be_visible()
    assert ResourceGroup.objects.get(pk=group).slot_rule == "1"
    carols.get_by_role("button", name="Undo").click()
    expect(carols.get_by_role("status").filter(has_text="was undone").first).to_be_visible()
    assert ResourceGroup.objects.get(pk=group).slot_rule == "ngpus"


def test_states_of_members_are_live_and_hosts_are_found(carols: Page, scene: Scene) -> None:
    carols.goto(f"/resource-groups/{scene.first.instance_group.resource_group_id}/")
    expect(carols.locator("#live-dot")).to_have_attribute("data-status", "connected")
    drain_host("gpu-host-2", "carol")
    expect(carols.locator("tr[data-host=gpu-host-2] .state")).to_have_attribute("data-state", "DRAINING")
    carols.get_by_placeholder("Find a host").fill("HOST-2")
    expect(carols.locator("#members tbody tr:visible")).to_have_count(1)
    expect(carols.locator("[data-found]")).to_have_text("1 of 2 hosts")


def test_hostile_names_stay_text(carols: Page, scene: Scene) -> None:
    ResourceGroup.objects.update(name=HOSTILE[:64], description=HOSTILE)
    Host.objects.filter(name="gpu-host-1").update(name=f"<b>{'h' * 60}")
    for address in ("/resource-groups/", f"/resource-groups/{scene.first.instance_group.resource_group_id}/"):
        carols.set_viewport_size({"width": 390, "height": 844})
        carols.goto(address)
        carols.locator("[name=formula], table").first.wait_for()
        assert carols.evaluate(HARM) == ["", 0, 0]
        assert carols.evaluate("document.documentElement.scrollWidth") <= 390
    carols.get_by_label("Formula", exact=True).fill("<b>x</b>")
    expect(carols.locator("[data-caret=formula]")).to_contain_text("<b>x</b>")
    carols.get_by_role("button", name="Check for overlaps").click()
    expect(carols.locator("[data-overlaps] li")).to_have_count(1)
    assert carols.evaluate(HARM) == ["", 0, 0]
