"""Frozen blocks: their data, and the paths and hosts that are removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from insights.comparison import Compared, Line, Point, Quantity
from reports.frozen import frozen_chart, frozen_table, gpu_hours, paths_in, thawed_chart, thawed_table
from reports.mentions import Mention, mentions_in, mentions_text

values = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
points = st.builds(
    Point, st.integers(0, 10**9), st.integers(0, 10**6).map(lambda tenth: tenth / 10), values, st.integers(0, 99)
)
lines = st.builds(
    Line, st.integers(1, 99), st.text(max_size=9), st.lists(points, max_size=5), st.text(max_size=9), st.integers(1, 9)
)


@given(
    st.builds(Quantity, st.text(max_size=9), st.lists(lines, max_size=3), st.lists(st.text(max_size=5)), st.booleans())
)
def test_a_chart_survives_freezing_and_thawing(quantity: Quantity) -> None:
    assert frozen_chart(thawed_chart(frozen_chart(quantity))) == frozen_chart(quantity)
    thawed = thawed_chart(frozen_chart(quantity))
    assert [line.points for line in thawed.lines] == [list(line.points) for line in quantity.lines]


def test_differing_rows_come_first_and_stay_marked_when_left_out() -> None:
    table = frozen_table([Compared("epochs", ["3", "3"]), Compared("data", ["/a/b", "/a/c"])], [])
    assert [(row.name, row.values, row.differs) for row in thawed_table(table)] == [
        ("data", ["(left out: a path)", "(left out: a path)"], True),
        ("epochs", ["3", "3"], False),
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/digits", "(left out: a path)"),
        ("--data=/mnt/x:ro", "--data=(left out: a path):ro"),
        ('["/a/b", 1]', '["(left out: a path)", 1]'),
        ("nfs:/export/a", "nfs:(left out: a path)"),
        ("~/models/a and ~bob/b", "(left out: a path) and (left out: a path)"),
        ("../x ./y", "(left out: a path) (left out: a path)"),
        ("file:///etc/passwd", "(left out: a path)"),
        ("C:\\Users\\bob", "(left out: a path)"),
        ("\\\\server\\share", "(left out: a path)"),
        ("GPU-1.internal:8080", "(left out: a host):8080"),
        ("gpu-1", "gpu-1"),
        ("gpu-1.internal_0", "(left out: a host)_0"),
        ("gpu-1.internal2", "gpu-1.internal2"),
        ("run_/srv/x", "run_(left out: a path)"),
        ("loss/train 1/2", "loss/train 1/2"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("Adam", "Adam"),
        ("data/imagenet/train", "(left out: a path)"),
        ("--data=data/train.csv,1", "--data=(left out: a path),1"),
        ("outputs/", "(left out: a path)"),
        ("data/../secret", "(left out: a path)"),
        ("val/loss/mean", "val/loss/mean"),
        ("org/model-1.5", "org/model-1.5"),
        ("24/12/2026", "24/12/2026"),
        ("https://example.org/a/b.html", "https://example.org/a/b.html"),
    ],
)
def test_paths_and_hosts_are_left_out_of_tables(text: str, shown: str) -> None:
    [row] = thawed_table(frozen_table([Compared("name", [text])], ["gpu-1.internal"], {"val/loss/mean"}))
    assert row.values == [shown]


@pytest.mark.parametrize("name", ["data-dir", "output_path", "checkpoint.folder", "trainFile", "roots"])
def test_the_name_of_a_parameter_says_that_its_value_is_a_path(name: str) -> None:
    [row] = thawed_table(frozen_table([Compared(name, ["data/train", "digits"])], []))
    assert row.values == ["(left out: a path)", "digits"]


def test_the_name_of_a_metric_stays() -> None:
    [row] = thawed_table(frozen_table([Compared("val/loss/mean", ["0.5"])], []))
    assert (row.name, row.values) == ("val/loss/mean", ["0.5"])


def test_gpu_hours_are_those_of_training() -> None:
    line = Line(1, "a", [Point(0, 0.0, 4.0), Point(9, 1800.0, 8.0), Point(12, 3600.0, 0.0)])
    assert gpu_hours(line, 7200.0) == 2 + 4
    assert gpu_hours(Line(1, "a"), 7200.0) == 0


def test_mentions_in_texts() -> None:
    texts = ["Bob's run on gpu-1_0, see [it](/jobs/12/).", "adam, ada-net and ADA.", "bobby"]
    mentions = mentions_in(texts, {"bob", "ada", "o.k"}, {"gpu-1"})
    assert mentions == [
        Mention("user", "Bob"),
        Mention("user", "ada"),
        Mention("user", "ADA"),
        Mention("host", "gpu-1"),
        Mention("path", "/jobs/12/"),
    ]
    relative = mentions_in(["either/or, data/a/b and val/loss/mean"], set(), set(), {"val/loss/mean"})
    assert relative == [Mention("path", "data/a/b")]
    assert mentions_text(mentions[:2]) == "user Bob, user ada"
    assert mentions_text([Mention("user", str(number)) for number in range(12)]).endswith("user 9 and 2 more")


@given(st.text())
def test_any_text_is_searched(text: str) -> None:
    assert paths_in(text) is not None
    frozen_table([Compared(text, [text])], {"host"})
    mentions_in([text], {"bob"}, {"host"})
