"""Tests of what a person sees: log in, submit, and pages that move by themselves, with or without websockets."""

import re

import pytest
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Page, Route, WebSocket, expect

from core import live
from core.charts import job_look
from jobs.actions import JobChange, change_job
from jobs.control.generations import add_point
from jobs.control.lifecycle import release_claims, start
from jobs.control.transition import Why, change, lock_job, transition
from jobs.messages import message
from jobs.models import Job, MetricPoint, SlotClaim
from jobs.states import JobState, Reason
from jobs.topics import job_topic
from scheduling.plan import PlanReason
from tests.browser.conftest import script
from tests.factories import RegisteredModelVersionFactory
from tests.scene import Scene, shares
from workers.actions import drain_host, resume_host
from workers.models import GpuReading
from workers.topics import CLUSTER

LIVE = script("live")
ELSEWHERE = "constructor() { super(`ws://${location.host}/ws/nowhere/`); }"
#: Browser's own message when the log is requested without a session.
UNAUTHORIZED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    """Content security policy, missing files, exceptions: the console stays empty."""
    yield
    assert [line for line in complaints if not _is_wanted(line)] == []


def _is_wanted(line: str) -> bool:
    """Return whether the message is wanted: the tests below block requests on purpose."""
    wanted = ("ERR_BLOCKED_BY_CLIENT", "ERR_FAILED", "WebSocket connection to", "htmx:")
    return any(words in line for words in wanted)


def make_steps(job: Job, first: int, last: int) -> None:
    """Add rows and publish an event with the same values, as ingesting a report does."""
    now = timezone.now()
    points = [
        MetricPoint(job=job, name=name, step=step, epoch=13, value=value, at=now)
        for step in range(first, last + 1)
        for name, value in (("loss", 0.07), ("accuracy", 97.5))
    ]
    with transaction.atomic():
        MetricPoint.objects.bulk_create(points)
        change(lock_job(job.pk), step=last)
        values = [
            {"name": point.name, "step": point.step, "epoch": 13, "value": point.value, "at": now.isoformat()}
            for point in points
        ]
        live.publish(job_topic(job.pk), "append", {"metrics": values})


def drawn_steps(page: Page, metric: str = "loss") -> int:
    """The last step in the line that is drawn."""
    return int(
        page.evaluate(
            """metric => document.querySelector('[data-chart=metrics] .chart-canvas').data
                .find(trace => trace.meta.metric === metric).x.at(-1)""",
            metric,
        )
    )


def wait_for_step(page: Page, step: int) -> None:
    page.wait_for_function(
        """step => document.querySelector('[data-chart=metrics] .chart-canvas')?.data
            ?.find(trace => trace.meta.metric === 'loss').x.at(-1) === step""",
        arg=step,
    )


def open_job(page: Page, job: Job) -> None:
    page.goto(f"/jobs/{job.pk}/")
    wait_for_step(page, job.run.step)


def test_submits_a_training_through_the_form(page: Page, scene: Scene) -> None:
    page.goto("/")
    page.get_by_role("link", name="Train", exact=True).click()
    page.get_by_label("Model").select_option("digits-cnn")
    page.get_by_label("Dataset").select_option("digits")
    page.get_by_label("Name of the training").fill("from the browser <b>")
    page.get_by_label("At most").fill("4")
    page.get_by_role("button", name="Start training").click()

    expect(page.locator("h1 > span:last-child")).to_have_text("from the browser <b>")
    job = Job.objects.get(name="from the browser <b>")
    assert (job.owner, job.max_slots, job.state) == (scene.alice, 4, JobState.PENDING)


def test_picking_a_model_fills_in_its_dataset_and_its_parameters(page: Page, scene: Scene) -> None:
    RegisteredModelVersionFactory(model__name="other", default_dataset="", parameters={})
    page.goto("/jobs/new/")
    expect(page.get_by_label("Dataset")).to_have_value("")
    page.get_by_label("Model").select_option("digits-cnn")

    expect(page.get_by_label("Dataset")).to_have_value(str(scene.dataset.dataset_id))
    expect(page.get_by_label("epochs")).to_have_value("20")


