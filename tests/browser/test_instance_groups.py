"""Instance groups in a browser: made by IBM's labels, changed with a preview and by the keyboard alone, live."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect

from jobs.actions.groups import change_instance_group, start_instance_group, stop_instance_group
from jobs.models import InstanceGroup
from tests.browser.conftest import listen, log_in
from tests.scene import Scene, user_who_can_log_in


@pytest.fixture
def carol(scene: Scene) -> User:
    return user_who_can_log_in("carol", is_staff=True)


@pytest.fixture
def admin(carol: User, context: BrowserContext, complaints: list[str]) -> Page:
    """Carol's browser, logged in; its console stays silent."""
    page = context.new_page()
    listen(page, complaints)
    log_in(page, "carol")
    return page


def test_a_group_is_made_from_a_template_by_the_names_of_wmla(admin: Page, complaints: list[str]) -> None:
    admin.goto("/instance-groups/")
    admin.get_by_role("link", name="New", exact=True).click()
    admin.get_by_role("listitem").filter(has_text="dli-sig-template-2-2-0").get_by_role("link").click()
    admin.get_by_label("Instance group name").fill("sig-2")
    admin.get_by_label("Execution user").fill("egoadmin")
    admin.get_by_role("button", name="Configuration").click()
    dialog = admin.get_by_role("dialog", name="Configuration")
    expect(dialog.get_by_label("Search")).to_be_focused()
    dialog.get_by_label("Search").fill("schedule_policy")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    dialog.get_by_label("SPARK_EGO_APP_SCHEDULE_POLICY").select_option("priority")
    dialog.get_by_label("Search").fill("")
    dialog.get_by_label("Paste parameters").fill("spark.ego.priority=700\nJAVA_HOME=/usr/lib/java")
    dialog.get_by_role("button", name="Apply these lines").click()
    expect(dialog.get_by_text("JAVA_HOME has no effect here: Java is not used.")).to_be_visible()
    expect(dialog.get_by_label("SPARK_EGO_PRIORITY", exact=True)).to_have_value("700")
    dialog.get_by_role("button", name="Done").click()
    expect(admin.get_by_label("Policy", exact=True)).to_have_value("priority")
    admin.get_by_role("button", name="Create and Deploy Instance Group").click()

    expect(admin.get_by_text("2 of 2 hosts are ready, with 8 GPUs.")).to_be_visible()
    admin.get_by_role("link", name="Continue to Instance Group").click()
    expect(admin.locator("#now .state-word")).to_have_text("Started")
    group = InstanceGroup.objects.get(name="sig-2")
    assert (group.policy, group.default_priority, group.execution_user) == ("priority", 700, "egoadmin")
    assert complaints == []


@pytest.mark.parametrize("width", [1440, 390])
def test_a_change_is_foreseen_applied_and_taken_back(
    admin: Page, scene: Scene, complaints: list[str], width: int
) -> None:
    admin.set_viewport_size({"width": width, "height": 900})
    group = scene.first.instance_group
    admin.goto(f"/instance-groups/{group.pk}/change/")
    expect(admin.locator("#preview").get_by_text("Nothing is changed yet.")).to_be_visible()
    admin.get_by_label("Policy", exact=True).select_option("priority")
    row = admin.locator("#preview tbody tr").filter(has_text="T1 digits-cnn")
    expect(row).to_contain_text("stops for now")
    assert InstanceGroup.objects.get().policy == "fairshare"
    admin.get_by_label("Weight", exact=True).fill("0")
    expect(admin.locator("#id_weight_error")).to_contain_text("set a quota or a weight")
    admin.get_by_label("Weight", exact=True).fill("2")
    expect(admin.locator("#preview").get_by_text("weight from 1 to 2")).to_be_visible()
    assert admin.evaluate("document.documentElement.scrollWidth") <= width
    admin.get_by_role("button", name="Apply").click()

    expect(
        admin.locator("#main").get_by_text("Changed: policy from fair share to priority; weight from 1 to 2.")
    ).to_be_visible()
    admin.get_by_role("button", name="Undo").click()
    expect(admin.locator("#main").get_by_text("The change was undone")).to_be_visible()
    group.refresh_from_db()
    assert (group.policy, group.weight, group.revision) == ("fairshare", 1, 3)
    assert complaints == []


