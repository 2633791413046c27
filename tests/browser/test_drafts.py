"""Entries in any form of the site survive a reload and a log-in that ran out."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from models_registry.models import ModelTemplate
from tests.browser.conftest import log_in
from tests.scene import PASSWORD, Scene, user_who_can_log_in
from tests.sitemap import addresses, staff_addresses

#: Script that defines `forms()`: the forms that post, keep drafts and have a field to fill in; `state(form)`: their
#: fields' values.
FUNCTIONS = """
    const skipped = ["hidden", "password", "file", "submit", "button"];
    const fields = (form) => [...form.elements].filter(({ name, type }) => name && !skipped.includes(type));
    const forms = () => [...document.forms].filter((form) =>
        form.getAttribute("method")?.toLowerCase() === "post" && fields(form).length
        && !("keepsNoDraft" in form.dataset));
    const kind = (form) => [form.getAttribute("action") ?? location.pathname, ...fields(form).map(({ name }) => name)];
    const value = (field) => ["checkbox", "radio"].includes(field.type) ? field.checked
        : field.options ? [...field.selectedOptions].map(({ value }) => value) : field.value;
    const state = (form) => fields(form).map((field) => [field.name, value(field)]);
    const enter = (field, number) => {
        const free = field.options ? [...field.options].filter(({ selected, disabled }) => !selected && !disabled) : [];
        if (field.type === "checkbox") field.checked = !field.checked;
        else if (field.type === "radio") field.checked = true;
        else if (field.options) free.slice(-1).forEach((option) => (option.selected = true));
        else if (field.type === "number") field.value = String(Number(field.min || 1) + 1);
        else if (field.type === "datetime-local") field.value = "2026-01-02T03:04";
        else if (field.type === "date") field.value = "2026-01-02";
        else if (field.type === "time") field.value = "03:04";
        else if (field.tagName === "TEXTAREA") field.value = `first ${number}\\n<b>second</b>`;
        else field.value = `typed ${number}`;
        for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }));
    };
