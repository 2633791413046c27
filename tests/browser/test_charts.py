"""The charts of a job's page as a person uses them: by mouse, by keyboard, as a table, as files."""

import csv
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Page, expect

from core import live
from jobs.control.job_end import finish
from jobs.control.transition import Why, lock_job
from jobs.models import AllocationPoint, Job, MetricPoint
from jobs.states import JobState, Reason
from jobs.topics import job_topic
from tests.browser.conftest import script
from tests.browser.test_live_pages import make_steps, wait_for_step
from tests.factories import set_job
from tests.scene import Scene, report_every_step
from tests.waiting import wait_until

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
    names = page.evaluate(
        f"{CURVES}.data.filter(trace => trace.meta.metric).map(trace => [trace.meta.metric, trace.yaxis])"
    )

    assert names == [
        ["loss", "y"],
        ["test_loss", "y"],
        ["accuracy", "y2"],
        ["test_accuracy", "y2"],
        ["samples_per_second", "y3"],
        ["learning_rate", "y4"],
    ]


def test_one_point_alone_is_seen_and_what_is_over_is_grey(page: Page, scene: Scene) -> None:
    job = scene.first
    MetricPoint.objects.filter(job=job, step__gt=MetricPoint.objects.filter(job=job, name="loss").first().step).delete()
    MetricPoint.objects.filter(job=job).exclude(name="loss").delete()
    page.goto(f"/jobs/{job.pk}/")
    expect(page.locator("[data-chart=metrics] .scatterlayer .point")).to_have_count(1)
    expect(page.locator("#advice")).to_contain_text("1 value of the loss is too few to judge")
    expect(page.locator("h1 .mark.over")).to_have_count(0)
    with transaction.atomic():
        finish([lock_job(job.pk)], JobState.SUCCEEDED, Why(Reason.COMPLETED, {"message": "complete"}, "executor"))
    expect(page.locator("h1 .mark.over")).to_be_visible()


def test_a_long_curve_is_thinned_out_and_says_so(page: Page, job: Job) -> None:
    report_every_step(job)
    page.reload()
    page.wait_for_function(f"() => {CURVES}?.data?.length")
    assert 300 < page.evaluate(f"Math.max(...{CURVES}.data.map(trace => trace.x.length))") <= 600
    expect(page.locator("[data-chart=metrics] .chart-note")).to_have_text(
        "Shown: the least and the greatest of every 4 values. The CSV file has all."
    )


def test_a_spike_is_drawn_live_too_and_the_file_has_all_values(page: Page, job: Job, tmp_path: Path) -> None:
    report_every_step(job)
    MetricPoint.objects.filter(job=job, name="loss", step=402).update(value=900.0)
    MetricPoint.objects.filter(job=job, name="loss", step=407).update(value=None)
    page.reload()
    page.wait_for_function(f"() => {CURVES}?.data?.length")
    assert page.evaluate(f"Math.max(...{CURVES}.data[0].y)") == 900
    assert page.evaluate(f"{CURVES}.data[0].y.includes(null)"), "a gap is seen, too"
    assert page.evaluate(KEPT) == [[1, 9], [9, None], True, True]
    with page.expect_download() as download:
        page.locator("[data-chart=metrics]").get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "curves.csv")
    rows = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    losses = [row["Training loss"] for row in rows if row["Training loss"]]
    assert len(losses) == MetricPoint.objects.filter(job=job, name="loss").count()
    assert {"900", "not a number"} <= set(losses)


#: Points that come to lines that are thinned: extremes stay, also if the line is thinned again.
KEPT = """async () => {
    const { asLine, addPoint } = await %s;
    const line = () => asLine({ x: [], y: [], customdata: [], meta: { every: 4 } }, 20);
    const fed = (values) => {
        const made = line();
        for (const [step, value] of values.entries()) addPoint(made, { step, value, at: 0, epoch: 0 });
        return made;
    };
    const valuesOf = (made) => made.points.map(({ value }) => value);
    const many = fed(Array.from({ length: 1000 }, (_, step) => (step === 333 ? 77 : step === 444 ? -5 : 1)));
    return [
        valuesOf(fed([5, 2, 9, 1, 4, 3, 6, 9])).filter((value) => [1, 9].includes(value)).sort().slice(0, 2),
        valuesOf(fed([5, 2, 9, null, 4, 3, 6, 5])),
        valuesOf(many).includes(77) && valuesOf(many).includes(-5),
        many.points.length < 30 && many.points.at(-1).step === 999,
    ];
}""" % script("lines")  # noqa: UP031, braces are JavaScript's


