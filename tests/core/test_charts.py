"""Figures as the server makes them."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import plotly.graph_objects as go
import pytest

from core.charts import Band, Step, gpu_ticks, job_look, tide_figure

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STYLES = Path(__file__).parents[2] / "static" / "css" / "tidepool.css"


def traces(figure: dict, kind: str) -> list[dict]:
    return [trace for trace in figure["data"] if trace["meta"]["kind"] == kind]


def test_the_pool_has_a_band_per_job_with_its_reasons() -> None:
    steps = [Step(START, 1, "it starts", None), Step(START + timedelta(seconds=5), 8, "nobody else", 38.5)]

    figure = tide_figure([Band(3, "T1", steps), Band(4, "T2", [])], 8, pool=True)

    first, second = traces(figure, "band")
    assert (first["y"], first["customdata"]) == ([1, 8], [["it starts", None], ["nobody else", 38.5]])
    assert first["x"][0] == "2026-03-01T12:00:00.000000Z"
    assert first["line"]["shape"] == "hv"
    assert first["fillcolor"] != second["fillcolor"]
    assert [len(traces(figure, kind)) for kind in ("free", "capacity", "changes")] == [1, 1, 1]
    assert figure["layout"]["yaxis"]["title"]["text"] == "GPUs"


def test_every_part_of_a_figure_is_one_that_plotly_knows() -> None:
    bands = [Band(job, "T", [Step(START, job, "why", 1.5), Step(START, 0.5)]) for job in range(40)]

    go.Figure(tide_figure(bands, 8, pool=True))


@pytest.mark.parametrize(("most", "distance"), [(0, 1), (1, 1), (4, 1), (8, 1), (9, 2), (64, 8)])
def test_ticks_stand_at_whole_gpus(most: int, distance: int) -> None:
    assert gpu_ticks(most) == distance


def test_one_job_has_no_free_gpus() -> None:
    assert traces(tide_figure([Band(3, "T1", [])], 8, pool=False), "free") == []


def test_names_are_text_and_never_markup() -> None:
    [band] = traces(tide_figure([Band(1, "<b>x</b> & co", [])], 8, pool=True), "band")

    assert band["name"] == "A · &lt;b&gt;x&lt;/b&gt; &amp; co"


def test_seconds_are_shown_where_minutes_would_repeat() -> None:
    near, far = tide_figure([], 8, pool=False)["layout"]["xaxis"]["tickformatstops"]

    assert (near["dtickrange"][1] < 60_000, "%S" in near["value"]) == (True, True)
    assert (far["dtickrange"][0], "%S" in far["value"]) == (60_000, False)


@pytest.mark.parametrize("job", range(1, 40))
def test_neighbours_look_different(job: int) -> None:
    one, next_one = job_look(job), job_look(job + 1)

    assert one.colour != next_one.colour
    assert one.letter != next_one.letter
    assert one.pattern != next_one.pattern


@pytest.mark.parametrize("job", range(1, 40))
def test_jobs_of_one_colour_have_different_patterns(job: int) -> None:
    one, later = job_look(job), job_look(job + 12)

    assert (one.colour, one.pattern) != (later.colour, later.pattern)
    assert one.colour == later.colour


def test_no_two_of_312_in_a_row_share_letter_and_colour() -> None:
    looks = [job_look(job) for job in range(1, 313)]
    assert len({(look.letter, look.colour) for look in looks}) == 312


def test_style_sheet_has_the_same_colours() -> None:
    styled = dict(re.findall(r"\.job-(\d+) \{ --job: (#[0-9a-f]{6});", STYLES.read_text()))

    assert styled == {str(look.hue): look.colour.lower() for look in map(job_look, range(12))}


@pytest.mark.parametrize("job", range(12))
def test_letters_can_be_read_on_their_colour(job: int) -> None:
    look = job_look(job)

    lighter, darker = sorted((_luminance(look.colour), _luminance(look.ink)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def _luminance(colour: str) -> float:
    channels = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