def test_the_keyboard_alone_is_enough(admin: Page, scene: Scene, complaints: list[str]) -> None:
    admin.goto("/")
    admin.keyboard.press("g")
    admin.keyboard.press("i")
    expect(admin.get_by_role("heading", name="Instance groups")).to_be_visible()
    admin.get_by_role("link", name="sig-elastic").focus()
    admin.keyboard.press("Enter")
    admin.wait_for_url(f"**/instance-groups/{scene.first.instance_group_id}/")
    admin.get_by_role("tab", name="Overview").focus()
    admin.keyboard.press("ArrowRight")
    admin.keyboard.press("Enter")
    expect(admin.locator("#trainings").get_by_role("link", name="T1 digits-cnn")).to_be_visible()
    admin.get_by_role("link", name="Change").focus()
    admin.keyboard.press("Enter")
    admin.wait_for_url("**/change/")
    opener = admin.get_by_role("button", name="Configuration")
    opener.focus()
    admin.keyboard.press("Enter")
    expect(admin.get_by_label("Search", exact=True)).to_be_focused()
    admin.keyboard.press("Enter")
    expect(admin.get_by_role("dialog", name="Configuration")).to_be_visible()
    admin.keyboard.press("Escape")
    expect(opener).to_be_focused()
    assert InstanceGroup.objects.get().revision == 1
    assert complaints == []


def test_lists_and_pages_follow_what_others_do(admin: Page, carol: User, scene: Scene, complaints: list[str]) -> None:
    group = scene.first.instance_group
    admin.goto("/instance-groups/")
    expect(admin.locator("#live-dot")).to_have_attribute("data-status", "connected")
    change_instance_group(group.pk, {"quota": 5}, carol)
    expect(admin.locator("td[data-label='Quota']")).to_have_text("5")
    admin.goto(f"/instance-groups/{group.pk}/")
    expect(admin.locator("#live-dot")).to_have_attribute("data-status", "connected")
    stop_instance_group(group.pk, carol)
    expect(admin.locator("#now .state-word")).to_have_text("Stopped")
    assert complaints == []


#: Everything that the page of a group says but the chart and notices, also in tabs that are not open.
SAID = """() => {
    const copy = document.getElementById("main").cloneNode(true);
    for (const part of copy.querySelectorAll(".trace, script, time, .toasts, [data-notice]")) part.remove();
    const words = copy.textContent.replace(/\\s+/g, " ");
    const offers = [...copy.querySelectorAll("a[href], form, button")];
    return words + offers.map((part) => part.href ?? part.action ?? part.textContent).join(" ");
}"""


def test_all_of_a_groups_page_follows_what_others_do(
    admin: Page, carol: User, scene: Scene, complaints: list[str]
) -> None:
    group = scene.first.instance_group
    address = f"/instance-groups/{group.pk}/"
    admin.goto(address)
    expect(admin.locator("#live-dot")).to_have_attribute("data-status", "connected")
    admin.get_by_role("tab", name="Members").click()
    changes = {"policy": "fifo", "preemption": False, "description": "For <night>", "members": ["alice"]}
    change_instance_group(group.pk, {**changes, "admins": ["alice"], "quota": 5}, carol)
    expect(admin.locator("#members-now")).to_contain_text("alice")
    expect(admin.get_by_role("tab", name="Members")).to_have_attribute("aria-selected", "true")
    stop_instance_group(group.pk, carol)
    expect(admin.get_by_role("button", name="Start", exact=True)).to_be_visible()
    followed = admin.evaluate(SAID)
    admin.reload()
    assert followed == admin.evaluate(SAID)

    start_instance_group(group.pk, carol)
    stop = admin.get_by_role("button", name="Stop", exact=True)
    stop.click()
    dialog = admin.get_by_role("dialog", name="Stop this instance group?")
    change_instance_group(group.pk, {"description": "Later"}, carol)
    expect(admin.locator("#group-head")).to_contain_text("Later")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Stop instance group").click()
    expect(admin.locator("#now .state-word")).to_have_text("Stopped")
    assert complaints == []