def drag(page: Page, start: float, end: float) -> None:
    """Over the middle of the loss, between these parts of its width."""
    box = page.evaluate(
        f"""() => {{
            const {{ xaxis, yaxis }} = {CURVES}._fullLayout;
            const {{ left, top }} = {CURVES}.getBoundingClientRect();
            return [left + xaxis._offset, xaxis._length, top + yaxis._offset + yaxis._length / 2];
        }}"""
    )
    left, width, middle = box
    page.mouse.move(left + width * start, middle)
    page.mouse.down()
    page.mouse.move(left + width * (start + end) / 2, middle)
    page.mouse.move(left + width * end, middle)
    page.mouse.up()


def shown(page: Page) -> list[float]:
    found: list[float] = page.evaluate(f"{CURVES}._fullLayout.xaxis.range")
    return found


def test_what_one_zoomed_to_stays_while_points_come(page: Page, job: Job) -> None:
    whole = page.get_by_role("button", name="Reset zoom")
    expect(whole).to_be_disabled()
    drag(page, 0.25, 0.5)
    expect(whole).to_be_enabled()
    zoomed = shown(page)
    assert 150 < zoomed[0] < zoomed[1] < 500

    make_steps(job, 821, 826)
    wait_for_step(page, 826)
    assert shown(page) == zoomed
    page.get_by_role("button", name="Pan").click()
    drag(page, 0.25, 0.5)
    page.wait_for_function(f"least => {CURVES}._fullLayout.xaxis.range[0] < least", arg=zoomed[0])
    whole.click()
    page.wait_for_function(f"() => {CURVES}._fullLayout.xaxis.range[1] >= 826")
    expect(whole).to_be_disabled()


