"""The browser that tests drive on a machine that has none."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "chromium"
NAMES = ("chromium", "google-chrome")


def bare_path(folder: Path) -> str:
    """Return a PATH with all programs of this machine except browsers."""
    folder.mkdir()
    for place in os.get_exec_path():
        for program in Path(place).glob("*"):
            if not program.name.startswith(NAMES) and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with this script alone, and the programs of .venv."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(ROOT / ".venv" / "bin")
    return tmp_path


def run(checkout: Path, path: str) -> subprocess.CompletedProcess[str]:
    command = [checkout / "scripts" / "chromium"]
    return subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)


def test_the_browser_of_the_machine_comes_first(checkout: Path, tmp_path: Path) -> None:
    path = bare_path(tmp_path / "programs")
    for name in ("google-chrome", "chromium"):
        (tmp_path / "programs" / name).symlink_to("/bin/true")
    assert run(checkout, path).stdout == f"{tmp_path}/programs/chromium\n"


def test_where_npm_fetches_nothing_the_sentence_says_what_to_do(checkout: Path, tmp_path: Path) -> None:
    path = bare_path(tmp_path / "programs")
    (checkout / ".venv" / "bin").unlink()
    for name in ("npm", "node"):
        (tmp_path / "programs" / name).unlink(missing_ok=True)
        (tmp_path / "programs" / name).symlink_to("/bin/false")
    found = run(checkout, path)
    assert (found.returncode, found.stdout) == (1, "")
    assert "npm could not fetch it" in found.stderr
    assert "apt-get install chromium-headless-shell" in found.stderr


@pytest.mark.long
def test_without_one_it_is_fetched_once_and_draws_pages(checkout: Path, tmp_path: Path) -> None:
    path = bare_path(tmp_path / "programs")
    first, second = run(checkout, path), run(checkout, path)
    assert first.returncode == 0, first.stderr
    assert "fetching Chromium" in first.stderr
    assert (second.stdout, second.stderr) == (first.stdout, "")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=first.stdout.strip(), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<p id=here>drawn</p>")
        assert page.locator("#here").bounding_box()["width"] > 0  # type: ignore[index]
        browser.close()
