"""The first hour of a new user: a script is dropped and started; clicks are counted, and each look is looked at."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect

from jobs.models import InstanceGroup, Job
from models_registry.models import RegisteredModelVersion
from tests.browser.conftest import listen, log_in
from tests.browser.test_accessibility import LOOKS, fits, look_at, take_picture, violations
from tests.browser.test_datasets import check_all
from tests.datasets.cifar_files import write_cifar
from tests.factories import host_with_slots
from tests.scene import Scene, user_who_can_log_in
from tests.test_architecture import ROOT

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=16, help="size of the hidden layer")
parser.add_argument("--amp", action="store_true")
print(parser.parse_args())
"""
BEGUN = "if __name__ == '__main__':\n    print(1)\n"
#: Counts what a person presses: a choice of a file is a press on its button, and one in the dialog for the file.
COUNT = """addEventListener("click", (event) => {
  if (event.isTrusted) sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1;
}, { capture: true });"""
_IN_FILE_DIALOG = 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "net.py").write_text("x = 1\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("not sent\n")
    for name in ("main.py", "train.py"):
        (folder / name).write_text(BEGUN)
    (tmp_path / "plain.py").write_text(SCRIPT)
    return folder


@pytest.fixture
def site_home() -> Iterator[Path]:
    """Yield the web process's home, with empty folders for data and models."""
    home = Path(os.environ["TIDEPOOL_HOME"])
    for name in ("data", "models"):
        (home / name).mkdir(exist_ok=True)
    yield home
    for name in ("data", "models"):
        shutil.rmtree(home / name)


def test_a_plain_script_takes_four_clicks(page: Page, scene: Scene, folder: Path, complaints: list[str]) -> None:
    page.add_init_script(COUNT)
    page.goto("/")
    page.get_by_role("link", name="Train", exact=True).click()
    with page.expect_file_chooser() as chooser:
        page.get_by_text("choose a file").click()
    chooser.value.set_files(folder.parent / "plain.py")
    expect(page.locator("#code [data-field=said]")).to_contain_text("The script reads no dataset.")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name="plain-").wait_for()

    # The click that opens the chooser is seen twice: by the label, and by the field that it is for.
    clicks = int(page.evaluate("sessionStorage.clicks")) - 1 + _IN_FILE_DIALOG
    assert clicks <= 4
    job = Job.objects.latest("pk")
    assert (job.dataset, job.max_slots, job.model.engine) == (None, 1, "single")
    assert complaints == []


def test_the_tutorial_takes_thirty_clicks(
    scene: Scene, context: BrowserContext, site_home: Path, complaints: list[str]
) -> None:
    """From an empty home to two trainings that share its GPUs, by what is shortest here; IBM's way has more steps."""
    user_who_can_log_in("carol", is_staff=True)
    page = context.new_page()
    listen(page, complaints)
    page.add_init_script(COUNT)
    log_in(page, "carol")
    data = write_cifar(site_home / "data/cifar10")
    shutil.copytree(ROOT / "examples/resnet-cifar", site_home / "models/resnet-cifar")
    choices = 0

    def choose(select: Locator, label: str) -> None:
        """Two presses with a pointer: on the field, and on the choice."""
        nonlocal choices
        choices += 1
        select.select_option(label=label)

    def menu(name: str) -> None:
        page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True).click()
        page.get_by_role("heading", level=1, name=name, exact=True).wait_for()

    page.goto("/")
    menu("Resource groups")
    page.get_by_role("link", name="Create a Resource Group").click()
    page.get_by_label("Resource group name").fill("TutorialHosts")
    page.get_by_role("button", name="Create", exact=True).click()
    menu("Instance groups")
    page.get_by_role("link", name="New", exact=True).click()
    page.get_by_role("listitem").filter(has_text="dli-sig-template-2-2-0").get_by_role("link").click()
    page.get_by_label("Instance group name").fill("elastic")
    choose(page.get_by_label("Resource group", exact=False), "TutorialHosts")
    page.get_by_role("button", name="Create and Deploy Instance Group").click()
    expect(page.get_by_text("2 of 2 hosts are ready, with 8 GPUs.")).to_be_visible()
    menu("Datasets")
    page.get_by_role("link", name="New dataset").click()
    page.get_by_role("link", name=re.compile("^Any")).click()
    page.get_by_label("Dataset name").fill("cifar")
    page.get_by_role("textbox", name=re.compile("^Training folder")).fill(str(data / "train_db"))
    page.get_by_role("textbox", name=re.compile("^Testing folder")).fill(str(data / "test_db"))
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("heading", level=1, name="cifar").wait_for()
    check_all()

    page.get_by_role("link", name="Train", exact=True).click()
    expect(page.get_by_role("complementary", name="What will happen")).to_contain_text("GPU")  # the script is loaded
    page.get_by_label("Or a path on the server").fill("resnet-cifar")
    page.keyboard.press("Enter")
    expect(page.locator("#code [data-field=said]")).to_contain_text("elastic-main.py is version 1")
    choose(page.locator("#id_dataset"), "cifar")
    page.get_by_label("Name of the training").fill("T1")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name="T1").wait_for()
    page.get_by_role("link", name="Clone training").click()
    page.get_by_label("Name of the training").fill("T2")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name="T2").wait_for()
    page.get_by_label("Priority").fill("10000")
    page.get_by_role("button", name="Save changes").click()
    expect(
        page.get_by_text("The training was changed. The scheduler applies the change at once.").first
    ).to_be_visible()
    menu("Usage")
    page.get_by_role("link", name="By training").click()
    page.locator("[data-chart=usage-allocation]").get_by_role("button", name="Table").click()

    assert int(page.evaluate("sessionStorage.clicks")) + 2 * choices <= 30
    group = InstanceGroup.objects.get(name="elastic")
    assert (group.policy, group.preemption) == ("fairshare", True)
    first, second = Job.objects.filter(instance_group=group).order_by("pk")
    assert [(job.name, job.model.engine, job.max_slots, job.priority) for job in (first, second)] == [
        ("T1", "elastic", 8, 5000),
        ("T2", "elastic", 8, 10_000),
    ]
    assert complaints == []


