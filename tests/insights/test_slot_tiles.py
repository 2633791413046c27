"""The tile of a GPU: what people write is text in it, and only those who may see a training have a link to it."""

from typing import Any

import pytest

from insights.templatetags.slot_tiles import slot_tile

SLOT: dict[str, Any] = {
    "key": "gpu1:3",
    "index": 3,
    "status": "busy",
    "job": 7,
    "visible": True,
    "vacating": False,
    "stale": False,
    "title": "gpu1:3: mnist",
    "busy": 62,
    "name": "mnist",
    "note": "62 % busy",
    "more": "ada",
}


def test_what_people_write_is_text() -> None:
    hostile = '"><script>alert(1)</script>'
    html = slot_tile({**SLOT, "name": hostile, "title": hostile, "more": hostile}, place=hostile, in_grid=True)
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 4


@pytest.mark.parametrize(
    ("visible", "in_grid", "href", "focus"),
    [(True, False, True, "0"), (False, False, False, "0"), (True, True, True, "-1"), (False, True, False, None)],
)
def test_only_a_visible_training_has_a_link(visible: bool, in_grid: bool, href: bool, focus: str | None) -> None:
    html = slot_tile({**SLOT, "visible": visible}, in_grid=in_grid)
    assert ('href="/jobs/7/"' in html) == href
    assert (f'tabindex="{focus}"' in html) if focus else ("tabindex" not in html)


def test_a_free_gpu_has_neither_a_training_nor_a_ring() -> None:
    html = slot_tile({**SLOT, "job": None, "visible": False, "status": "free", "busy": None})
    assert 'class="mark free"' in html
    assert "data-job" not in html
    assert "slot-ring" not in html
