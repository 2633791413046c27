"""Each fault point is declared, stands somewhere in the runtime, and is made to act by a test."""

import re
from pathlib import Path

import pytest
from tidepool.faults import POINTS, fault

from tests.runtime.test_kill_matrix import CASES

ROOT = Path(__file__).parents[2]


def test_what_is_declared_is_what_there_is() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "runtime").rglob("*.py"))
    assert set(re.findall(r"\bfault\(\s*\"([^\"]+)\"", sources)) == POINTS


@pytest.mark.parametrize("point", sorted(POINTS))
def test_a_test_makes_it_act(point: str) -> None:
    """Named in a specification (`point@member_id:1:kill`), or as a parameter of a test that builds one."""
    others = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    texts = [text for text in (path.read_text() for path in others) if "TIDEPOOL_FAULT" in text]
    used = re.compile(rf"\"{point}\"|(?<![\w-]){point}(@[\w.{{}}]*)?:[\d{{]")
    assert any(used.search(text) for text in texts)


def test_ranks_are_killed_at_each_point_that_they_pass() -> None:
    killed_at = {death.split("@")[0] for case in CASES.values() for death in case.deaths}
    coordinators, halts = {"publish", "published"}, {"halt"}  # see test_checkpoint and test_halt
    of_gpus = {"broadcast"}  # see comm/test_broadcasts
    assert killed_at == POINTS - coordinators - halts - of_gpus


def test_a_misspelt_point_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEPOOL_FAULT", "recieve:1:kill")
    with pytest.raises(ValueError, match="'recieve'; there are: agree, "):
        fault("receive", "a.0.1")