def test_a_folder_is_asked_about_and_every_look_is_in_order(
    page: Page, scene: Scene, folder: Path, complaints: list[str]
) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto("/jobs/new/")
    page.locator("#code-folder").set_input_files(folder)
    which = page.get_by_label("Training script")
    expect(which).to_be_focused()
    which.select_option("train.py")
    expect(page.locator("#code [data-field=said]")).to_contain_text("train.py is version 1 of your model repo.")
    page.locator("#code-file").set_input_files(folder.parent / "plain.py")
    expect(page.get_by_label("hidden")).to_have_attribute("placeholder", "16")
    expect(page.get_by_label("At most")).to_be_hidden()
    page.get_by_text("Other parameters, variables").click()
    page.get_by_label("Other parameters", exact=False).first.fill("hiden = 8")
    page.get_by_label("Environment variables").fill("WANDB_MODE = offline")
    page.get_by_role("button", name="Start training").click()

    expect(page.get_by_text("The script declares no --hiden: did you mean hidden?").first).to_be_visible()
    expect(page.get_by_label("Model").locator("option:checked")).to_have_text("plain")
    expect(page.get_by_label("Environment variables")).to_have_value("WANDB_MODE = offline")
    assert not Job.objects.filter(model__model__name="plain").exists()
    for look, (_, width, _) in LOOKS.items():
        look_at(page, look)
        assert fits(page, width), look
        take_picture(page, "train-after-a-mistake", look)
        assert violations(page) == []
    assert complaints == []


