"""Paths stay below the allowed roots, and a folder's digest tells what is in it."""

import os
from pathlib import Path

import pytest

from core.errors import UserError
from core.folders import empty_folders, folder_facts, regular_files, resolve_under


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "inside").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return tmp_path / "root"


def test_absolute_and_relative_paths_below_the_root(root):
    assert resolve_under("inside", [root]) == root / "inside"
    assert resolve_under(str(root / "inside"), [root]) == root / "inside"
    assert resolve_under(f"{root}/inside/../inside/", [root]) == root / "inside"


@pytest.mark.parametrize("path", ["../outside", "/etc", "/", "", ".", "inside/../../outside", "../root-2", "link"])
def test_paths_elsewhere_are_refused_without_a_look(root, path):
    (root.parent / "root-2").mkdir()
    (root / "link").symlink_to(root.parent / "outside")
    with pytest.raises(
        UserError,
    ) as caught:
        resolve_under(path, [root])
    assert (caught.value.code, list(caught.value.fields)) == ("outside", ["path"])


@pytest.mark.parametrize("path", ["missing", "x" * 5000, "a\0b", "\ud800", "inside/" * 2000])
def test_what_is_not_there_is_refused(root, path):
    with pytest.raises(
        UserError,
    ) as caught:
        resolve_under(path, [root])
    assert caught.value.code == "missing"


def test_links_and_devices_are_no_content(root):
    (root / "inside" / "a.txt").write_text("a")
    (root / "inside" / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "inside" / "pipe")
    assert [name for name, _ in regular_files(root / "inside")] == ["a.txt"]


def test_an_empty_folder_is_part_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    without = folder_facts(tmp_path).digest
    (tmp_path / "out/plots").mkdir(parents=True)
    assert empty_folders(tmp_path) == ["out/plots"]
    assert folder_facts(tmp_path).digest != without


def test_the_digest_tells_names_and_contents_apart(root):
    folder = root / "inside"
    (folder / "a").write_text("1")
    first = folder_facts(folder)
    assert (first.file_count, first.size_bytes) == (1, 1)
    assert folder_facts(folder) == first
    (folder / "a").write_text("2")
    changed = folder_facts(folder).digest
    (folder / "a").rename(folder / "b")
    assert len({first.digest, changed, folder_facts(folder).digest}) == 3