def test_a_plain_script_says_what_a_stop_means(page: Page, scene: Scene) -> None:
    code = {"path": scene.model.path, "entry_point": scene.model.entry_point, "digest": scene.model.digest}
    RegisteredModelVersionFactory(model__name="plain", default_dataset="", parameters={}, engine="fixed", **code)
    page.goto("/jobs/new/")
    page.get_by_label("Model").select_option("digits-cnn")
    expect(page.get_by_label("Exactness")).to_be_visible()
    page.get_by_label("Model").select_option("plain")
    expect(page.locator("#preview")).to_contain_text("it starts again; what it left")
    expect(page.get_by_label("Exactness")).to_be_hidden()
    page.get_by_label("Exactly").fill("3")
    expect(page.locator("#preview")).to_contain_text("3 of 8 GPUs: it runs on exactly 3.")


def test_what_a_training_had_before_fits_in_its_chart(page: Page, scene: Scene) -> None:
    Job.objects.filter(pk=scene.first.pk).update(max_slots=4)
    open_job(page, scene.first)

    page.locator("#gpus-word").click()
    canvas = "document.querySelector('[data-chart=gpus] .chart-canvas')"
    page.wait_for_function(f"() => {canvas}.data")
    assert page.evaluate(f"{canvas}.layout.yaxis.range[1]") > 8
    assert page.evaluate(f"{canvas}.data.find(trace => trace.meta.kind === 'capacity').name").endswith(": 4")


