"""A machine joins by one command: what it refuses, says and keeps. That it then trains, tests/docker proves."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.test_architecture import ROOT
from workers.executor.join import (
    Joined,
    JoinError,
    Place,
    check_broker,
    check_folders,
    earlier,
    executor_environment,
    join,
)
from workers.host_keys import host_key
from workers.join_tokens import create_join_token
from workers.models import JoinToken

URL = "http://127.0.0.1:1"


@pytest.fixture
def joined(tmp_path: Path) -> Joined:
    (tmp_path / "results").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "results/.tidepool").write_text("abc\n")
    return Joined(URL, "gpu-1", str(tmp_path / "results"), [str(tmp_path / "data")], "abc", 1)


def test_shared_folders_are_checked_and_left_as_they_were(joined):
    check_folders(joined)
    assert [file.name for file in Path(joined.results).iterdir()] == [".tidepool"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"results": "/nowhere/results"}, "not the shared folder of all hosts"),
        ({"mark": "other"}, "not the same folder here as on the site"),
        ({"data_roots": ["/nowhere/data"]}, "/nowhere/data cannot be read"),
    ],
)
def test_a_machine_without_the_shared_folders_is_told_which(joined, change, says):
    with pytest.raises(JoinError, match=says):
        check_folders(msgspec.structs.replace(joined, **change))


def test_a_broker_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(JoinError, match=r"127\.0\.0\.1:1 refuses this machine") as refusal:
        check_broker("redis://executor:secret@127.0.0.1:1/0")
    assert "secret" not in str(refusal.value)


@pytest.mark.django_db(transaction=True)
def test_what_the_token_is_exchanged_for_is_kept_for_the_next_start(
    carol, home, live_server, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr("workers.broker_users.problem", lambda: "has no users of its own")
    settings.TIDEPOOL_EXECUTOR_BROKER_URL = "redis://executor:secret@10.0.0.5:6379/0"
    token, _ = create_join_token(carol)
    place = Place(tmp_path / "host", "gpu-1")
    joined = join(live_server.url, token, place)
    check_folders(joined)
    assert not JoinToken.objects.exists()
    assert earlier(live_server.url, place) == joined
    assert earlier("http://another", place) is None
    assert earlier(live_server.url, replace(place, host="gpu-2")) is None
    assert place.broker_file.read_text() == settings.TIDEPOOL_EXECUTOR_BROKER_URL
    assert place.key_file.read_text() == host_key("gpu-1", 1)
    assert executor_environment(place, "", None)["TIDEPOOL_HOST_KEY_FILE"] == str(place.key_file)
    assert {file.stat().st_mode & 0o777 for file in place.folder.iterdir()} == {0o600}
    assert "secret" not in repr(joined)


def run_join(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workers.executor.join", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.django_db(transaction=True)
def test_a_bad_token_is_refused_in_one_sentence(home, live_server, settings, tmp_path):
    settings.TIDEPOOL_EXECUTOR_BROKER_URL = "redis://executor:secret@10.0.0.5:6379/0"
    refused = run_join("--url", live_server.url, "--token", "join_wrong", "--home", str(tmp_path / "host"))
    assert refused.returncode == 1
    assert refused.stderr == (
        "join: The join token is wrong, has expired, was revoked or is used up: ask an administrator for a new one.\n"
    )
    assert not list(tmp_path.glob("host/run/*/*")), "nothing is kept"


@pytest.mark.django_db(transaction=True)
def test_a_token_is_not_used_up_by_a_machine_that_cannot_keep_what_it_gets(carol, home, live_server, tmp_path):
    token, row = create_join_token(carol)
    (tmp_path / "host").write_text("not a folder")
    with pytest.raises(JoinError, match="cannot be written"):
        join(live_server.url, token, Place(tmp_path / "host", "gpu-1"))
    row.refresh_from_db()
    assert row.hosts_left == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "gpus.example.org", "--token", "x"], "is not the address of a site"),
        (["--url", "http://[fd00::1:8000", "--token", "x"], "is not the address of a site"),
        (["--url", "http://fd00::1:8000", "--token", "x"], r"or http://[fd00::1]:8000"),
        (["--url", URL, "--token", "x"], "does not answer as Tidepool does"),
        (["--url", URL, "--token-file", "/nowhere/token"], "/nowhere/token cannot be read"),
    ],
)
def test_what_cannot_work_is_said_without_a_traceback(arguments, says, tmp_path):
    refused = run_join(*arguments, "--home", str(tmp_path))
    assert refused.returncode == 1
    assert refused.stderr.startswith("join: ")
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_it_loads_neither_django_nor_torch():
    code = "import sys, workers.executor.join; sys.exit(bool({'django', 'torch'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)
