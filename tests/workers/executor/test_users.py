"""Trainings that are users of their own, by real processes, and the users that they are."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tidepool import procfs
from tidepool.confine.levels import Abilities
from tidepool.confine.probe import Apart, probe
from tidepool.protocol import DesiredJob, from_json, to_json

from tests.runtime.process_tree import launch_spec
from tests.waiting import wait_until
from tests.workers.executor.embedded import Broker, Host, desired_job
from workers.executor.config import ConfigError, ExecutorConfig, executor_config, host_mark
from workers.executor.environments.cache import Ready
from workers.executor.users import NoUserError, UserIds, user_ids_in, user_of
from workers.executor.walls import isolation_of, tried_users, wall_for, why_no_training

IDS = "70001-70009"
ALL = Abilities(landlock=7, mounts=True, calls=True, users=True)
#: Keeps what the kernel says of this process, and what it may do, beside a file of its own.
TELLS = """
import getpass, json, os, subprocess
from pathlib import Path

def end_of(attempt):
    try:
        attempt()
        return "done"
    except OSError as error:
        return type(error).__name__

status = dict(line.split(":\\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
results = Path(os.environ["RESULT_DIR"])
(results / "mine").write_text("of this user")
(results / "folder").mkdir(mode=0o700)
(results / "folder" / "inner").write_text("below")
(Path("/tmp") / "mine").write_text("")
results.joinpath("told.json").write_text(json.dumps({
    "users": [os.getresuid(), os.getresgid()],
    "rights": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")],
    "root": end_of(lambda: os.setresuid(0, 0, 0)),
    "pid": os.getpid(),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "child": subprocess.run(["id", "-u"], capture_output=True, text=True).stdout.strip(),
    "name": getpass.getuser(),
    "home": str(Path.home()),
}))
"""
WAITS = """
import os, signal, subprocess, sys
daemon = "import time; print(1, flush=True); time.sleep(600)"
started = subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.PIPE, env={}, start_new_session=True)
started.stdout.read(1)
open(os.environ["RESULT_DIR"] + "/waits", "w").close()
signal.pause()
"""


@pytest.fixture
def host(broker: Broker, tmp_path: Path) -> Iterator[Host]:
    found = probe(Apart(70001, (str(tmp_path),)))
    if not (found.landlock and found.mounts and found.users):
        pytest.skip(f"trainings cannot be users of their own here: {found.why_no_users}")
    variables = {"TIDEPOOL_ISOLATION": "separate", "TIDEPOOL_USER_IDS": IDS}
    made = Host(broker, tmp_path, environment=variables)
    made.start()
    yield made
    made.close()


def told(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "attempt-1" / "told.json").read_text())
    return found


def test_a_training_is_a_user_of_its_own_without_any_right(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, TELLS, engine="fixed", data_dir="", owner="alice")
    host.send_desired(desired_job(launch, [0], lead=True, owner_number=3))
    [ended] = host.until_exited(1)
    assert ended.data["code"] == 0, ended.data
    found = told(tmp_path)
    assert found["users"] == [[70003] * 3, [70003] * 3]
    assert found["rights"] == [*["0" * 16] * 5, "1"]
    assert (found["root"], found["child"], found["name"]) == ("PermissionError", "70003", "alice")
    assert host.last is not None
    assert host.last.facts.isolation == "separate"
    # The training sees its own processes, and the host tells the host's numbers.
    assert 1 < found["pid"] < 100
    assert set(found["processes"]) <= set(range(1, 100))
    assert ended.data["pid"] != found["pid"]
    # Files of the training are the service's own, and closed to other users.
    files = [tmp_path / "attempt-1" / name for name in ("mine", "folder/inner", "told.json")]
    assert {(each.stat().st_uid, each.stat().st_gid) for each in files} == {(os.getuid(), os.getgid())}
    assert end_as(70004, lambda: (tmp_path / "attempt-1" / "mine").open("a").close()) == "PermissionError"


def end_as(user: int, attempt: Callable[[], None]) -> str:
    """Return how an attempt of another user ends."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            attempt()
            os.write(sending, b"done")
        except OSError as error:
            os.write(sending, type(error).__name__.encode())
        os._exit(0)
    os.close(sending)
    os.waitpid(pid, 0)
    with os.fdopen(receiving) as answer:
        return answer.read()


def test_nothing_is_left_of_a_killed_guardian(host: Host, tmp_path: Path) -> None:
    launch = launch_spec(tmp_path, WAITS, engine="fixed", data_dir="")
    host.send_desired(desired_job(launch, [0], lead=True, owner_number=3))
    wait_until((tmp_path / "attempt-1" / "waits").exists, "the script to wait")
    all_of_it = procfs.marked(f"{host_mark(tmp_path, 'host-a')}.3")
    theirs = [each for each in psutil.process_iter(["uids"]) if each.info["uids"].real == 70003 and procfs.runs(each)]
    [guardian] = [each for each in all_of_it if " shim" in " ".join(each.cmdline())]
    inside = [each for each in theirs if " coordinator" not in " ".join(each.cmdline())]
    assert len(inside) >= 3  # the guardian, the rank, and its daemon
    guardian.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(procfs.runs, inside)), "the others to end")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be names, or a range"),
        ("alice", "must be names, or a range"),
        ("0-100", "range from 1000"),
        ("3000-2000", "range from 1000"),
        ("1000-9999999999", "range from 1000"),
        ("1000-2000; id", "must be names, or a range"),
    ],
)
def test_a_wrong_range_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        user_ids_in(text)