"""


def run(page: Page, script: str, argument: Any = None) -> Any:
    return page.evaluate(f"(argument) => {{ {FUNCTIONS} {script} }}", argument)


def fill_in(page: Page) -> None:
    each = "fields(form).forEach((field, number) => field.isConnected && enter(field, number))"
    run(page, f"for (const form of forms()) {each}")


def states(page: Page) -> list[Any]:
    found: list[Any] = run(page, "return forms().map(state)")
    return found


def kinds(page: Page) -> list[str]:
    return [re.sub(r"\d+", "1", json.dumps(kind)) for kind in run(page, "return forms().map(kind)")]


def log_in_again(page: Page, name: str) -> None:
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.parametrize("one_in", [4, pytest.param(1, marks=pytest.mark.long)])
def test_every_form_survives_a_reload_and_a_log_in(scene: Scene, context: BrowserContext, one_in: int) -> None:
    """Each is reloaded; of the log-ins, one in so many."""
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    log_in(page, "carol")
    walked: set[str] = set()
    numbers, lost = count(), []
    for address in [*addresses(scene), *staff_addresses(scene)]:
        page.goto(address)
        fresh = [place for place, kind in enumerate(kinds(page)) if kind not in walked]
        if not fresh:
            continue
        walked.update(kinds(page))
        before = states(page)
        fill_in(page)
        entered = states(page)
        assert entered != before, address
        page.reload()
        expect(page.locator(".draft-notice")).to_have_count(1)
        if (after := states(page)) != entered:
            lost.append((address, "by a reload", entered, after))
        for place in fresh:
            if next(numbers) % one_in:
                continue
            context.clear_cookies(name="tidepool_session")
            send = "const form = forms()[argument]; form.noValidate = true; form.requestSubmit(); return form.id"
            if run(page, send, place) == "bulk":  # a script sends it, and the page stays
                page.get_by_role("link", name="Log in again").click()
            page.wait_for_url(re.compile("/login/.next="))
            log_in_again(page, "carol")
            expect(page.locator(".draft-notice")).to_have_count(1)
            assert page.url.partition("#")[0].endswith(address), (page.url, address)
            if (after := states(page)) != entered:
                lost.append((address, "by a log-in", entered, after))
    assert lost == []
    assert len(walked) > 20, walked


def test_what_the_server_has_accepted_is_not_shown_again(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    page.get_by_role("spinbutton", name="Priority").fill("6000")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("[data-notice]")).to_contain_text("The training was changed")
    scene.first.priority = 7000
    scene.first.save(update_fields=["priority"])
    page.reload()
    expect(page.get_by_role("spinbutton", name="Priority")).to_have_value("7000")
    expect(page.locator(".draft-notice")).to_have_count(0)


def test_what_was_refused_by_a_notice_is_shown_again(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/")
    tags = page.locator("#tag-add")
    tags.fill("a,b c/d")
    tags.press("Enter")
    expect(page.locator("[data-notice][role=alert]")).to_have_count(1)
    expect(tags).to_have_value("a,b c/d")


def test_discarding_and_logging_out_forget_the_entries(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    name = page.get_by_label("Name of the training")
    name.fill("mine")
    page.reload()
    expect(name).to_have_value("mine")
    page.get_by_role("button", name="Discard entries").click()
    expect(page.locator(".draft-notice")).to_have_count(0)
    expect(name).not_to_have_value("mine")
    name.fill("mine")
    page.locator("[data-ends-log-in]").evaluate("form => form.requestSubmit()")
    page.wait_for_url("**/login/")
    log_in(page, "alice")
    page.goto("/jobs/new/")
    expect(name).not_to_have_value("mine")


def test_what_was_ticked_in_the_list_stays_ticked_until_it_was_acted_on(page: Page, scene: Scene) -> None:
    page.goto("/jobs/?state=active")
    page.get_by_label("Select T1 digits-cnn").check()
    page.reload()
    expect(page.get_by_label("Select T1 digits-cnn")).to_be_checked()
    expect(page.get_by_label("Select T2 digits-cnn")).not_to_be_checked()
    page.get_by_label("Select all on this page").check()
    page.reload()
    expect(page.locator("#bulk-count")).to_contain_text("3 trainings selected")
    page.locator("#bulk-tag").fill("kept")
    page.get_by_role("button", name="Add tag").click()
    expect(page.get_by_text("3 trainings have the tag kept.")).to_be_visible()
    page.reload()
    expect(page.locator("#bulk")).to_be_hidden()
    expect(page.locator(".draft-notice")).to_have_count(0)


def test_another_user_of_the_tab_is_shown_nothing(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    page.get_by_label("Name of the training").fill("secret plans")
    log_in(page, user_who_can_log_in("dora").username)
    page.reload()
    expect(page.get_by_label("Name of the training")).not_to_have_value("secret plans")
    assert "secret plans" not in page.evaluate("JSON.stringify(sessionStorage)")


def test_a_password_is_never_kept(page: Page, scene: Scene) -> None:
    page.goto("/account/")
    page.get_by_label("Current password").fill("correct horse battery")
    page.locator("#id_name").first.fill("nightly")
    assert "nightly" in page.evaluate("JSON.stringify(sessionStorage)")
    assert "correct horse" not in page.evaluate("JSON.stringify(sessionStorage)")


def test_the_log_in_says_that_the_entries_are_kept(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    page.get_by_label("Tags").fill("night")
    page.context.clear_cookies(name="tidepool_session")
    page.get_by_role("button", name="Start training").click()
    promise = page.locator("[data-login]").get_by_role("status")
    expect(promise).to_contain_text("What you entered and did not save is kept")
    log_in_again(page, "alice")
    expect(page.get_by_label("Tags")).to_have_value("night")

    page.get_by_role("button", name="Discard entries").click()
    page.context.clear_cookies(name="tidepool_session")
    page.goto("/")
    expect(page.get_by_label("User name")).to_be_visible()
    expect(promise).to_have_count(0)


def test_train_says_that_the_log_in_ended_and_leads_back_to_the_entries(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    page.get_by_label("epochs").fill("7")
    page.context.clear_cookies(name="tidepool_session")
    page.get_by_label("Tags").fill("night")
    panel = page.get_by_role("complementary", name="What will happen")
    expect(panel.locator("[data-field=gpus-words]")).to_have_text("You are logged out: log in again.")
    page.get_by_role("alert").get_by_role("link", name="Log in again").click()
    log_in_again(page, "alice")
    page.wait_for_url("**/jobs/new/")
    expect(page.get_by_label("epochs")).to_have_value("7")
    expect(page.get_by_label("Tags")).to_have_value("night")
    expect(panel.locator("[data-field=gpus]")).to_have_text(re.compile(r"\d+ GPUs?"))


def test_an_upload_that_has_arrived_survives_a_refused_form_and_a_log_in(
    page: Page, scene: Scene, tmp_path: Path
) -> None:
    (tmp_path / "fit.py").write_text("print('training')\n")
    page.goto("/models/templates/new/")
    page.get_by_label("Name", exact=True).fill(ModelTemplate.objects.get(pk=scene.model.template_id).name)
    page.get_by_label("Or upload the code").set_input_files(tmp_path / "fit.py")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#id_name_error")).to_contain_text("There is already a template")
    expect(page.locator("#unfinished")).to_contain_text("fit.py: uploaded, and used when you send the form.")
    page.get_by_label("Name", exact=True).fill("fitted")
    page.context.clear_cookies(name="tidepool_session")
    page.get_by_role("button", name="Add").click()
    log_in_again(page, "alice")
    expect(page.get_by_label("Name", exact=True)).to_have_value("fitted")
    expect(page.locator("#unfinished")).to_contain_text("fit.py: uploaded, and used when you send the form.")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("fitted")


def test_an_upload_that_is_cut_off_by_the_end_of_a_log_in_goes_on_after_the_next(
    page: Page, scene: Scene, tmp_path: Path
) -> None:
    archive = tmp_path / "plants.csv"
    archive.write_bytes(b"a,b\n" + b"1,2\n" * 2 * 1024**2)  # two pieces
    page.goto("/datasets/new/?kind=any")
    page.get_by_label("Dataset name").fill("plants")
    page.get_by_label("On my computer").check()
    page.get_by_label("File", exact=False).set_input_files(archive)

    def log_out_after_the_first(route: Route) -> None:
        if route.request.method == "PATCH" and route.request.headers["upload-offset"] != "0":
            page.context.clear_cookies(name="tidepool_session")
        route.continue_()

    pieces = re.compile(r"/api/v1/uploads/\d+/")
    page.route(pieces, log_out_after_the_first)
    page.get_by_role("button", name="Create").click()
    problem = page.locator("#upload [role=alert]")
    expect(problem).to_contain_text("You are logged out")
    page.unroute(pieces)
    page.get_by_role("link", name="Log in again").click()
    log_in_again(page, "alice")
    expect(page.get_by_label("Dataset name")).to_have_value("plants")
    expect(page.locator("#unfinished")).to_contain_text("Choose the same file again to continue")
    page.get_by_label("File", exact=False).set_input_files(archive)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("plants")