def test_what_is_dropped_or_picked_is_taken(page: Page, scene: Scene, site_home: Path, complaints: list[str]) -> None:
    page.goto("/jobs/new/")
    page.evaluate(
        """(text) => {
          const data = new DataTransfer();
          data.items.add(new File([text], "dropped.py"));
          document.getElementById("code").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }""",
        SCRIPT,
    )
    expect(page.locator("#code [data-field=said]")).to_contain_text("dropped.py is version 1 of your model dropped.")
    expect(page.get_by_label("Model").locator("option:checked")).to_have_text("dropped")
    (site_home / "models/there.py").write_text(SCRIPT)
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.setData("text/plain", "there.py");
          document.getElementById("code").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
        }""",
    )
    expect(page.locator("#code [data-field=said]")).to_contain_text("there.py is version 1 of your model there.")
    (site_home / "models/picked.py").write_text(SCRIPT)
    page.locator("#code-path").fill("")
    page.get_by_role("button", name="Browse for the folder of the code").click()
    page.get_by_role("dialog").get_by_role("button", name="picked.py").click()
    expect(page.locator("#code [data-field=said]")).to_contain_text("picked.py is version 1 of your model picked.")
    assert complaints == []


#: Drops a folder, as a browser gives it: entries whose contents are read in steps.
DROP_FOLDER = """(text) => {
  const reader = (entries) => ({ readEntries: (take) => take(entries.splice(0)) });
  const folder = (name, ...entries) => ({ name, isFile: false, createReader: () => reader([...entries]) });
  const file = (name) => ({ name, isFile: true, file: (take) => take(new File([text], name)) });
  const dropped = folder("project", file("train.py"), folder("out", folder("plots")), folder("lib", file("net.py")));
  DataTransferItem.prototype.webkitGetAsEntry = () => dropped;
  const data = new DataTransfer();
  data.items.add(new File([text], "project"));
  document.getElementById("code").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
}"""


def test_a_dropped_folder_keeps_its_empty_folders(page: Page, scene: Scene, complaints: list[str]) -> None:
    page.goto("/jobs/new/")
    page.evaluate(DROP_FOLDER, SCRIPT)
    expect(page.locator("#code [data-field=said]")).to_contain_text("train.py is version 1 of your model project.")
    folder = RegisteredModelVersion.objects.get(model__name="project").folder
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == [
        *("lib", "lib/net.py", "out", "out/plots", "train.py"),
    ]
    assert complaints == []


def test_enter_sends_a_path_that_was_typed_before_the_script_listened(
    page: Page, site_home: Path, complaints: list[str]
) -> None:
    (site_home / "models/early.py").write_text(SCRIPT)
    held: list[Route] = []
    page.route("**/js/pages/train.*.js", lambda route: held.append(route))
    with page.expect_request("**/js/pages/train.*.js"):
        page.goto("/jobs/new/", wait_until="commit")
    page.get_by_label("Or a path on the server").fill("early.py")
    page.keyboard.press("Enter")
    held[0].continue_()
    expect(page.get_by_role("complementary", name="What will happen")).to_contain_text("GPU")

    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    address = page.locator("#code").get_attribute("data-address")
    page.keyboard.press("Enter")
    expect(page.locator("#code [data-field=said]")).to_contain_text("early.py is version 1 of your model early.")
    page.get_by_label("Name of the training").focus()
    assert [url for url in sent if url.endswith(str(address))] == [page.url.removesuffix("/jobs/new/") + str(address)]
    assert complaints == []


def test_an_empty_home_leads_to_the_first_training_in_twelve_clicks(
    transactional_db: None, home: Path, context: BrowserContext, complaints: list[str], folder: Path
) -> None:
    """Each step begins with the button that the overview offers; nothing else is known."""
    user_who_can_log_in("carol", is_staff=True)
    host_with_slots()
    page = context.new_page()
    listen(page, complaints)
    page.add_init_script(COUNT)
    log_in(page, "carol")

    def overview() -> None:
        page.get_by_role("navigation", name="Main").get_by_role("link", name="Overview").click()
        page.get_by_role("heading", level=2, name="First steps").wait_for()

    page.goto("/")
    page.locator("#first-steps").get_by_role("link", name="Create a resource group").click()
    page.get_by_label("Resource group name").fill("Hosts")
    page.get_by_role("button", name="Create", exact=True).click()
    overview()
    page.locator("#first-steps").get_by_role("link", name="Create an instance group").click()
    page.get_by_role("listitem").filter(has_text="dli-sig-template-2-2-0").get_by_role("link").click()
    page.get_by_label("Instance group name").fill("elastic")
    page.get_by_role("button", name="Create and Deploy Instance Group").click()
    page.get_by_role("heading", level=1, name="Deployment of elastic").wait_for()
    overview()
    page.locator("#first-steps").get_by_role("link", name="Train a model").click()
    with page.expect_file_chooser() as chooser:
        page.get_by_text("choose a file").click()
    chooser.value.set_files(folder.parent / "plain.py")
    expect(page.locator("#code [data-field=said]")).to_contain_text("The script reads no dataset.")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name="plain-").wait_for()

    # The click that opens the chooser is seen twice: by the label, and by the field that it is for.
    assert int(page.evaluate("sessionStorage.clicks")) - 1 + _IN_FILE_DIALOG <= 12
    page.goto("/")
    expect(page.get_by_role("heading", level=2, name="First steps")).to_have_count(0)
    assert complaints == []