def test_users_of_their_own_need_numbers(tmp_path: Path) -> None:
    variables = {
        "TIDEPOOL_HOME": str(tmp_path),
        "TIDEPOOL_HOST_NAME": "host-a",
        "TIDEPOOL_BROKER_URL": "redis://site/0",
        "TIDEPOOL_ISOLATION": "separate",
    }
    with pytest.raises(ConfigError, match="needs TIDEPOOL_USER_IDS"):
        executor_config(variables)
    assert executor_config(variables | {"TIDEPOOL_USER_IDS": IDS}).user_ids == UserIds(70001, 70009)
    assert executor_config(variables | {"TIDEPOOL_ISOLATION": "walled", "TIDEPOOL_USER_IDS": IDS}).user_ids is None


def desired(tmp_path: Path, number: int, owner: str = "alice") -> DesiredJob:
    return desired_job(launch_spec(tmp_path, "", owner=owner), [0], owner_number=number)


def test_each_person_has_a_number(tmp_path: Path) -> None:
    ids = UserIds(70001, 70009)
    assert [user_of(ids, desired(tmp_path, number)) for number in (1, 9)] == [70001, 70009]
    with pytest.raises(NoUserError, match="alice is user 10 of the site: extend the range"):
        user_of(ids, desired(tmp_path, 10))
    with pytest.raises(NoUserError, match="former release"):
        user_of(ids, desired(tmp_path, 0))


@pytest.mark.parametrize(("name", "words"), [("no-such-user", "has no user"), ("root", "a user of the system")])
def test_a_name_is_an_ordinary_users(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(NoUserError, match=words):
        user_of(UserIds(), desired(tmp_path, 1, name))


def test_a_host_that_cannot_change_users_runs_nothing(tmp_path: Path) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "redis://site/0", 2, "", None, isolation="separate", user_ids=UserIds())
    none = Abilities(landlock=7, mounts=True, calls=True, why_no_users="its executor lacks CAP_SETUID")
    assert "here: its executor lacks CAP_SETUID. Mend that" in why_no_training(config, none)
    assert isolation_of(config, none)["isolation"] == "none"
    assert isolation_of(config, ALL) == {"isolation": "separate", "isolation_lacks": []}
    assert tried_users(config)[:2] == ("--apart", "65534")


def test_the_wall_names_the_user(tmp_path: Path) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "redis://site/0", 2, "", None, isolation="separate")
    made = wall_for(
        ExecutorConfig(**{**vars(config), "user_ids": UserIds(70001, 70009)}), desired(tmp_path, 2), Ready()
    )
    assert made is not None
    assert made.user == 70002


def test_a_former_site_tells_no_number(tmp_path: Path) -> None:
    message = to_json(desired(tmp_path, 4))
    del message["owner_number"]
    assert from_json(DesiredJob, message).owner_number == 0