def test_curves_are_looked_at_in_the_way_that_one_chooses(page: Page, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(effective_batch_size=64)
    page.reload()
    wait_for_step(page, 820)
    last = f"{CURVES}.data[0].x.at(-1)"
    page.get_by_role("button", name="Epoch", exact=True).click()
    page.wait_for_function(f"() => {last} > 11.9 && {last} < 12.2")
    page.get_by_role("button", name="Samples", exact=True).click()
    page.wait_for_function(f"() => {last} === 820 * 64")
    page.get_by_role("button", name="Linear", exact=True).click()
    page.wait_for_function(f"() => {CURVES}.layout.yaxis.type === 'linear'")
    page.get_by_role("button", name="Log", exact=True).click()
    page.wait_for_function(f"() => {CURVES}.layout.yaxis.type === 'log' && {CURVES}.layout.yaxis2.type === 'linear'")
    page.get_by_label("Smoothing").fill("0.9")
    faint = f"{CURVES}.data.filter(trace => trace.opacity < 1).map(trace => trace.meta.metric)"
    page.wait_for_function(f"() => {faint}.length === 3")
    assert page.evaluate(faint) == ["loss", "accuracy", "samples_per_second"]

    page.reload()
    page.wait_for_function(f"() => {CURVES}?.data && {faint}.length === 3")
    expect(page.get_by_role("button", name="Samples", exact=True)).to_have_attribute("aria-pressed", "true")


def test_a_log_axis_says_what_it_cannot_show(page: Page, job: Job) -> None:
    first = MetricPoint.objects.filter(job=job, name="loss").order_by("step").values_list("pk", flat=True)[:3]
    MetricPoint.objects.filter(pk__in=list(first)).update(value=0)
    page.reload()
    note = page.locator("[data-chart=metrics] .chart-note")
    page.get_by_role("button", name="Log", exact=True).click()
    expect(note).to_have_text("3 values of 0 or less are not shown on a log axis.")
    page.locator("[data-chart=metrics] .chart-legend").get_by_role("button", name="Training loss").click()
    expect(note).to_have_text("")
    page.locator("[data-chart=metrics] .chart-legend").get_by_role("button", name="Training loss").click()
    expect(note).not_to_have_text("")
    page.get_by_role("button", name="Linear", exact=True).click()
    expect(note).to_have_text("")


def test_the_loss_is_above_the_fold_and_the_cursor_reads_all_lines(page: Page, job: Job) -> None:
    box = page.evaluate(
        f"(() => {{ const {{ yaxis }} = {CURVES}._fullLayout; return [yaxis._offset, yaxis._length]; }})()"
    )
    canvas = page.locator("[data-chart=metrics] .chart-canvas")
    top = (canvas.bounding_box() or {"y": 9_999})["y"] + box[0]
    assert top + box[1] < 900
    assert box[1] > 100
    page.mouse.move(600, top + box[1] / 2)
    readout = canvas.locator(".hoverlayer")
    for words in ("Step ", "Training loss", "Test accuracy", "Samples per second", "GPUs : ", "of 8 GPUs"):
        expect(readout).to_contain_text(words)


def test_the_strip_shares_the_axis_and_opens_the_gpus_over_time(page: Page, job: Job) -> None:
    chart, word = page.locator("[data-chart=gpus]"), page.locator("#gpus-word")
    expect(word).to_have_text("3 changes")
    expect(chart).to_be_hidden()
    place = page.evaluate(
        f"""() => {{
            const {{ xaxis, yaxis20 }} = {CURVES}._fullLayout;
            const {{ left, top }} = {CURVES}.getBoundingClientRect();
            const bottom = top + yaxis20._offset + yaxis20._length;
            return [left + xaxis._offset + xaxis._length / 2, bottom - 4, yaxis20._length];
        }}"""
    )
    assert round(place[2]) == 56
    page.mouse.click(place[0], place[1])
    expect(chart).to_be_visible()
    expect(word).to_have_attribute("aria-expanded", "true")
    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_function(
        """() => {
            const axis = chart => document.querySelector(`[data-chart=${chart}] .chart-canvas`)._fullLayout.xaxis;
            const [curves, gpus] = ["metrics", "gpus"].map(chart => Date.parse(axis(chart).range[0].replace(" ", "T")));
            return Math.abs(curves - gpus) < 1_000;
        }"""
    )
    word.click()
    expect(chart).to_be_hidden()


def test_a_training_of_one_size_has_a_word_instead_of_a_strip(page: Page, scene: Scene) -> None:
    AllocationPoint.objects.filter(job=scene.first).exclude(slots=3).delete()
    page.goto(f"/jobs/{scene.first.pk}/")
    wait_for_step(page, scene.first.run.step)
    expect(page.locator("#gpus-word")).to_have_text("no changes")
    assert page.evaluate(f"{CURVES}.layout.yaxis20 === undefined")


def open_gpus(page: Page) -> None:
    page.locator("#gpus-word").click()
    expect(page.locator("[data-chart=gpus] .main-svg").first).to_be_visible()


def test_the_mouse_on_one_chart_marks_the_moment_on_the_other(page: Page, job: Job) -> None:
    open_gpus(page)
    page.locator("[data-chart=metrics] .chart-canvas").hover(force=True)

    expect(page.locator("[data-chart=gpus] .chart-cursor")).to_be_visible()
    page.mouse.move(1, 1)
    expect(page.locator("[data-chart=gpus] .chart-cursor")).to_be_hidden()


def test_the_keyboard_goes_from_change_to_change(page: Page, job: Job) -> None:
    open_gpus(page)
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
    open_gpus(page)
    for chart in ("gpus", "metrics"):
        content = saved(page, chart, "PNG").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") == 2400
        assert len(content) > 30_000, "an empty picture is smaller"


def test_names_that_are_formulas_stay_text_in_a_spreadsheet(page: Page, scene: Scene) -> None:
    Job.objects.filter(pk=scene.first.pk).update(name='=HYPERLINK("http://evil")')
    page.goto(f"/jobs/{scene.first.pk}/")
    wait_for_step(page, scene.first.run.step)

    open_gpus(page)
    lines = saved(page, "gpus", "CSV").read_text().splitlines()

    assert lines[0] == "Time,Training,GPUs,Why,Pause (ms)"
    assert '"\'=HYPERLINK(""http://evil"")"' in lines[1]
    assert len(lines) == 5


def test_a_metric_reported_for_the_first_time_gets_a_line(page: Page, job: Job) -> None:
    make_steps(job, 821, 821)
    now = timezone.now()
    MetricPoint.objects.create(job=job, name="f1", step=822, epoch=12, value=0.5, at=now)
    set_job(job, final_metrics={**job.run.final_metrics, "f1": 0.5})
    point = {"name": "f1", "step": 822, "epoch": 12, "value": 0.5, "at": now.isoformat()}
    live.publish(job_topic(job.pk), "append", {"metrics": [point]})

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


def test_a_legend_stands_beside_the_curves_and_takes_lines_away(page: Page, job: Job) -> None:
    legend = page.locator("[data-chart=metrics] .chart-legend")
    legend.get_by_role("button", name="Test loss").click()
    page.wait_for_function(f"() => {CURVES}.data.find(trace => trace.meta.metric === 'test_loss').visible === false")
    make_steps(job, 821, 826)
    wait_for_step(page, 826)
    expect(legend.get_by_role("button", name="Test loss")).to_have_attribute("aria-pressed", "false")

    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(f"() => ({ENDS})('metrics').length === 0")
    plot, names = page.locator("[data-chart=metrics] .chart-frame").bounding_box(), legend.bounding_box()
    assert plot
    assert names
    assert names["y"] >= plot["y"] + plot["height"], "below the curves, not over them"


def test_rings_of_more_than_forty_changes_are_left_out_and_their_reasons_stay(page: Page, scene: Scene) -> None:
    page.goto("/")
    rings = """() => document.querySelector('[data-chart=gpus] .chart-canvas').data
        ?.find(trace => trace.meta.kind === 'changes').marker.opacity"""
    wait_until(lambda: page.evaluate(rings) == 1)
    now = timezone.now()
    AllocationPoint.objects.bulk_create(
        AllocationPoint(
            job=scene.first, at=now - timedelta(seconds=3 * number), slots=1 + number % 3, attempt=1,
            generation=100 - number, reason_code="REBALANCED",
        )
        for number in range(1, 50)
    )  # fmt: skip
    page.reload()
    wait_until(lambda: page.evaluate(rings) == 0)
    expect(page.locator("[data-chart=gpus] .chart-note")).to_contain_text("point at an edge for the reason")
    expect(page.locator("[data-chart=gpus] .chart-changes button").first).to_have_attribute(
        "aria-label", re.compile("T")
    )


def test_log_is_pressed_only_if_the_loss_is_logarithmic(page: Page, job: Job) -> None:
    """Another metric spans decades; the loss does not."""
    now = timezone.now()
    job.metrics.filter(name__endswith="loss").update(value=0.5)
    MetricPoint.objects.bulk_create(
        MetricPoint(job=job, name="gradient_norm", step=step, epoch=1, value=1000 / step, at=now)
        for step in range(1, 800, 10)
    )
    set_job(job, final_metrics={**job.run.final_metrics, "gradient_norm": 1.2})
    page.reload()
    kinds = f"""() => ({CURVES}.data ?? []).map(({{ meta, yaxis }}) =>
        [meta.metric, {CURVES}._fullLayout[yaxis.replace('y', 'yaxis')].type])"""
    wait_until(lambda: ["gradient_norm", "linear"] in page.evaluate(kinds))
    expect(page.get_by_role("button", name="Linear")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Log", exact=True).click()
    wait_until(lambda: {tuple(each) for each in page.evaluate(kinds)} >= {("loss", "log"), ("gradient_norm", "log")})


def test_many_markers_do_not_hide_the_training_curve(page: Page, job: Job) -> None:
    held_out = f"() => {CURVES}.data.find(trace => trace.meta.metric === 'test_loss').mode"
    assert page.evaluate(held_out) == "lines+markers"
    job.metrics.filter(name="test_loss").delete()
    MetricPoint.objects.bulk_create(
        MetricPoint(job=job, name="test_loss", step=step, epoch=1, value=0.4, at=timezone.now())
        for step in range(1, 601)
    )
    page.reload()
    wait_for_step(page, job.run.step)
    wait_until(lambda: page.evaluate(held_out) == "lines")


def test_the_legend_of_a_picture_is_below_the_plot(page: Page, job: Job) -> None:
    page.evaluate(
        """() => {
            const { toImage } = window.Plotly;
            window.Plotly.toImage = (figure, options) => {
                window.drawn = figure.layout;
                return toImage(figure, options);
            };
        }"""
    )
    saved(page, "metrics", "PNG")
    legend, font = page.evaluate("[window.drawn.legend, window.drawn.font.family]")
    assert (legend["yanchor"], legend["y"] < 0, font) == ("top", True, "sans-serif")
