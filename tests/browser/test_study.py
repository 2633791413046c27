"""The page of a study: its figures, and the ranges on axes that filter the table."""

from itertools import pairwise

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from studies.control.changes import changed
from studies.models import Trial
from tests.scene import Scene


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


@pytest.fixture
def study(page: Page, scene: Scene) -> Page:
    page.goto(f"/studies/{scene.study.pk}/")
    expect(page.locator("[data-chart=parallel] path[data-line]")).to_have_count(5)
    return page


def shown(page: Page) -> Locator:
    return page.locator("#trials tbody tr:visible")


def test_every_figure_is_drawn_or_says_why_not(study: Page) -> None:
    for name in ("history", "importance", "slice", "curves", "gpus"):
        expect(study.locator(f"[data-chart={name}] .main-svg").first).to_be_visible()
    study.locator("[data-parameter]").select_option("width")
    expect(study.locator("[data-chart=slice] .xtitle")).to_have_text("width")
    expect(study.locator("[data-chart=importance] .chart-note")).to_contain_text("PED-ANOVA")


def test_a_range_by_keys_filters_the_table_and_stays_when_trials_are_added(study: Page, scene: Scene) -> None:
    expect(shown(study)).to_have_count(5)
    end = study.get_by_role("slider", name="learning_rate, to")
    for _ in range(3):
        end.press("PageDown")
    expect(shown(study)).to_have_count(3)
    expect(study.locator("path.is-out")).to_have_count(2)
    expect(study.locator("#trials-within")).to_have_text("3 of 5 are within the marked ranges.")

    values = {"learning_rate": 0.05, "width": 32}
    Trial.objects.create(study=scene.study, number=5, values=values, created_at=timezone.now())
    changed(scene.study.pk)
    expect(study.locator("#trials tbody tr")).to_have_count(6)
    expect(study.locator("[data-chart=parallel] path[data-line]")).to_have_count(6)
    expect(shown(study)).to_have_count(3)
    expect(end).to_be_focused()

    end.press("Escape")
    expect(shown(study)).to_have_count(6)


def test_a_range_by_dragging(study: Page) -> None:
    study.locator("[data-chart=parallel]").scroll_into_view_if_needed()
    box = study.locator(".brush").first.bounding_box()
    assert box
    x = box["x"] + box["width"] / 2
    study.mouse.move(x, box["y"] + box["height"] * 0.9)
    study.mouse.down()
    study.mouse.move(x, box["y"] + box["height"] * 0.5)
    study.mouse.move(x, box["y"] + box["height"] * 0.4)
    study.mouse.up()
    expect(shown(study)).to_have_count(2)
    study.get_by_role("button", name="Show all trials").click()
    expect(shown(study)).to_have_count(5)


def test_a_narrow_table_shows_each_trial_as_a_card_without_empty_lines(study: Page) -> None:
    study.set_viewport_size({"width": 390, "height": 844})
    pruned = shown(study).filter(has_text="is not among the best third")
    remark = pruned.locator("td", has_text="is not among the best third").bounding_box()
    assert remark is not None
    assert remark["width"] > 300
    assert remark["height"] < 60
    expect(shown(study).first.locator("[data-label=Remark]")).to_be_hidden()


def test_labels_of_a_narrow_logarithmic_axis_do_not_overlap(study: Page) -> None:
    study.set_viewport_size({"width": 390, "height": 844})
    study.reload()
    labels = study.locator("[data-chart=slice] .xtick text")
    expect(labels.first).to_be_visible()
    boxes = labels.evaluate_all(
        "all => all.map(each => each.getBoundingClientRect()).map(({ left, right }) => [left, right])"
    )
    boxes.sort()
    assert len(boxes) >= 2
    assert all(one[1] < other[0] for one, other in pairwise(boxes))
