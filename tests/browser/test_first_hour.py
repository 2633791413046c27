"""The first hour of a new user: a script is dropped and started; clicks are counted, and each look is looked at."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Job
from tests.browser.test_accessibility import LOOKS, fits, look_at, take_picture, violations
from tests.scene import Scene

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


def test_a_plain_script_takes_four_clicks(page: Page, scene: Scene, folder: Path, complaints: list[str]) -> None:
    page.add_init_script(COUNT)
    page.goto("/")
    page.get_by_role("link", name="Train", exact=True).click()
    with page.expect_file_chooser() as chooser:
        page.get_by_text("choose a file").click()
    chooser.value.set_files(folder.parent / "plain.py")
    expect(page.locator("#code [data-field=said]")).to_contain_text("It reads no dataset.")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name="plain-").wait_for()

    # The click that opens the chooser is seen twice: by the label, and by the field that it is for.
    clicks = int(page.evaluate("sessionStorage.clicks")) - 1 + _IN_FILE_DIALOG
    assert clicks <= 4
    job = Job.objects.latest("pk")
    assert (job.dataset, job.max_slots, job.model.engine) == (None, 1, "single")
    assert complaints == []


def test_a_folder_is_asked_about_and_every_look_is_in_order(
    page: Page, scene: Scene, folder: Path, complaints: list[str]
) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto("/jobs/new/")
    page.locator("#code-folder").set_input_files(folder)
    which = page.get_by_label("Which script trains?")
    expect(which).to_be_focused()
    which.select_option("train.py")
    expect(page.locator("#code [data-field=said]")).to_contain_text("train.py is version 1 of your model repo.")
    page.locator("#code-file").set_input_files(folder.parent / "plain.py")
    expect(page.get_by_label("hidden")).to_have_attribute("placeholder", "16")
    expect(page.get_by_label("At most")).to_be_hidden()
    page.get_by_text("Other parameters, environment").click()
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


def test_what_is_dropped_is_taken(page: Page, scene: Scene, complaints: list[str]) -> None:
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
    assert complaints == []
