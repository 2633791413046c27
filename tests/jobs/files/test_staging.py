"""A new training's copy of its code, which another training's run may be changing meanwhile."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.files import job_folder
from jobs.files.job_folder import stage

Swap = Callable[[Path, Path], None]


@pytest.fixture(autouse=True)
def _home(settings: Any, tmp_path: Path) -> None:
    settings.TIDEPOOL_RESULTS_ROOT = tmp_path / "results"


def _file(code: Path, secret: Path) -> None:
    (code / "package" / "main.py").unlink()
    (code / "package" / "main.py").symlink_to(secret / "main.py")


def _folder(code: Path, secret: Path) -> None:
    (code / "package").rename(code.parent / "aside")
    (code / "package").symlink_to(secret)


def test_times_and_modes_are_those_of_the_original(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "package").mkdir(parents=True)
    script = code / "package" / "run.sh"
    script.write_text("true\n")
    script.chmod(0o755)
    os.utime(script, ns=(5, 7))
    (code / "link").symlink_to("/etc/passwd")
    [copy] = (stage("alice", "model", code).path / "_submitted_code").iterdir()
    copied = copy / "package" / "run.sh"
    assert (copied.read_text(), copied.stat().st_mode & 0o777, copied.stat().st_mtime_ns) == ("true\n", 0o755, 7)
    assert (copy / "link").is_symlink()


@pytest.mark.parametrize("swap", [_file, _folder])
def test_a_link_that_is_put_there_meanwhile_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Swap
) -> None:
    """A run whose training is submitted again can swap its files while they are copied."""
    code, secret = tmp_path / "code", tmp_path / "secret"
    for folder in (code / "package", secret):
        folder.mkdir(parents=True)
    (code / "package" / "main.py").write_text("theirs")
    (secret / "main.py").write_text("secret")

    def swapped(folder: str, names: list[str]) -> set[str]:
        if Path(folder) == code / "package":
            swap(code, secret)
        return set()

    monkeypatch.setattr(job_folder, "_ignored_of", lambda code: swapped)
    with pytest.raises(OSError, match="no longer a file"):
        stage("alice", "model", code)
    assert not [file for file in (tmp_path / "results").rglob("*") if file.is_file()]
