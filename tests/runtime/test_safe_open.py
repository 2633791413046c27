"""Files and folders that scripts may have replaced by links are neither opened, made nor removed elsewhere."""

import os
from pathlib import Path

import pytest
from tidepool.safe_open import ForeignFileError, open_below, open_ours, remove_below

from tests.ordinary_user import ordinary_folder

CREATE = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "attempt-1" / "log" / "environment@host-a" / "stdout"
    for _ in range(2):
        os.close(open_ours(path, CREATE, parts=3))
    assert path.is_file()


@pytest.mark.parametrize("link", ["log", "log/environment@host-a", "log/environment@host-a/stdout"])
def test_nothing_is_made_where_a_link_leads(tmp_path: Path, link: str) -> None:
    attempt, theirs = tmp_path / "attempt-1", tmp_path / "theirs"
    theirs.mkdir()
    (attempt / link).parent.mkdir(parents=True)
    (attempt / link).symlink_to(theirs)
    with pytest.raises(ForeignFileError):
        open_ours(attempt / "log" / "environment@host-a" / "stdout", CREATE, parts=3)
    assert os.listdir(theirs) == []


@pytest.mark.parametrize("parts", [["..", "theirs", "file"], ["log", "../../theirs", "file"], ["../theirs/file"]])
def test_no_name_leads_out_of_its_folder(tmp_path: Path, parts: list[str]) -> None:
    (tmp_path / "mine" / "log").mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("secret")
    assert (tmp_path / "mine").joinpath(*parts).exists()
    assert open_below(tmp_path / "mine", parts) is None
    remove_below(tmp_path / "mine", parts)
    assert (tmp_path / "theirs" / "file").exists()


def test_folders_that_a_script_has_closed_are_removed() -> None:
    """Go's cache of modules closes its folders to writing."""
    with ordinary_folder() as top:
        for name, mode in (("go/pkg/mod", 0o555), ("closed", 0)):
            folder = top / "temporary" / name
            folder.mkdir(parents=True)
            (folder / "file").write_text("x")
            folder.chmod(mode)
        remove_below(top, ["temporary"])
        assert os.listdir(top) == []
