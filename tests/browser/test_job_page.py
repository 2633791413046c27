"""A job's page as its owner uses it: tabs, actions and their dialogs."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Page, Route, expect
from tidepool.goodput.model import ThroughputParameters

from jobs import actions
from jobs.control.metrics import store_steps
from jobs.control.transition import Why, lock_job, record
from jobs.files.job_folder import job_folder
from jobs.messages import message
from jobs.models import InstanceGroup, Job, JobProfile, MetricPoint, Rank, SlotClaim, Validation
from jobs.states import JobState, Reason
from tests.factories import set_job
from tests.scene import Scene
from tests.waiting import wait_until
from workers.models import GpuReading

#: Home of the web process, which started before any test made a home of its own.
SITE_HOME = Path(django_settings.TIDEPOOL_HOME)
TABS = (
    *("Overview", "Logs", "Ranks", "GPUs", "Speed", "Why this speed", "Events", "Results & checkpoints"),
    *("Notes", "Parameters", "Code"),
)


@pytest.fixture(autouse=True)
def nothing_to_complain(complaints: list[str]) -> object:
    yield
    assert complaints == []


def open_job(page: Page, job: Job, tab: str = "") -> None:
    page.goto(f"/jobs/{job.pk}/{tab}")
    page.wait_for_function("() => document.documentElement.dataset.ready")


def test_a_tab_has_an_address_that_can_be_shared(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    page.get_by_role("tab", name="Events").click()
    shared = page.url
    page.goto("/")
    page.goto(shared)

    assert shared.endswith(f"/jobs/{scene.first.pk}/#events")
    expect(page.get_by_role("tab", name="Events")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel", name="Events")).to_contain_text("its maximum is 8")
    expect(page.get_by_role("tab", name="Events")).to_be_in_viewport()


def test_tabs_are_walked_by_keyboard(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    page.get_by_role("tab", name=TABS[0]).focus()
    for name in TABS[1:]:
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=name, exact=True)).to_be_focused()
        expect(page.get_by_role("tabpanel", name=name, exact=True)).to_be_visible()
    page.keyboard.press("Home")
    expect(page.get_by_role("tabpanel", name=TABS[0])).to_be_visible()


def test_suspending_says_that_nothing_is_lost_and_resuming_takes_its_place(page: Page, scene: Scene) -> None:
    Job.objects.filter(pk=scene.first.pk).update(state=JobState.PENDING)
    open_job(page, scene.first)
    page.get_by_role("button", name="Suspend training").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No progress is lost")
    dialog.get_by_role("button", name="Suspend training").click()

    expect(page.locator("h1 + .state")).to_have_attribute("data-state", "SUSPENDED")
    expect(page.get_by_role("button", name="Suspend training")).to_be_hidden()
    page.get_by_role("button", name="Resume training").click()
    expect(page.locator("h1 + .state")).to_have_attribute("data-state", "PENDING")
    assert list(scene.first.events.order_by("seq").values_list("reason", flat=True))[-2:] == [
        Reason.SUSPENDED_BY_USER,
        Reason.RESUMED_BY_USER,
    ]


def test_what_is_not_possible_says_why_and_does_nothing(page: Page, scene: Scene) -> None:
    set_job(scene.first, state=JobState.CANCELLING)
    open_job(page, scene.first)
    for name in ("Suspend training", "Stop training"):
        button = page.get_by_role("button", name=name)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", re.compile(r"\w"))
        button.dispatch_event("click")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="Clone training")).to_be_visible()


def test_what_has_ended_is_neither_suspended_nor_stopped(page: Page, scene: Scene) -> None:
    open_job(page, scene.done)
    expect(page.get_by_role("link", name="Clone training")).to_be_visible()
    for name in ("Suspend training", "Stop training"):
        expect(page.get_by_role("button", name=name)).to_be_hidden()


def test_the_facts_of_the_header_stand_at_even_distances(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    starts = page.locator(".job-figures dt").evaluate_all("all => all.map(each => each.getBoundingClientRect().left)")
    gaps = [right - left for left, right in pairwise(starts)]
    assert (len(gaps), max(gaps) - min(gaps) < 1) == (3, True)


@pytest.fixture
def results(scene: Scene, settings: Any) -> Iterator[None]:
    """The test writes what ranks would, where the web process reads it."""
    settings.TIDEPOOL_RESULTS_ROOT = SITE_HOME / "results"
    yield
    shutil.rmtree(SITE_HOME / "results", ignore_errors=True)


def write_log(job: Job, rank: int, text: str, stream: str = "stdout") -> None:
    """Write lines as a rank of the scene does."""
    row = Rank.objects.filter(job=job).order_by("id")[rank]
    folder = job_folder(job).attempt(row.attempt) / "log" / f"{row.member_id}.{row.host}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / stream).open("a") as file:
        file.write(text)


def test_a_log_is_followed_as_it_is_written(page: Page, scene: Scene, results: None) -> None:
    write_log(scene.first, 0, "epoch 1 \x1b[32mgood\x1b[0m\n")
    open_job(page, scene.first, "#logs")
    log = page.get_by_role("log", name="Log")
    expect(log).to_contain_text("epoch 1 good")
    expect(log.locator(".ansi-green")).to_have_text("good")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    page.route("**/logs/lines/**", lambda route: route.abort())
    write_log(scene.first, 0, "epoch 2\n")
    write_log(scene.first, 1, "<img src=x onerror=alert(1)>\x1b]8;;http://evil\x07\n", "stderr")

    expect(log).to_contain_text("epoch 2")
    expect(log).to_contain_text("<img src=x onerror=alert(1)>")
    assert log.locator("img, a").count() == 0
    expect(log.locator(".log-line").filter(has_text="epoch 2")).to_have_count(1)


def test_scrolling_up_pauses_and_reads_back_in_constant_memory(page: Page, scene: Scene, results: None) -> None:
    write_log(scene.first, 0, "".join(f"line {number} {'x' * 60}\n" for number in range(1, 12_001)))
    open_job(page, scene.first, "#logs")
    page.get_by_role("combobox", name="Rank", exact=True).select_option(label="rank 0 (gpu-host-1.0.1)")
    page.get_by_label("Stream").select_option("stdout")
    log, lines = page.get_by_role("log", name="Log"), page.locator("#log-text .log-line")
    expect(log).to_contain_text("line 12000 ")
    # Empty once this one log is there: until then it is the ends of several, which hold that line too.
    expect(page.locator("#log-note")).to_have_text("")
    box = page.locator("#log-text")
    for _ in range(40):
        # Read before scrolling: the earlier lines may be there before the next command is.
        first = lines.first.get_attribute("data-at")
        if first == "0":
            break
        box.evaluate("box => { box.scrollTop = 0; }")
        page.wait_for_function("at => document.querySelector('.log-line').dataset.at !== at", arg=first)

    expect(lines.first).to_have_text(re.compile("^line 1 x"))
    expect(page.get_by_role("button", name="Go to the end and follow")).to_have_attribute("aria-pressed", "false")
    assert lines.count() <= 2_000
    page.get_by_role("button", name="Go to the end and follow").click()
    expect(log).to_contain_text("line 12000 ")


def test_scrolling_while_another_log_loads_leaves_that_one_followed(page: Page, scene: Scene, results: None) -> None:
    for rank in (0, 1):
        write_log(scene.first, rank, "".join(f"rank {rank} line {number}\n" for number in range(1, 201)))
    open_job(page, scene.first, "#logs")
    page.get_by_label("Stream").select_option("stdout")
    log, box = page.get_by_role("log", name="Log"), page.locator("#log-text")
    expect(log).to_contain_text("rank 1 line 200")
    second = Rank.objects.filter(job=scene.first).order_by("id")[1]
    held: list[Route] = []
    page.route("**/logs/lines/**", lambda route: held.append(route))
    page.get_by_role("combobox", name="Rank", exact=True).select_option(f"1/{second.member_id}")
    expect(page.get_by_role("link", name="Download this log")).to_be_visible()
    box.evaluate("box => new Promise(done => { box.onscroll = done; box.scrollTop = 0; })")
    for route in held:
        route.continue_()
    page.unroute("**/logs/lines/**")

    expect(page.locator("#log-note")).to_have_text("")
    expect(page.get_by_role("button", name="Follow", exact=True)).to_have_attribute("aria-pressed", "true")
    write_log(scene.first, 1, "rank 1 line 201\n")
    expect(log.get_by_text("rank 1 line 201")).to_be_in_viewport()


def test_a_log_that_cannot_be_read_says_so(page: Page, scene: Scene, results: None, complaints: list[str]) -> None:
    write_log(scene.first, 0, "epoch 1\n")
    open_job(page, scene.first, "#logs")
    expect(page.get_by_role("log", name="Log")).to_contain_text("epoch 1")
    page.route("**/logs/lines/**", lambda route: route.abort())
    page.get_by_label("Stream").select_option("stderr")

    expect(page.locator("#log-note")).to_have_text("The log could not be read: select it again.")
    page.goto("about:blank")  # the page repeats its request until then
    complaints.clear()  # the browser's own, about the answers that were cut off


def test_a_search_finds_what_the_page_does_not_hold(page: Page, scene: Scene, results: None) -> None:
    filler = f"{'y' * 80}\n" * 5_000
    write_log(scene.first, 0, f"Needle one\n{filler}a \x1b[1mneed\x1b[0mle and a needle\n{filler}")
    write_log(scene.first, 2, "the last needle\n", "stderr")
    open_job(page, scene.first, "#logs")
    page.get_by_label("Search the whole log").fill("needle")
    count, current = page.locator("#log-count"), page.locator(".log-current")
    expect(count).to_have_text("1 of 4")
    expect(current).to_have_text("Needle one")

    held: list[Route] = []
    page.route("**/logs/search/**", lambda route: held.append(route))
    page.get_by_label("Search the whole log").press("Enter")
    page.get_by_role("button", name="Next match").click()
    wait_until(lambda: page.title() and len(held) == 2, "both are asked for")  # a call lets routes come in
    for route in held:
        route.continue_()
    page.unroute("**/logs/search/**")
    expect(count).to_have_text("3 of 4")
    expect(current).to_have_text("a needle and a needle")
    expect(current).to_be_in_viewport()
    page.get_by_role("button", name="Next match").click()
    expect(current).to_have_text("the last needle")
    page.get_by_role("button", name="Next match").click()
    expect(count).to_have_text("1 of 4")
    page.get_by_label("Search the whole log").press("Shift+Enter")
    expect(count).to_have_text("4 of 4")
    page.get_by_label("Search the whole log").fill("nowhere")
    expect(count).to_have_text("no match")


def test_why_is_reckoned_and_what_would_change_it(page: Page, scene: Scene) -> None:
    Job.objects.filter(pk=scene.waiting.pk).update(
        min_slots=4, reason_params=message("in_line", capacity=8, min_slots=4, missing=4, taken=8)
    )
    Job.objects.filter(name="bobs-secret").delete()
    # The others have all that they ask for, and one GPU is free.
    InstanceGroup.objects.update(policy="fifo")
    Job.objects.filter(pk=scene.first.pk).update(max_slots=3)
    Job.objects.filter(pk=scene.second.pk).update(max_slots=4)
    SlotClaim.objects.filter(job=scene.second).order_by("id")[2].delete()
    open_job(page, scene.waiting)
    page.get_by_text("Why, and what would change it").click()
    expect(page.locator("#why-terms")).to_contain_text("GPUs that the training cannot get")

    remedies = page.locator("#why-remedies li")
    expect(remedies.filter(has_text="A minimum of 1 GPU instead of 4: it would start now, on 1.")).to_have_count(1)
    page.get_by_role("button", name="Lower the minimum").click()
    question = page.get_by_role("dialog", name="Lower the minimum?")
    expect(question).to_contain_text("This training: 1 GPU at once.")
    question.get_by_role("button", name="Cancel").click()
    assert Job.objects.get(pk=scene.waiting.pk).min_slots == 4

    page.get_by_role("button", name="Lower the minimum").click()
    question.get_by_role("button", name="Lower the minimum").click()
    notice = page.locator("[data-notice]")
    expect(notice).to_contain_text("The training was changed. The scheduler applies the change at once.")
    assert Job.objects.get(pk=scene.waiting.pk).min_slots == 1
    notice.get_by_role("button", name="Undo").click()
    expect(notice).to_contain_text("was undone")
    assert Job.objects.get(pk=scene.waiting.pk).min_slots == 4


def test_events_are_filtered_and_say_who(page: Page, scene: Scene) -> None:
    open_job(page, scene.first, "#events")
    events = page.locator(".job-event")
    expect(events).to_have_count(4)
    expect(events.first).to_contain_text("by the scheduler")
    page.get_by_label("Show", exact=True).select_option("people")
    expect(page.get_by_text("No event matches")).to_be_visible()

    actions.change_job(scene.first.pk, actions.JobChange(priority=6000), "alice")

    expect(events).to_have_text(re.compile("from 5000 to 6000.*by alice"))
    page.get_by_label("Show", exact=True).select_option("")
    page.get_by_label("Containing").fill("its maximum is")
    expect(page.locator("#event-count")).to_have_text("1 of 5 events")


def test_ranks_say_what_their_gpus_do_and_the_end_is_foreseen(page: Page, scene: Scene) -> None:
    open_job(page, scene.first, "#ranks")
    row = page.locator("#rank-rows tr").last
    expect(row).to_contain_text("gpu-host-1")
    expect(row.locator("[data-label=GPU]")).to_have_text("0 (virtual)")
    GpuReading.objects.update(utilisation_percent=42.0)

    expect(row.locator("[data-label=Busy]")).to_have_text("42 %")
    expect(row.locator("[data-label=Memory]")).to_have_text("212 MiB")
    expect(page.locator("[data-field=eta]")).to_contain_text("left")


def test_a_notice_appears_while_one_looks(page: Page, scene: Scene) -> None:
    open_job(page, scene.first)
    expect(page.locator("#notice")).to_be_hidden()
    with transaction.atomic():
        set_job(scene.first, max_seconds=3600, ends_at=timezone.now() + timedelta(seconds=50), warned=True)
        told = message("limit_near", max_seconds=3600, seconds=50, grace=None)
        record(lock_job(scene.first.pk), Why(Reason.TIME_LIMIT, told, "scheduler"))

    expect(page.locator("#notice")).to_contain_text("The training is close to its time limit of 3600 s")


def test_a_validation_shows_how_many_samples_are_measured(page: Page, scene: Scene) -> None:
    Validation.objects.create(job=scene.first, trained=scene.done, split="testing")
    set_job(scene.first, step=0, progress=None, final_metrics={})
    MetricPoint.objects.filter(job=scene.first).delete()
    open_job(page, scene.first)
    measured = page.get_by_role("region", name="Validation of")
    expect(measured).to_contain_text("no sample yet")
    expect(page.locator("#live-dot")).to_have_attribute("data-status", "connected")

    now = timezone.now().timestamp()
    made = {"step": 1280, "epoch": 0, "cursor": 1280, "samples": 1, "world_size": 3, "generation": 1, "attempt": 1}
    record = {**made, "at": now, "progress": 1280 / 70_001, "samples_per_second": 2560.0}
    store_steps(Job.objects.get(pk=scene.first.pk), [record])

    expect(measured).to_contain_text("1280 of 70001 samples")
    expect(measured.get_by_role("progressbar")).to_have_js_property("value", 1280 / 70_001)
    expect(page.locator(".job-figures")).to_contain_text("2 % 1280 of 70001 samples")


def test_the_code_that_was_submitted_is_read_in_its_tab(page: Page, scene: Scene, results: None) -> None:
    folder = job_folder(scene.first).code
    (folder / "layers").mkdir(parents=True)
    (folder / "main.py").write_text("import layers  # <b>not markup</b>\n")
    (folder / "layers" / "conv.py").write_text("width = 64\n")
    open_job(page, scene.first)
    page.get_by_role("tab", name="Code").click()
    code = page.get_by_role("tabpanel", name="Code")
    expect(code.get_by_role("region", name="Text of main.py")).to_have_text("import layers  # <b>not markup</b>\n")
    code.get_by_role("link", name="layers/conv.py").click()

    expect(code.get_by_role("region", name="Text of layers/conv.py")).to_have_text("width = 64\n")
    expect(page.get_by_role("tab", name="Code")).to_have_attribute("aria-selected", "true")


def test_what_gpus_do_for_it_is_drawn_in_its_tab(page: Page, scene: Scene) -> None:
    fitted = asdict(ThroughputParameters(0.0, 0.01, 0.01, 0.0, 0.3, 0.0, 1.0))
    now = timezone.now()
    JobProfile.objects.create(
        job=scene.first, batch_size=64, parameters={"A": fitted}, largest_ranks=2, points=1, at=now
    )
    scene.first.throughput.create(
        gpu_model="A", hosts=1, ranks=2, micro_batch=32, compute_seconds=0.32, step_seconds=0.33, steps=80, at=now
    )
    open_job(page, scene.first, "#speed")
    panel = page.get_by_role("tabpanel", name="Speed")
    expect(panel).to_contain_text("The training was measured on up to 2 GPUs; dashed lines are extrapolated.")
    expect(panel.locator(".main-svg").first).to_be_visible()
    for axis in "xy":
        ticks = panel.locator(f".{axis}tick text").all_text_contents()
        numbers = [float(tick) for tick in ticks]
        assert len(ticks) > 2
        assert numbers == sorted(set(numbers)), "no number twice"
    panel.get_by_role("button", name="Table").click()
    expect(panel.get_by_role("table").get_by_role("row").filter(has_text="measured")).to_contain_text("3.03")


def test_the_logs_say_that_they_are_loading_and_what_failed(page: Page, scene: Scene, complaints: list[str]) -> None:
    held: list[Route] = []
    files = re.compile(r"/logs/files/")
    page.route(files, lambda route: held.append(route))
    open_job(page, scene.first, "#logs")
    box = page.locator("#log-text")
    expect(box).to_have_attribute("data-empty", "Loading the log …")
    expect(box).to_be_visible()
    expect(page.locator("#log-empty")).to_be_hidden()
    wait_until(lambda: bool(held))
    held.pop().abort()
    expect(box).to_have_attribute("data-empty", "The log could not be read: open this tab again.")
    complaints.clear()  # the browser's own, about the answer that was cut off
    page.unroute(files)
    page.get_by_role("tab", name="Ranks").click()
    page.get_by_role("tab", name="Logs").click()
    expect(box).not_to_have_attribute("data-empty", re.compile("could not"))


def test_parts_of_a_training_that_is_over_are_fetched_once(page: Page, scene: Scene) -> None:
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    def opened(job: Job) -> str:
        page.goto(f"/jobs/{job.pk}/#results")
        expect(page.locator("#result-files h2").first).to_be_visible()
        asked.clear()
        page.clock.run_for(20_000)
        return f"/jobs/{job.pk}/results/"

    part = opened(scene.first)
    wait_until(lambda: any(url.endswith(part) for url in asked))
    part = opened(scene.done)
    page.evaluate("fetch('/live/cluster.json')")  # comes after whatever the page has asked for
    assert not any(url.endswith(part) for url in asked), asked
