"""The use of the GPUs, as a person sees it: on a training's page and on the cluster's."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.scene import Scene

USE = "[data-chart=gpu-use]"
BARS = f"{USE} .barlayer .point"


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def test_a_training_shows_a_line_of_bars_for_each_gpu(page: Page, scene: Scene, tmp_path: Path) -> None:
    page.goto(f"/jobs/{scene.first.pk}/#gpu-use")
    expect(page.locator(BARS).first).to_be_visible()
    assert sorted(set(page.locator(f"{USE} .ytick").all_text_contents())) == [
        f"gpu-host-1:{index}" for index in range(3)
    ]
    expect(page.locator(f"{USE} .chart-note")).to_contain_text("Each bar is a mean over at most")
    page.locator(USE).get_by_role("button", name="Table").click()
    newest = page.locator(f"{USE} tbody tr").first
    expect(newest.locator("td").nth(2)).to_contain_text("gpu-host-1:")
    with page.expect_download() as download:
        page.locator(USE).get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "use.csv")
    assert (tmp_path / "use.csv").read_text().startswith("From,Until,GPU,Busy (%),Memory (GiB)")


def test_the_cluster_shows_the_window_that_is_chosen(page: Page, scene: Scene) -> None:
    page.goto("/cluster/")
    expect(page.locator(BARS).first).to_be_visible()
    before = page.locator(BARS).count()
    with page.expect_response(lambda answer: "gpus.json?minutes=5" in answer.url):
        page.get_by_role("button", name="5 min", exact=True).click()
    expect(page.locator(BARS)).not_to_have_count(before)
