"""Levels of a host's kernel, in words, and the parts of places without what is hidden in them."""

from dataclasses import replace

import pytest
from tidepool.confine.levels import Abilities, standing_of
from tidepool.confine.wall import outer, without

ALL = Abilities(landlock=7, mounts=True, calls=True)
TREE = {
    "/srv": ["/srv/tidepool", "/srv/other"],
    "/srv/tidepool": ["/srv/tidepool/.venv", "/srv/tidepool/home", "/srv/tidepool/runtime"],
}


def test_a_kernel_with_everything_lacks_nothing() -> None:
    standing = standing_of(ALL)
    assert (standing.level, standing.lacks) == ("walled", ())


def test_users_of_their_own_come_on_top_of_walls() -> None:
    assert standing_of(replace(ALL, users=True)).level == "separate"
    assert standing_of(replace(ALL, users=True, landlock=0)).level == "shared"
    assert standing_of(replace(ALL, users=True, mounts=False)).level == "walled"


def test_seals_come_on_top_of_users() -> None:
    assert standing_of(replace(ALL, users=True, devices=True)).level == "sealed"
    assert standing_of(replace(ALL, devices=True)).level == "walled"


def test_without_landlock_there_is_no_wall() -> None:
    standing = standing_of(Abilities(why_no_landlock="Its kernel has no Landlock: Linux 5.13 is the first with it."))
    assert standing.level == "shared"
    assert standing.lacks == ("Its kernel has no Landlock: Linux 5.13 is the first with it.",)


@pytest.mark.parametrize(
    ("abilities", "words"),
    [
        (Abilities(landlock=7, calls=True, why_no_mounts="EPERM"), "unix sockets of this machine"),
        (Abilities(landlock=3, mounts=True, calls=True), "every TCP port"),
        (Abilities(landlock=5, mounts=True, calls=True), "signal each other"),
        (Abilities(landlock=7, mounts=True), "the keys that the kernel keeps"),
    ],
)
def test_what_a_kernel_lacks_is_said(abilities: Abilities, words: str) -> None:
    standing = standing_of(abilities)
    assert standing.level == "walled"
    assert words in " ".join(standing.lacks)


def test_a_place_is_taken_to_pieces_around_what_is_hidden() -> None:
    parts = without("/srv", ["/srv/tidepool/home"], TREE.__getitem__)
    assert parts == ["/srv/tidepool/.venv", "/srv/tidepool/runtime", "/srv/other"]
    assert without("/srv/tidepool/home/run", ["/srv/tidepool/home"], TREE.__getitem__) == []
    assert without("/usr", ["/srv/tidepool/home"], TREE.__getitem__) == ["/usr"]


def test_a_place_below_another_one_is_left_out() -> None:
    assert outer(["/a/b", "/a", "/ab", "/a/b/c"]) == ["/a", "/ab"]
