"""A hostile training at every level that this machine's kernel has, as this user and as an ordinary one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import tidepool
from tidepool.confine.levels import PORTS_ABI, SCOPES_ABI, Abilities, standing_of
from tidepool.confine.probe import probe

from tests.confine import hostile
from tests.confine.site_scene import Scene, scene

RUNTIME = Path(tidepool.__file__).parents[1]
#: Errors by which a wall refuses: no right, not there, read-only, another file system, and no such user or mount.
REFUSALS = {"EACCES", "EPERM", "ENOENT", "EROFS", "EXDEV", "EINVAL"}
CALLS_REFUSED = {"ENOSYS", "EPROTONOSUPPORT", "EOPNOTSUPP", "ENOTSUP", *REFUSALS}
#: The same where trainings are users of their own: no such process, and no such user, is in their view.
REFUSED_TO_USERS = CALLS_REFUSED | {"ESRCH", "EOVERFLOW"}
#: Runs the script behind a wall, as a rank is behind one.
RUNNER = """
import json, os, runpy, sys
from tidepool.confine.levels import Abilities
from tidepool.confine.processes import fork
from tidepool.confine.surround import surround
from tidepool.confine.wall import Wall
wall, abilities, script = json.loads(sys.argv.pop(1)), json.loads(sys.argv.pop(1)), sys.argv.pop(1)
is_apart = wall["user"] is not None
if is_apart and (child := fork(is_apart=True)):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
surround(Wall.from_json(wall), Abilities.from_json(abilities), is_apart=is_apart)
sys.argv[0] = script
exec(compile(SOURCE, script, "exec"), {"__name__": "__main__"})
"""
ORDINARY_USER = 65534
#: User of the training, where it is one of its own.
USER_OF_ITS_OWN = 70001
#: Rights of the service's user, where that is an ordinary one.
RIGHTS = ",".join(f"+{name}" for name in ("kill", "setgid", "setuid", "setpcap", "sys_ptrace", "sys_admin"))


@pytest.fixture(scope="module")
def abilities() -> Abilities:
    found = probe()
    if not found.landlock:
        pytest.skip(f"this kernel builds no walls: {standing_of(found).lacks[0]}")
    return found


@pytest.fixture(params=["this user", "an ordinary user"])
def user(request: pytest.FixtureRequest) -> int | None:
    if request.param == "this user":
        return None
    if os.getuid() != 0:
        pytest.skip("this user is an ordinary one")
    return ORDINARY_USER


@pytest.fixture
def site(user: int | None) -> Iterator[Scene]:
    with scene(user) as made:
        yield made


def ends_of(
    site: Scene, abilities: Abilities, user: int | None, own_user: int | None = None, *, is_sealed: bool = False
) -> dict[str, str]:
    """Run the hostile script behind the site's wall; return how each attempt ended.

    own_user: the user that it becomes; None: it stays the service's, which is `user`.
    """
    rights = ["--inh-caps", RIGHTS, "--ambient-caps", RIGHTS] if own_user is not None and user is not None else []
    become = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *rights]
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        runtime = shutil.copytree(RUNTIME / "tidepool", Path(place, "tidepool"), ignore=shutil.ignore_patterns("torch"))
        python = sys.executable if user is None else shutil.which("python3", path="/usr/local/bin:/usr/bin")
        if python is None:
            pytest.skip("no Python that an ordinary user may run")
        wall = replace(site.wall, user=own_user, has_own_devices=is_sealed)
        source = RUNNER.replace("SOURCE", repr(Path(hostile.__file__).read_text()))
        words = [json.dumps(asdict(wall)), json.dumps(abilities.to_json()), "hostile.py"]
        subprocess.run(
            [*become, python, "-P", "-c", source, *words, str(site.own / "facts.json"), str(site.own / "ends.json")],
            env={"PYTHONPATH": str(runtime.parent), "PATH": os.defpath},
            cwd="/",
            check=True,
        )
    ends: dict[str, str] = json.loads((site.own / "ends.json").read_text())
    return ends


def promised(facts: dict[str, Any], abilities: Abilities) -> dict[str, set[str]]:
    """Return the attempts that a wall withstands with these abilities, each with the errors that refuse it."""
    has = {
        "files": True,
        "view": abilities.mounts,
        "scopes": abilities.landlock >= SCOPES_ABI,
        "ports": abilities.landlock >= PORTS_ABI,
        "calls": abilities.calls,
        "users": False,
        "devices": False,
    }
    kinds = {name: kind for name, (kind, _) in hostile.attempts(facts).items()}
    return {name: CALLS_REFUSED if kind == "calls" else REFUSALS for name, kind in kinds.items() if has[kind]}


def test_there_are_forty_attempts() -> None:
    with scene() as site:
        assert len(hostile.attempts(site.facts)) >= 40


def test_every_attempt_is_refused(site: Scene, abilities: Abilities, user: int | None) -> None:
    ends = ends_of(site, abilities, user)
    expected = promised(site.facts, abilities)
    assert {name: end for name, end in ends.items() if name in expected and end not in expected[name]} == {}
    assert site.untouched()


def test_a_user_of_its_own_is_refused_everything(site: Scene, abilities: Abilities, user: int | None) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give the rights to be another user")
    ends = ends_of(site, replace(abilities, users=True), user, USER_OF_ITS_OWN)
    kinds = {name: kind for name, (kind, _) in hostile.attempts(site.facts).items()}
    assert {name: end for name, end in ends.items() if end not in REFUSED_TO_USERS and kinds[name] != "devices"} == {}
    assert ends["open a neighbour's GPU"] == "done"  # no promise below the third level
    assert len(ends) >= 50
    assert site.untouched()


def test_a_sealed_training_is_refused_everything(site: Scene, abilities: Abilities, user: int | None) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give the rights to be another user")
    ends = ends_of(site, replace(abilities, users=True, devices=True), user, USER_OF_ITS_OWN, is_sealed=True)
    assert {name: end for name, end in ends.items() if end not in REFUSED_TO_USERS} == {}
    assert site.untouched()


def test_landlock_alone_refuses_what_it_promises(site: Scene, abilities: Abilities, user: int | None) -> None:
    alone = replace(abilities, mounts=False, why_no_mounts="not tried")
    expected = promised(site.facts, alone)
    ends = ends_of(site, alone, user)
    assert {name: end for name, end in ends.items() if name in expected and end not in expected[name]} == {}


#: Attempts that harm nothing outside of the scene where nothing withstands them.
HARMLESS = (
    *("read the secret key", "read the administrator's password", "write the database", "read another user's results"),
    *("write another user's value", "read another user's launch file", "read a dataset that was not given"),
    *("change a cached environment", "change the site's packages", "read another process's environment"),
    *("follow a link out of its folder", "link another user's file", "rename a file over another user's"),
    *("connect to the broker's socket", "read another training's temporary files", "connect to an abstract socket"),
    *("connect to the database's port", "connect to it by TCP fast open", "close the home to everybody"),
)


def test_without_a_wall_they_succeed() -> None:
    """The attempts that are refused behind a wall are possible without one."""
    with scene() as site:
        ends = site.own / "ends.json"
        words = [sys.executable, str(hostile.__file__), str(site.own / "facts.json"), str(ends), *HARMLESS]
        subprocess.run(words, check=True, cwd="/")
        assert json.loads(ends.read_text()) == dict.fromkeys(HARMLESS, "done")
