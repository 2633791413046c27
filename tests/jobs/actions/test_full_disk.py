"""A site without room: the submission says so, as nobody's mistake, and leaves nothing."""

import shutil

import pytest

from core.errors import DiskFull, if_full
from jobs.models import Job
from tests.jobs.actions.test_submission import folders
from tests.jobs.conftest import Submit


def test_a_full_disk_is_nobodys_mistake(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    before = folders()

    def copy(*_: object) -> None:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"code")

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    with pytest.raises(DiskFull, match="nothing was stored") as refused:
        submit()
    assert (refused.value.status, Job.objects.exists(), folders()) == (507, False, before)


def test_a_copy_of_a_folder_tells_it_in_words_alone() -> None:
    why = "[Errno 28] No space left on device: 'main.py'"
    assert if_full(shutil.Error([("/from/main.py", "/to/main.py", why)])) is not None
    assert if_full(shutil.Error([("/from/main.py", "/to/main.py", "[Errno 13] Permission denied")])) is None
    assert if_full(PermissionError(13, "Permission denied")) is None
