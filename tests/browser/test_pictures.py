"""The pictures in the documents are taken here, so that they show what there is.

TIDEPOOL_PICTURES=docs/user .venv/bin/python -m pytest tests/browser/test_pictures.py
writes them into that folder; without it they go to the test's own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.scene import Scene

PNG_SIZE = slice(16, 24)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(os.environ.get("TIDEPOOL_PICTURES", tmp_path))


@pytest.mark.parametrize(("name", "address"), [("overview", "/"), ("cluster", "/cluster/"), ("job", "/jobs/{first}/")])
def test_takes_a_picture_of_drawn_charts(page: Page, scene: Scene, folder: Path, name: str, address: str) -> None:
    page.goto(address.format(first=scene.first.pk))
    for canvas in page.locator(".chart-canvas").all():
        expect(canvas.locator(".main-svg").first).to_be_visible()
    expect(page.locator("[data-live-dot], .live-dot").first).to_be_visible()
    file = folder / f"{name}.png"
    page.screenshot(path=file, animations="disabled")
    width, height = (int.from_bytes(file.read_bytes()[PNG_SIZE][part : part + 4], "big") for part in (0, 4))
    assert (width, height) == (1440, 900)
    assert file.stat().st_size > 30_000, "an empty page is smaller"
