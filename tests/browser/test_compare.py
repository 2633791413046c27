"""The page that compares trainings: it moves by itself, and its titles stand apart."""

import pytest
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, Route, expect

from core.charts import job_look
from jobs.actions import cancel
from jobs.control.generations import add_point
from jobs.control.metrics import store_steps
from jobs.control.transition import Why, change, lock_job
from jobs.models import Job
from jobs.states import JobState
from scheduling.plan import PlanReason
from tests.browser.conftest import log_in, script
from tests.browser.test_live_pages import make_steps
from tests.browser.test_steadiness import COLLECT, MOST
from tests.factories import JobFactory
from tests.scene import Scene, shares

LOSS = "document.querySelector('[data-chart=loss] .chart-canvas')"
LAST_STEP = """([job, chart, step]) => document.querySelector(`[data-chart=${chart}] .chart-canvas`)?.data
    ?.some(({ meta, x }) => meta.job === job && x.at(-1) === step)"""
RANGES = """[...document.querySelectorAll('.compare-grid .chart-canvas')]
    .map(({ _fullLayout }) => _fullLayout.xaxis.range)"""


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def open_both(page: Page, *jobs: Job) -> None:
    page.goto(f"/jobs/compare/?jobs={','.join(str(job.pk) for job in jobs)}")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")


def wait_for(page: Page, job: Job, chart: str, step: int) -> None:
    page.wait_for_function(LAST_STEP, arg=[job.pk, chart, step])


def cell(page: Page, name: str, column: int) -> str:
    return f"//table[contains(@class, 'compared')]//tr[th[starts-with(normalize-space(), '{name}')]]/td[{column}]"


def test_new_points_and_results_appear_by_themselves(page: Page, scene: Scene) -> None:
    page.add_init_script(COLLECT)
    open_both(page, scene.second, scene.first)
    page.wait_for_function(f"() => {LOSS}?.data?.length > 0")
    shifts = len(page.evaluate("window.shifts"))

    make_steps(scene.first, 821, 826)

    wait_for(page, scene.first, "loss", 826)
    wait_for(page, scene.first, "gpus", 826)
    expect(page.locator(cell(page, "Steps", 2))).to_have_text("826")
    moved = page.evaluate("window.shifts")[shifts:]
    assert sum(value for value, _ in moved) < MOST, moved


