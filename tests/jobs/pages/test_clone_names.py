"""A clone is proposed under a name that tells it from the original."""

import pytest

from jobs.pages.train.clone_names import clone_name


@pytest.mark.parametrize(
    ("name", "taken", "proposed"),
    [
        ("cnn-20261128154154", (), "cnn-20270101000000"),
        ("cnn-20261128-154154", (), "cnn-20270101000000"),
        ("baseline", ("baseline",), "baseline-2"),
        ("baseline", ("baseline", "baseline-2", "baseline-4"), "baseline-3"),
        ("resnet-50", (), "resnet-50-2"),
        ("x" * 30, (), "x" * 30),
    ],
)
def test_a_clone_has_a_name_of_its_own(name: str, taken: tuple[str, ...], proposed: str) -> None:
    assert clone_name(name, taken, stamp="20270101000000", longest=30) == proposed