def test_a_script_that_writes_nothing_is_said(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    page.get_by_role("tab", name="Logs").click()

    expect(page.locator("#log-text")).to_have_attribute(
        "data-empty", "The script has written nothing to stdout or stderr yet."
    )


def test_a_form_that_does_not_fit_keeps_what_was_typed(page: Page, scene: Scene) -> None:
    page.goto("/jobs/new/")
    page.get_by_label("Model").select_option("digits-cnn")
    page.get_by_label("Dataset").select_option("digits")
    page.get_by_label("At most").fill("9")
    page.get_by_text("Other parameters, variables").click()
    page.get_by_label("Parameters").fill("epochs = 3")
    page.get_by_role("button", name="Start training").click()

    expect(page.get_by_role("alert")).to_contain_text("request at most 8, not 9")
    expect(page.get_by_label("At most")).to_have_value("9")
    expect(page.get_by_label("Parameters")).to_have_value("epochs = 3")


def test_new_points_come_by_websocket_alone(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    page.route("**/*", lambda route: route.abort("blockedbyclient"))

    make_steps(scene.first, 821, 825)

    wait_for_step(page, 825)
    expect(page.locator("[data-field=step]").first).to_have_text("825")


@pytest.mark.parametrize("way", ["refused", "cut", "missing"])
def test_polling_shows_them_where_websockets_do_not_get_through(page: Page, scene: Scene, way: str) -> None:
    if way == "refused":
        page.add_init_script("{ const Real = WebSocket; window.WebSocket = class extends Real { " + ELSEWHERE + " }; }")
    elif way == "cut":
        page.route_web_socket("**/ws/live/", lambda socket: socket.close(code=1011))
    else:
        page.add_init_script("window.WebSocket = class { constructor() { throw new Error('blocked'); } };")
    open_job(page, scene.first)
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "polling")

    make_steps(scene.first, 821, 823)

    wait_for_step(page, 823)


def test_a_lost_connection_is_made_again_and_nothing_is_missed(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    dot = page.locator("#live-dot")
    expect(dot).to_have_attribute("data-status", "connected")
    page.context.set_offline(True)
    page.evaluate(f"{LIVE}.then(({{live}}) => live.socket.close())")
    expect(dot).not_to_have_attribute("data-status", "connected")

    make_steps(scene.first, 821, 830)
    page.context.set_offline(False)

    wait_for_step(page, 830)
    expect(dot).to_have_attribute("data-status", "connected")


def test_the_sentence_and_the_slots_change_while_one_looks(page: Page, scene: Scene) -> None:
    page.goto("/")
    row = page.locator(f"#active-jobs tr[data-job='{scene.first.pk}']")
    expect(row).to_contain_text("3 of 8 GPUs")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    with transaction.atomic():
        why = Why(PlanReason.GREW_INTO_FREE_SLOTS, shares(8, "alone"), "scheduler")
        change(lock_job(scene.first.pk), why, slots=8, target_slots=8)
    expect(row).to_contain_text("8 of 8 GPUs: all available GPUs")
    expect(row.locator("[data-label=GPUs]")).to_have_text("8 of 8")

    # A released slot shows nothing of its former training; a reading, a drain and a new training are shown, too.
    tile = page.locator("[data-slot='gpu-host-2:0']")
    expect(tile.locator(".mark")).to_have_text(job_look(scene.second.pk).letter)
    [claim] = SlotClaim.objects.open().filter(slot__host__name="gpu-host-2", slot__index=0)
    release_claims([claim])
    expect(tile.locator(".slot-label")).to_have_text("free")
    expect(tile.locator(".mark")).to_have_text("")
    expect(page.locator("#figures")).to_contain_text("7 training, 0 starting or releasing")
    drain_host("gpu-host-2", "carol")
    expect(tile.locator(".slot-label")).to_have_text("draining, not offered")
    reading = GpuReading.objects.get(slot__host__name="gpu-host-1", slot__index=1)
    GpuReading.objects.filter(pk=reading.pk).update(utilisation_percent=7)
    live.publish(CLUSTER, "state", {"slots": {str(reading.slot): {"utilisation_percent": 7}}})
    expect(page.locator("[data-slot='gpu-host-1:1'] .slot-note")).to_have_text("7 % busy")
    resume_host("gpu-host-2", "carol")
    start(lock_job(scene.waiting.pk), [claim.slot], 1, why)
    expect(tile.locator(".slot-label")).to_have_text("digits-wide")
    expect(tile.locator(".slot-note")).to_have_text("starting")
    expect(tile.locator(".mark")).to_have_class(re.compile(rf"job-{scene.waiting.pk % 12} "))
    expect(page.locator("#figures")).to_contain_text("7 training, 1 starting or releasing")


def test_a_training_that_starts_while_one_looks_appears(page: Page, scene: Scene) -> None:
    page.goto("/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    why = Why(PlanReason.GRANTED, shares(2, "others_have", others_count=2, others_slots=6), "scheduler")
    add_point(scene.waiting, why, at=timezone.now(), slots=2, generation=1)

    chart = page.locator("[data-chart=gpus]")
    expect(chart.locator(".chart-legend")).to_contain_text("digits-wide")
    chart.get_by_role("button", name="Table").click()
    # Why comes by the job's own topic, which only its owner hears.
    expect(chart.locator("tbody tr").first).to_contain_text("2 of 8 GPUs: 2 other trainings have 6.")


def test_a_change_of_priority_is_seen_in_another_window(page: Page, scene: Scene) -> None:
    page.goto("/jobs/")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    change_job(scene.waiting.pk, JobChange(priority=9000), "alice")

    priority = page.locator(f"#jobs tr[data-job='{scene.waiting.pk}'] [data-field=priority]")
    expect(priority).to_have_text("9000")


def test_a_failure_shows_its_traceback_as_text(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    error = {"kind": "ValueError", "message": "<img src=x onerror=alert(1)>", "traceback": "Traceback: <script>"}

    with transaction.atomic():
        job = lock_job(scene.first.pk)
        why = Why(Reason.EXIT_NONZERO, message("failed", host="gpu-host-1", error="exit code 1"), "executor")
        transition(job, JobState.FAILED, why, error=error, finished_at=timezone.now(), slots=0)

    box = page.locator("#failure")
    expect(box).to_contain_text("<img src=x onerror=alert(1)>")
    assert box.locator("img").count() == 0
    expect(page.get_by_role("button", name="Stop training")).to_be_hidden()


def test_stopping_asks_first_and_names_what_is_lost(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    page.get_by_role("button", name="Stop training").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Its progress since the last checkpoint is lost")
    dialog.get_by_role("button", name="Stop training").click()

    expect(page.locator("h1 + .state")).to_have_attribute("data-state", "CANCELLING")


def test_every_chart_has_a_table_of_the_same(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    page.locator("#gpus-word").click()
    for name, rows in (("gpus", 4), ("metrics", 49)):
        chart = page.locator(f"[data-chart={name}]")
        chart.get_by_role("button", name="Table").click()
        assert chart.locator("tbody tr").count() >= rows
    expect(page.locator("[data-chart=gpus] tbody tr").first).to_contain_text("T2 digits-cnn has twice your priority")
    # Steps without a number are gaps in the line and said in the table.
    expect(page.locator("[data-chart=metrics] tbody")).to_contain_text("not a number")


def test_hovering_a_change_says_why(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    page.locator("#gpus-word").click()
    marker = page.locator("[data-chart=gpus] .scatterlayer .point").last
    marker.hover(force=True)

    hover = page.locator("[data-chart=gpus] .hovertext")
    expect(hover).to_contain_text(re.compile("twice your"))
    expect(hover).to_contain_text("training paused for 37 ms")


@pytest.mark.parametrize("kept", ["loss", "accuracy"])
def test_a_training_without_some_of_the_metrics_has_a_chart_of_the_others(page: Page, scene: Scene, kept: str) -> None:
    MetricPoint.objects.filter(job=scene.first).exclude(name=kept).delete()
    page.goto(f"/jobs/{scene.first.pk}/")
    # Beside it there is the strip of its GPUs.
    expect(page.locator("[data-chart=metrics] .scatterlayer .trace")).to_have_count(2)

    axes = page.evaluate("""() => Object.keys(document.querySelector('[data-chart=metrics] .chart-canvas').layout)
        .filter(name => name.startsWith('yaxis'))""")
    assert axes == ["yaxis" if kept == "loss" else "yaxis2", "yaxis20"]


def test_a_hidden_tab_asks_for_nothing_and_catches_up(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    sockets: list[WebSocket] = []
    page.on("websocket", lambda socket: sockets.append(socket))
    look = f"""async hidden => {{
        const {{ live }} = await {LIVE};
        live.hiddenMs = 0;
        Object.defineProperty(document, 'hidden', {{ value: hidden, configurable: true }});
        document.dispatchEvent(new Event('visibilitychange'));
    }}"""
    page.evaluate(look, True)
    page.wait_for_function(f"{LIVE}.then(({{live}}) => live.socket === null)")
    make_steps(scene.first, 821, 830)
    assert drawn_steps(page) == 820
    assert sockets == []
    page.evaluate(look, False)

    wait_for_step(page, 830)
    # One that took too long to open was closed and tried again.
    assert [socket.is_closed() for socket in sockets].count(False) == 1


def test_what_came_while_a_page_fetched_is_not_missed(page: Page, scene: Scene) -> None:
    """The answer is older than what the websocket brought meanwhile, and could not be applied."""
    open_job(page, scene.first)
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")
    answers: list[Route] = []
    # Once: where 826 comes before what is replayed, the chain breaks again and the page fetches anew.
    page.route(f"**/jobs/{scene.first.pk}/live.json", lambda route: answers.append(route), times=1)
    with page.expect_request("**/live.json"):
        page.evaluate(
            f"""job => {LIVE}.then(({{live}}) => {{
                const topic = live.topics.get(`job.${{job}}`);
                const [from_seq, seq] = [topic.seq + 5, topic.seq + 6];
                live.receive({{topic: topic.name, from_seq, seq, kind: 'append', data: {{}}}});
            }})""",
            scene.first.pk,
        )
    page.wait_for_function("() => true")
    old = answers[0].fetch()
    make_steps(scene.first, 821, 825)
    wait_for_step(page, 825)
    answers[0].fulfill(response=old)

    make_steps(scene.first, 826, 827)

    wait_for_step(page, 827)
    # One step in two is drawn, and the newest.
    steps = page.evaluate("document.querySelector('[data-chart=metrics] .chart-canvas').data[0].x")
    assert steps == sorted(set(steps))
    assert {822, 824} < set(steps)


def test_a_page_that_may_no_longer_be_seen_says_so(page: Page, scene: Scene, complaints: list[str]) -> None:
    page.route_web_socket("**/ws/live/", lambda socket: socket.close(code=1011))
    open_job(page, scene.first)
    dot = page.locator("#live-dot")
    expect(dot).to_have_attribute("data-status", "polling")
    page.context.clear_cookies()

    expect(dot).to_have_text("not live")
    assert {line for line in complaints if not _is_wanted(line)} <= {UNAUTHORIZED}
    complaints.clear()


#: Script that watches ten topics by functions that note what is read, and polls.
POLL_TEN = """({ live }) => {
    Object.assign(window, { polled: [], reading: 0, most: 0 });
    for (let number = 0; number < 10; number += 1) {
        live.watch({ name: `job.${900000 + number}`, seq: 0, read: async () => {
            window.most = Math.max(window.most, (window.reading += 1));
            await new Promise((resolve) => setTimeout(resolve, 20));
            window.reading -= 1;
            window.polled.push(number);
            return { seq: 0, state: {} };
        } });
    }
    live.startPolling();
}"""


def test_polling_asks_for_a_few_of_many_topics_in_each_turn(page: Page, scene: Scene) -> None:
    page.route_web_socket(re.compile("/ws/live/"), lambda socket: socket.close())
    page.goto("/jobs/")
    page.evaluate(f"{LIVE}.then({POLL_TEN})")
    page.wait_for_function("() => new Set(window.polled).size === 10")
    assert page.evaluate("window.most") <= 4