def test_who_loses_a_group_is_told_and_offered_nothing(page: Page, carol: User, scene: Scene) -> None:
    group = scene.first.instance_group
    change_instance_group(group.pk, {"members": ["alice"], "admins": ["alice"]}, carol)
    page.goto(f"/instance-groups/{group.pk}/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    run = page.get_by_role("link", name="Train in this group")
    expect(run).to_be_visible()
    expect(page.get_by_role("link", name="Change")).to_be_visible()

    change_instance_group(group.pk, {"members": ["carol"]}, carol)
    expect(run).to_have_count(0)
    expect(page.get_by_role("link", name="Change")).to_be_visible()

    change_instance_group(group.pk, {"admins": []}, carol)
    expect(page.get_by_role("alert")).to_contain_text("you may no longer see it")
    expect(page.get_by_role("link", name="Change")).to_be_hidden()


def test_a_group_draws_what_its_trainings_had(admin: Page, scene: Scene, complaints: list[str]) -> None:
    admin.goto(f"/instance-groups/{scene.first.instance_group_id}/")
    chart = admin.locator("[data-chart=group]")
    expect(chart.locator(".chart-legend")).to_contain_text("T1 digits-cnn")
    expect(chart.locator(".chart-legend")).to_contain_text("GPUs of the resource group: 8")
    expect(chart.locator(".chart-legend")).not_to_contain_text("Free")
    with admin.expect_response(lambda response: response.url.endswith("/trace.json?minutes=60")):
        chart.get_by_role("button", name="1 h").click()
    assert complaints == []


@pytest.mark.parametrize("width", [1440, 390])
def test_fair_shares_follow_a_changed_quota(
    page: Page, carol: User, scene: Scene, complaints: list[str], width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    group = scene.first.instance_group
    page.goto("/fair-share/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    row = page.locator(f"tr#group-{group.pk}")
    expect(row.locator("td[data-label='Quota']")).to_have_text("none")
    expect(row.get_by_role("img")).to_be_visible()
    assert row.get_by_role("img").evaluate("bar => bar.getBoundingClientRect().width") > 100
    page.get_by_role("link", name="T1 digits-cnn").focus()

    change_instance_group(group.pk, {"quota": 6}, carol)

    expect(row.locator("td[data-label='Quota']")).to_have_text("6")
    expect(page.get_by_role("link", name="T1 digits-cnn")).to_be_focused()
    expect(page.get_by_text("another user's training")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []


def test_members_are_chosen_from_the_accounts(admin: Page, scene: Scene, complaints: list[str]) -> None:
    group = scene.first.instance_group
    group.members.set([scene.alice])
    admin.goto(f"/instance-groups/{group.pk}/change/")
    members = admin.get_by_role("list", name="Members")
    expect(members.get_by_role("listitem")).to_have_text(["alice"])
    menu = admin.get_by_label("Add to: Members")
    assert "alice" not in menu.locator("option").all_text_contents()
    menu.select_option("carol")
    expect(members.get_by_role("listitem")).to_have_text(["alice", "carol"])
    members.get_by_role("button", name="Remove alice").click()
    admin.get_by_role("button", name="Apply").click()
    expect(admin.locator("[data-notice]")).to_contain_text("Changed")
    assert [user.username for user in group.members.all()] == ["carol"]
    assert complaints == []
