"""The view of a training's files, where several of its processes make it at once."""

import os
from pathlib import Path

import pytest
from tidepool.confine import mounts


@pytest.mark.parametrize("is_folder", [True, False])
def test_places_that_another_rank_makes_meanwhile_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_folder: bool
) -> None:
    make = os.mkdir

    def make_second(path: str, mode: int) -> None:
        make(path, mode)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", make_second)
    place = tmp_path / "srv" / "code" / "train"
    mounts._make(str(place), None, is_folder=is_folder)
    assert (place.is_dir(), place.is_file()) == (is_folder, not is_folder)
