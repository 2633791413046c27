"""Tests of the file of fleets."""

from pathlib import Path

import pytest

from capacity.fleets import FleetsError, read_fleets

GOOD = """
[[fleets]]
name = "spot"
resource_groups = ["ComputeHostsGPU"]
slots = 8
most = 10
command = ["/bin/true"]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "fleets.toml"
    file.write_text(text)
    return file


def test_a_fleet_has_defaults(tmp_path: Path) -> None:
    [fleet] = read_fleets(written(tmp_path, GOOD))
    assert (fleet.name, fleet.slots, fleet.least, fleet.worth, fleet.budget_month) == ("spot", 8, 0, 0.5, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[fleets", "is not TOML"),
        ("pools = 1", "not pools"),
        (GOOD.replace("slots = 8", ""), "Fleet spot has no slots"),
        (GOOD + "slot = 3", "Fleet spot has slot, which means nothing"),
        (GOOD.replace("slots = 8", "slots = 8.5"), "slots has to be a whole number from 1 to 64, not 8.5"),
        (GOOD.replace("slots = 8", "slots = 0"), "not 0"),
        (GOOD.replace('["/bin/true"]', '"/bin/true"'), "command has to be a list of texts"),
        (GOOD.replace('name = "spot"', 'name = "../x"'), "name has to be at most 64 letters"),
        (GOOD + "least = 11", "least is 11, which is more than most, 10"),
        (GOOD + "budget_hour = 4", "has a budget and no price"),
        (GOOD + "price = nan", "price has to be a number from 0 to"),
        (GOOD + "timeout_seconds = true", "timeout_seconds has to be a number"),
        (GOOD + GOOD, "There are two fleets named spot"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FleetsError, match=words.replace("[", r"\[")):
        read_fleets(written(tmp_path, text))


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    file.chmod(0o666)
    with pytest.raises(FleetsError, match="chmod o-w"):
        read_fleets(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FleetsError, match="cannot be read"):
        read_fleets(tmp_path / "none.toml")
