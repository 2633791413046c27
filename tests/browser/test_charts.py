"""The charts of a job's page as a person uses them: by mouse, by keyboard, as a table, as files."""

from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from core import live
from jobs.models import Job, MetricPoint
from tests.browser.test_live_pages import make_steps, wait_for_step
from tests.factories import set_job
from tests.scene import Scene, report_every_step

CURVES = "document.querySelector('[data-chart=metrics] .chart-canvas')"


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


@pytest.fixture
def job(page: Page, scene: Scene) -> Job:
    page.goto(f"/jobs/{scene.first.pk}/")
    wait_for_step(page, scene.first.run.step)
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    return scene.first


def saved(page: Page, chart: str, button: str) -> Path:
    with page.expect_download() as download:
        page.locator(f"[data-chart={chart}]").get_by_role("button", name=button).click()
    return Path(download.value.path())


def test_curves_stand_one_above_the_other_on_the_same_steps(page: Page, job: Job) -> None:
    names = page.evaluate(f"{CURVES}.data.map(trace => [trace.meta.metric, trace.yaxis])")

    assert names == [
        ["loss", "y"],
        ["test_loss", "y"],
        ["accuracy", "y2"],
        ["test_accuracy", "y2"],
        ["samples_per_second", "y3"],
        ["learning_rate", "y4"],
    ]


def test_a_long_curve_is_thinned_out_and_says_so(page: Page, job: Job) -> None:
    report_every_step(job)
    page.reload()
    page.wait_for_function(f"() => {CURVES}?.data?.length")
    assert 300 < page.evaluate(f"Math.max(...{CURVES}.data.map(trace => trace.x.length))") <= 600
    expect(page.locator("[data-chart=metrics] .chart-note")).to_have_text("Shown: one step in 2.")


def test_curves_by_time_share_the_axis_of_the_gpus(page: Page, job: Job) -> None:
    page.get_by_role("button", name="By time").click()

    page.wait_for_function(f"() => {CURVES}.layout.xaxis.type === 'date'")
    # Each is drawn anew when something comes, and then ends now.
    page.wait_for_function(
        """() => {
            const start = chart => document.querySelector(`[data-chart=${chart}] .chart-canvas`).layout.xaxis.range[0];
            const [curves, gpus] = ["metrics", "gpus"].map(chart => Date.parse(start(chart).replace(" ", "T")));
            return Math.abs(curves - gpus) < 10_000;
        }"""
    )


def test_the_mouse_on_one_chart_marks_the_moment_on_the_other(page: Page, job: Job) -> None:
    page.locator("[data-chart=metrics] .chart-canvas").hover(force=True)

    expect(page.locator("[data-chart=gpus] .chart-cursor")).to_be_visible()
    page.mouse.move(1, 1)
    expect(page.locator("[data-chart=gpus] .chart-cursor")).to_be_hidden()


def test_the_keyboard_goes_from_change_to_change(page: Page, job: Job) -> None:
    chart = page.locator("[data-chart=gpus]")
    stops = chart.locator(".chart-changes button")
    expect(stops).to_have_count(4)
    stops.last.focus()
    expect(chart.locator(".hovertext")).to_contain_text("training paused for 37 ms")
    page.keyboard.press("ArrowLeft")

    expect(stops.nth(2)).to_be_focused()
    assert "4 of 8 GPUs" in (stops.nth(2).get_attribute("aria-label") or "")
    expect(chart.locator(".hovertext")).to_contain_text("training paused for 41 ms")
    assert chart.locator(".chart-changes button[tabindex='0']").count() == 1


def test_a_chart_is_saved_as_a_picture(page: Page, job: Job) -> None:
    for chart in ("gpus", "metrics"):
        content = saved(page, chart, "PNG").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") == 2400
        assert len(content) > 30_000, "an empty picture is smaller"


def test_names_that_are_formulas_stay_text_in_a_spreadsheet(page: Page, scene: Scene) -> None:
    Job.objects.filter(pk=scene.first.pk).update(name='=HYPERLINK("http://evil")')
    page.goto(f"/jobs/{scene.first.pk}/")
    wait_for_step(page, scene.first.run.step)

    lines = saved(page, "gpus", "CSV").read_text().splitlines()

    assert lines[0] == "Time,Job,GPUs,Why,Pause (ms)"
    assert '"\'=HYPERLINK(""http://evil"")"' in lines[1]
    assert len(lines) == 5


def test_a_metric_reported_for_the_first_time_gets_a_line(page: Page, job: Job) -> None:
    make_steps(job, 821, 821)
    now = timezone.now()
    MetricPoint.objects.create(job=job, name="f1", step=822, epoch=12, value=0.5, at=now)
    set_job(job, final_metrics={**job.run.final_metrics, "f1": 0.5})
    point = {"name": "f1", "step": 822, "epoch": 12, "value": 0.5, "at": now.isoformat()}
    live.publish(live.job_topic(job.pk), "append", {"metrics": [point]})

    page.wait_for_function(f"() => {CURVES}.data.some(trace => trace.meta.metric === 'f1')")


ENDS = """chart => [...document.querySelectorAll(`[data-chart=${chart}] .chart-ends span`)]
    .map(name => name.textContent)"""


def test_lines_that_share_a_row_have_their_names_at_their_ends(page: Page, job: Job) -> None:
    page.wait_for_function(f"() => ({ENDS})('metrics').length === 4")
    assert page.evaluate(ENDS, "metrics") == ["Training", "Test", "Training", "Test"]
    boxes = [name.bounding_box() for name in page.locator("[data-chart=metrics] .chart-ends span").all()]
    for one, other in zip(boxes[::2], boxes[1::2], strict=True):
        assert one
        assert other
        assert abs(one["y"] - other["y"]) >= 13
    page.locator("[data-chart=metrics]").get_by_role("button", name="Table").click()
    expect(page.locator("[data-chart=metrics] .chart-ends")).to_be_hidden()


def test_on_a_narrow_window_the_legend_names_the_lines_alone(page: Page, job: Job) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(f"() => ({ENDS})('metrics').length === 0")
    expect(page.locator("[data-chart=metrics] .legend")).to_contain_text("Test loss")