def test_gpus_that_change_hands_and_states_appear(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    why = Why(PlanReason.GREW_INTO_FREE_SLOTS, shares(7, "alone"), "scheduler")

    add_point(scene.first, why, at=timezone.now(), slots=7, generation=5)
    page.wait_for_function(
        """job => document.querySelector('[data-chart=gpus] .chart-canvas').data
            .some(({ meta, y }) => meta.job === job && y.at(-1) === 7)""",
        arg=scene.first.pk,
    )

    cancel(scene.first.pk, "alice")
    expect(page.locator(f"th[data-job='{scene.first.pk}'] .state").first).to_have_attribute("data-state", "CANCELLING")


def test_the_first_step_of_all_makes_the_first_line(page: Page, scene: Scene) -> None:
    jobs = [JobFactory(owner=scene.alice, started_at=timezone.now(), state=JobState.RUNNING) for _ in range(2)]
    open_both(page, *jobs)
    empty = page.locator("#compare-empty")
    expect(empty).to_contain_text("Curves appear after the first step")

    with transaction.atomic():
        at = timezone.now().timestamp()
        made = {"step": 1, "epoch": 1, "cursor": 1, "samples": 1, "world_size": 1, "generation": 1, "attempt": 1}
        store_steps(lock_job(jobs[0].pk), [{**made, "at": at, "loss": 0.5, "grip": 1.0}])

    wait_for(page, jobs[0], "loss", 1)
    expect(empty).to_be_hidden()
    expect(page.locator(cell(page, "grip", 1))).to_have_text("1")
    expect(page.locator(cell(page, "grip", 2))).to_have_text("–")


def test_a_training_that_starts_anew_is_drawn_anew(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    with transaction.atomic():
        started = timezone.now() - timezone.timedelta(hours=1)
        change(lock_job(scene.first.pk), attempt=scene.first.run.attempt + 1, started_at=started)

    page.get_by_role("button", name="Time", exact=True).click()
    page.wait_for_function(
        f"job => Math.max(...{LOSS}.data.find(({{ meta }}) => meta.job === job).x) > 55", arg=scene.first.pk
    )


def test_polling_shows_them_where_websockets_do_not_get_through(page: Page, scene: Scene) -> None:
    page.add_init_script("window.WebSocket = class { constructor() { throw new Error('blocked'); } };")
    page.goto(f"/jobs/compare/?jobs={scene.first.pk},{scene.second.pk}")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "polling")

    make_steps(scene.first, 821, 823)

    wait_for(page, scene.first, "loss", 823)


def test_all_charts_are_looked_at_together(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    page.wait_for_function(f"() => {LOSS}?.data?.length > 0")
    page.locator("[data-chart=accuracy] .chart-canvas").hover(force=True)
    expect(page.locator("[data-chart=loss] .chart-cursor")).to_be_visible()
    expect(page.locator("[data-chart=accuracy] .hoverlayer")).to_contain_text("T1 digits-cnn")

    box = page.locator("[data-chart=loss] .nsewdrag").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2)
    page.mouse.up()
    together = f"({RANGES}).every(([one, other]) => one > 100 && other < 450)"
    page.wait_for_function(f"() => {together}")
    make_steps(scene.first, 821, 826)
    wait_for(page, scene.first, "loss", 826)
    assert page.evaluate(together), "points that come leave what one looks at"
    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_function(f"() => ({RANGES}).every(([, other]) => other >= 800)")

    page.locator("#compare-legend").get_by_role("button", name="T2 digits-cnn").click()
    page.wait_for_function(f"() => {LOSS}.data.some(({{ visible }}) => visible === false)")


def test_one_control_says_how_all_losses_are_drawn(page: Page, scene: Scene) -> None:
    """Training loss spans decades and the loss on the test data does not: both are drawn as the control says."""
    open_both(page, scene.first, scene.second)
    types = """() => ['loss', 'test-loss', 'accuracy'].map((name) =>
        document.querySelector(`[data-chart=${name}] .chart-canvas`)?._fullLayout?.yaxis.type).join()"""
    page.wait_for_function(f"() => ({types})() === 'log,log,linear'")
    expect(page.get_by_role("button", name="Log", exact=True)).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Linear", exact=True).click()
    page.wait_for_function(f"() => ({types})() === 'linear,linear,linear'")


def test_one_resizes_the_grid_and_it_fits_a_narrow_window(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    page.wait_for_function(f"() => {LOSS}?.data?.length > 0")
    page.get_by_label("Charts per row").fill("1")
    page.wait_for_function(f"() => {LOSS}._fullLayout.width > 1000")
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(f"() => {LOSS}._fullLayout.width < 380")
    page.wait_for_function("() => document.documentElement.scrollWidth <= 390")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_of_a_job_is_seen_on_the_ground(page: Page, scene: Scene, theme: str) -> None:
    page.add_init_script(f"localStorage.setItem('tidepool-theme', '{theme}')")
    open_both(page, scene.first, scene.second)

    least = page.evaluate(
        f"""async colours => {{
            const {{ contrast, seenOn }} = await {script("figure")};
            const ground = getComputedStyle(document.documentElement).getPropertyValue('--surface').trim();
            return Math.min(...colours.map(colour => contrast(seenOn(ground, colour), ground)));
        }}""",
        [job_look(job).colour for job in range(1, 13)],
    )
    assert least >= 3
    ground = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--surface').trim()")
    assert (ground == "#ffffff") == (theme == "light")


def test_lines_end_with_the_letter_of_their_training(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    names = page.locator("[data-chart=loss] .chart-ends span")
    expect(names.first).to_be_visible()
    letters = {job_look(job.pk).letter for job in (scene.first, scene.second)}
    assert set(names.all_text_contents()) == letters


#: Labels of the value axes that stand one over the other.
OVERLAPS = """() => [...document.querySelectorAll('.compare-grid .chart-canvas')].flatMap((canvas) => {
    const boxes = [...canvas.querySelectorAll('.ytick text')].map((label) => label.getBoundingClientRect());
    boxes.sort((one, other) => one.top - other.top);
    return boxes.slice(1).filter((box, index) => box.top < boxes[index].bottom - 2);
}).length"""


def test_labels_of_a_log_axis_do_not_overlap(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    page.get_by_role("button", name="Log", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.compare-grid .chart-canvas .ytick').length > 20")
    assert page.evaluate(OVERLAPS) == 0


def rows_of(page: Page) -> list[str]:
    """Titles of the rows of a training's curves, from top to bottom."""
    titles = page.locator("[data-chart=metrics] .annotation").all()
    tops = {title.text_content() or "": (title.bounding_box() or {"y": 0})["y"] for title in titles}
    return [title for title in sorted(tops, key=tops.__getitem__) if not title.startswith("GPUs")]


def titles_of(page: Page) -> list[str]:
    """Titles of the charts that are seen, in the order in which they are seen."""
    found: list[str] = page.locator(".compare-grid > section:visible").evaluate_all(
        """panels => panels.sort((one, other) => one.style.order - other.style.order)
            .map((panel) => panel.querySelector("h2").textContent.trim())"""
    )
    return found


def press(page: Page, button: Locator) -> None:
    """Choose charts, and wait until the server has kept the choice."""
    with page.expect_response("**/jobs/charts/") as answer:
        button.click()
    assert answer.value.status == 204


def test_the_chosen_charts_and_their_order_are_kept_for_the_user_and_the_model(
    page: Page, browser: Browser, site: str, scene: Scene
) -> None:
    address = f"/jobs/compare/?jobs={scene.first.pk},{scene.second.pk}"
    page.goto(address)
    usual = titles_of(page)
    assert usual[:4] == ["Loss", "Test loss", "Accuracy (%)", "Test accuracy (%)"]
    page.get_by_text("Charts", exact=True).click()
    press(page, page.get_by_role("checkbox", name="Samples / s", exact=True))
    up = page.get_by_role("button", name="Move Accuracy (%) up", exact=True)
    press(page, up)
    expect(up).to_be_focused()
    press(page, up)
    chosen = ["Accuracy (%)", "Loss", "Test loss", "Test accuracy (%)"]
    assert titles_of(page) == [*chosen, *(title for title in usual[4:] if title != "Samples / s")]
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator("#chart-order .columns-form").bounding_box()
    assert box is not None
    assert (box["x"] >= 0, box["x"] + box["width"] <= 390) == (True, True)

    with browser.new_context(base_url=site, viewport={"width": 1440, "height": 900}) as elsewhere:
        other = elsewhere.new_page()
        log_in(other, "alice")
        other.goto(f"/jobs/{scene.first.pk}/")
        expect(other.locator("[data-chart=metrics] .main-svg").first).to_be_visible()
        assert rows_of(other) == ["Accuracy (%)", "Loss", "Learning rate"]
        other.get_by_text("Charts", exact=True).click()
        for _ in range(2):  # past the chart that is not shown
            press(other, other.get_by_role("button", name="Move Loss down", exact=True))
        assert rows_of(other) == ["Accuracy (%)", "Learning rate", "Loss"]
        for name in ("Accuracy (%)", "Learning rate", "Loss"):
            press(other, other.get_by_role("checkbox", name=name, exact=True))
        expect(other.get_by_text("No chart is shown: choose some under Charts.")).to_be_visible()

    page.reload()
    assert titles_of(page) == [title for title in usual if title.startswith(("Test", "GPUs"))]
    page.get_by_text("Charts", exact=True).click()
    press(page, page.get_by_role("button", name="All charts in the usual order"))
    assert titles_of(page) == usual


def test_charts_are_found_by_a_regular_expression(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/compare/?jobs={scene.first.pk},{scene.second.pk}")
    usual = titles_of(page)
    page.get_by_text("Charts", exact=True).click()
    finder = page.get_by_label("Show charts whose title contains")
    finder.fill("/^(test )?loss$/")
    assert titles_of(page) == [title for title in usual if title.lower() in ("loss", "test loss")]
    finder.fill("/(/")
    expect(page.locator("[data-find-problem]")).to_contain_text("The regular expression cannot be used")
    finder.fill("")
    assert titles_of(page) == usual


#: Two trainings with points at different steps, one with a gap; and GPUs, which are held until the next change.
SPANS = """async () => {
    const { spanOf, outlineOf } = await %s;
    const one = [{ x: 0, value: 4 }, { x: 2, value: 8 }, { x: 4, value: null }];
    const other = [{ x: 1, value: 2 }, { x: 3, value: 6 }];
    const short = ({ x, mean, least, most, count }) => [x, mean, least, most, count];
    const outline = outlineOf(spanOf([other], false), { isStepped: true, isLog: false });
    return [spanOf([one, other], false).map(short), spanOf([other], true).map(short), outline.x, outline.y];
}""" % script("line_groups")  # noqa: UP031, braces are JavaScript's


def test_lines_of_a_group_are_one_mean_within_a_band(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    assert page.evaluate(SPANS) == [
        [[0, 4, 4, 4, 1], [1, 4, 2, 6, 2], [2, 6, 4, 8, 2], [3, 6, 6, 6, 1], [4, None, None, None, 0]],
        [[1, 2, 2, 2, 1], [3, 6, 6, 6, 1]],
        [1, 3, 3, 3, 3, 1, None],
        [2, 2, 6, 6, 2, 2, None],
    ]
    drawn = f"{LOSS}?.data?.map(({{ name, fill }}) => fill ?? name)"
    page.wait_for_function(f"() => {drawn}?.length === 2")
    with page.expect_response("**/jobs/charts/"):
        page.get_by_label("Group lines by").select_option("Model")
    page.wait_for_function(f"() => {drawn}.join() === 'toself,1 · digits-cnn'")
    assert "group=model" in page.url
    table = page.locator("section[aria-labelledby=table-groups]")
    expect(table.get_by_role("row", name="Trainings")).to_contain_text(scene.second.name)
    expect(page.locator("#compare-legend")).to_have_text("1 · digits-cnn (2 trainings)")
    make_steps(scene.first, 821, 826)
    page.wait_for_function(f"() => {LOSS}.data[1].x.at(-1) === 826")
    page.locator("[data-chart=loss]").get_by_role("button", name="Table").click()
    expect(page.locator("[data-chart=loss] thead")).to_contain_text("GroupTrainingsStepMeanLeastMost")

    open_both(page, scene.first, scene.second)
    expect(page.get_by_label("Group lines by")).to_have_value("model")
    page.get_by_label("Group lines by").select_option("Not grouped")
    expect(table).to_have_count(0)
    page.wait_for_function(f"() => {drawn}.length === 2 && !{drawn}.includes('toself')")


def test_a_grouping_that_does_not_reach_the_server_says_so(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    page.context.set_offline(True)
    page.get_by_label("Group lines by").select_option("Model")
    expect(page.get_by_text("The tables still have the groups of before")).to_be_visible()


def test_a_grouping_that_is_chosen_while_the_scripts_still_load_is_followed(page: Page, scene: Scene) -> None:
    held: list[Route] = []
    page.route("**/pages/compare*.js", lambda route: held.append(route))
    with page.expect_request("**/pages/compare*.js"):
        page.goto(f"/jobs/compare/?jobs={scene.first.pk},{scene.second.pk}", wait_until="commit")
    page.get_by_label("Group lines by").select_option("Model")
    held[0].continue_()
    expect(page.locator("section[aria-labelledby=table-groups]")).to_be_visible()
    assert "group=model" in page.url


def test_a_grouping_that_arrives_says_nothing(page: Page, scene: Scene) -> None:
    open_both(page, scene.first, scene.second)
    make_steps(scene.first, 821, 826)  # the tables are fetched meanwhile
    page.get_by_label("Group lines by").select_option("Model")
    expect(page.locator("section[aria-labelledby=table-groups]")).to_be_visible()
    expect(page.locator(".toast-error")).to_have_count(0)
