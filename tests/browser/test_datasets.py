"""Datasets as a person makes them: folders picked without a pointer, an upload that is cut, and the check seen live."""

import os
import random
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from datasets.background import DatasetChecks
from datasets.models import Dataset, DatasetVersion
from tests.core.archives import tar_of
from tests.factories import DatasetVersionFactory
from tests.scene import Scene
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> Iterator[None]:
    yield
    # 409 tells an upload that the server still writes the piece that was cut off: it asks where to go on.
    assert [line for line in complaints if "ERR_" not in line and "409 (Conflict)" not in line] == []


@pytest.fixture
def data() -> Iterator[Path]:
    """The data folder of the web process, which has a home of its own."""
    folder = Path(os.environ["TIDEPOOL_HOME"], "data")
    for name in ("plants/train", "plants/held-out"):
        (folder / name).mkdir(parents=True)
        (folder / name / "leaves.csv").write_text("length,species\n1.5,oak\n2.5,elm\n3,oak\n")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Larger than two pieces, and not to be compressed."""
    noise = random.Random(1).randbytes(9 * 1024**2)
    file = tmp_path / "plants.tar"
    file.write_bytes(tar_of({"train.csv": b"a,b\n1,2\n", "noise.bin": noise}, mode="w").getvalue())
    return file


def check_all() -> None:
    DatasetChecks().run(threading.Event())


def pick_by_keyboard(page: Page, field: str, letters: str) -> None:
    """Opens the folders that begin with these letters, one inside the other, and picks the last."""
    page.wait_for_load_state()
    page.get_by_role("button", name=f"Browse for the {field}").press("Enter")
    dialog = page.get_by_role("dialog", name=f"Choose the {field}")
    for letter in letters:
        expect(dialog.locator(".folders-list button").first).to_be_focused()
        page.keyboard.press(letter)
        before = dialog.locator(".folders-trail li").count()
        page.keyboard.press("Enter")
        expect(dialog.locator(".folders-trail li")).to_have_count(before + 1)
    page.keyboard.press("Enter")  # an empty list leaves the focus on "Choose this folder"
    expect(dialog).to_be_hidden()


def test_from_the_kind_to_the_preview_without_a_pointer(page: Page, scene: Scene, data: Path) -> None:
    page.goto("/datasets/")
    page.get_by_role("link", name="New dataset").press("Enter")
    page.get_by_role("link", name="CSV Files").press("Enter")
    page.get_by_label("Dataset name").fill("plants")
    pick_by_keyboard(page, "training folder", "pt")
    expect(page.get_by_role("textbox", name="Training folder")).to_have_value(str(data / "plants/train"))
    pick_by_keyboard(page, "testing folder", "ph")
    page.get_by_role("button", name="Create").press("Enter")

    expect(page.get_by_role("heading", level=1)).to_contain_text("plants Ready")
    expect(page.locator("section[aria-labelledby=classes-title]")).to_contain_text("oak")
    expect(page.locator("section[aria-labelledby=head-title]")).to_contain_text("length")
    assert DatasetVersion.objects.get(dataset__name="plants").testing == str(data / "plants/held-out")


def test_nothing_is_picked_before_the_folder_asked_for_is_there(page: Page, scene: Scene, data: Path) -> None:
    page.goto("/datasets/new/?kind=any")
    page.get_by_role("textbox", name="Training folder").fill(str(data / "plants"))
    page.get_by_role("button", name="Browse for the training folder").click()
    pick = page.locator("#folders [data-pick]")
    expect(pick).to_be_enabled()
    held: list[Route] = []
    page.route("**/folders/**", lambda route: held.append(route))
    page.locator(".folders-list button", has_text="train").click()
    expect(pick).to_be_disabled()
    page.locator(".folders-list button", has_text="held-out").click()
    wait_until(lambda: page.title() and len(held) == 2, "both folders are asked for")  # a call lets routes come in
    held[1].continue_()
    expect(pick).to_be_enabled()
    with page.expect_response(lambda response: response.url == held[0].request.url):
        held[0].continue_()
    pick.click()
    expect(page.get_by_role("textbox", name="Training folder")).to_have_value(str(data / "plants/held-out"))


def test_large_folders_are_shown_in_pages_and_files_cannot_be_picked(page: Page, scene: Scene, data: Path) -> None:
    for number in range(250):
        (data / "plants/train" / f"{number:03}").mkdir()
    page.goto("/datasets/new/?kind=any")
    page.get_by_role("textbox", name="Training folder").fill(str(data / "plants/train"))
    page.get_by_role("button", name="Browse for the training folder").click()
    entries = page.locator(".folders-list li")
    expect(entries).to_have_count(200)
    page.get_by_role("button", name="Show more").click()
    expect(entries).to_have_count(251)
    expect(entries.last.locator("button")).to_have_count(0)
    page.keyboard.press("Backspace")
    expect(page.locator(".folders-list button", has_text="train")).to_be_focused()


def test_an_upload_that_is_cut_goes_on_by_itself(page: Page, scene: Scene, archive: Path) -> None:
    sent: list[int] = []

    def cut_second(route: Route) -> None:
        if route.request.method == "PATCH":
            sent.append(int(route.request.headers["upload-offset"]))
            if len(sent) == 2:
                route.abort("connectionreset")
                return
        route.continue_()

    page.route(re.compile(r"/api/v1/uploads/\d+/"), cut_second)
    start_upload(page, archive)

    expect(page.get_by_role("heading", level=1)).to_contain_text("plants Waiting", timeout=60_000)
    assert sent == [0, 4 * 1024**2, 4 * 1024**2, 8 * 1024**2]
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    check_all()
    expect(page.get_by_role("heading", level=1)).to_contain_text("plants Ready")
    expect(page.locator("#dataset")).to_contain_text("Contents")


def test_an_upload_goes_on_after_the_page_was_loaded_again(page: Page, scene: Scene, archive: Path) -> None:
    offsets: list[int] = []

    def lose_the_rest(route: Route) -> None:
        if route.request.method == "PATCH" and route.request.headers["upload-offset"] != "0":
            route.abort("connectionreset")
        else:
            route.continue_()

    pieces = re.compile(r"/api/v1/uploads/\d+/")
    page.route(pieces, lose_the_rest)
    start_upload(page, archive)
    expect(page.locator("#upload")).to_contain_text("The connection was lost. The upload continues automatically")
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/datasets/new/?kind=any")
    page.unroute(pieces)  # not before: the page would try again, and leave more than the first piece
    page.on(
        "request",
        lambda request: "upload-offset" in request.headers and offsets.append(int(request.headers["upload-offset"])),
    )
    page.get_by_label("On my computer").check()
    expect(page.locator("#unfinished")).to_contain_text(
        "plants.tar: 44 % is uploaded. Choose the same file again to continue."
    )
    page.get_by_label("Dataset name").fill("plants")
    page.get_by_label("File", exact=False).set_input_files(archive)
    page.get_by_role("button", name="Create").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("plants Waiting", timeout=60_000)
    assert offsets[0] == 4 * 1024**2


def start_upload(page: Page, archive: Path) -> None:
    page.goto("/datasets/new/?kind=any")
    page.get_by_label("Dataset name").fill("plants")
    page.get_by_label("On my computer").check()
    page.get_by_label("File", exact=False).set_input_files(archive)
    page.get_by_role("button", name="Create").click()


def test_what_the_server_refuses_is_said_where_the_file_was_chosen(page: Page, scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "setup.exe").write_bytes(b"MZ")
    page.goto("/datasets/new/?kind=any")
    page.get_by_label("Dataset name").fill("mine")
    page.get_by_label("On my computer").check()
    page.get_by_label("File", exact=False).set_input_files(tmp_path / "setup.exe")
    page.get_by_role("button", name="Create").click()

    expect(page.locator("#upload").get_by_role("alert")).to_contain_text("A file of this kind is not accepted")
    expect(page.get_by_label("Dataset name")).to_have_value("mine")


def test_checks_are_seen_in_the_list(page: Page, scene: Scene, home: Path) -> None:
    (home / "data/later").mkdir()
    (home / "data/later/a.bin").write_text("x")
    version = DatasetVersionFactory(
        dataset__name="later", path=str(home / "data/later"), state="WAITING", size_bytes=None, file_count=None
    )
    page.goto("/datasets/")
    row = page.locator(f"tr#dataset-{version.dataset_id}")
    expect(row).to_contain_text("Waiting")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    check_all()

    expect(row).to_contain_text("Ready")
    expect(row).to_contain_text("1 B")


def test_deleting_asks_first_and_names_what_is_lost(page: Page, scene: Scene) -> None:
    page.goto(f"/datasets/{scene.refused.dataset_id}/")
    page.get_by_role("button", name="Delete dataset").click()
    dialog = page.get_by_role("dialog", name="Delete the dataset measurements?")
    expect(dialog).to_contain_text("Files in folders on the server are kept.")
    page.keyboard.press("Enter")  # the focus is on the button that keeps it
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Delete dataset").click()
    dialog.get_by_role("button", name="Delete dataset").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Datasets")
    expect(page.locator("#main")).to_contain_text("The dataset measurements has been deleted.")
    assert not Dataset.objects.filter(name="measurements").exists()
