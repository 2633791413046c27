"""IBM's tutorial of elastic distributed training, steps 3 to 9, in a browser on a running stack, by the labels there.

TIDEPOOL_PICTURES=docs/user has it take the pictures of docs/user/tutorial.md, too.
"""

import itertools
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.datasets.cifar_files import write_cifar
from tests.journey.running_stack import ROOT, RunningStack, free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(2400)]

EXAMPLE = ROOT / "examples" / "resnet-cifar"
HOSTS = ("gpu-host-1", "gpu-host-2")
#: Samples: 100 in each of the five batches; in a step: 16 on each of 8 GPUs.
PER_BATCH, BATCH, STEPS_PER_EPOCH = 100, 16, 4
#: Least duration of the first training on all GPUs of an otherwise idle machine.
AT_LEAST_SECONDS = 30.0
#: Fraction of the first training that is done when the second is submitted: large enough that the second cannot
#: overtake it at any speed of the machine. With W for all work and `a` done alone, T2 has done 5/3 (W - a) as T1 ends.
HEAD_START = 0.5
PATIENCE_SECONDS = 600


@dataclass
class Tutorial:
    stack: RunningStack
    page: Page
    pictures: Path | None

    def picture(self, name: str) -> None:
        if self.pictures is not None:
            self.pictures.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=self.pictures / f"tutorial-{name}.png", animations="disabled")

    def choose(self, menu: str) -> None:
        self.page.get_by_role("navigation", name="Main").get_by_role("link", name=menu, exact=True).click()
        self.page.get_by_role("heading", level=1, name=menu, exact=True).wait_for()


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    home = Path(tempfile.mkdtemp(prefix="tidepool-"))
    running = RunningStack(home, free_port(), ("--hosts", "2", "--slots-per-host", "4", "--no-examples"))
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def tutorial(stack: RunningStack, browser: Browser) -> Iterator[Tutorial]:
    context = browser.new_context(
        base_url=stack.url, viewport={"width": 1200, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto("/login/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(stack.password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    page.wait_for_load_state()
    folder = os.environ.get("TIDEPOOL_PICTURES")
    yield Tutorial(stack, page, Path(folder) if folder else None)
    context.close()


def test_the_tutorial_as_ibm_has_it(tutorial: Tutorial) -> None:
    write_cifar(tutorial.stack.home / "data" / "cifar10", per_batch=PER_BATCH)
    shutil.copytree(EXAMPLE, tutorial.stack.home / "models" / "resnet-cifar")
    epochs = epochs_for(AT_LEAST_SECONDS)

    configure_compute_hosts(tutorial)
    create_compute_hosts_gpu(tutorial)
    create_and_deploy_instance_group(tutorial)
    create_dataset(tutorial)
    add_location(tutorial)
    add_model(tutorial, epochs)

    choose_training(tutorial, "T1")
    first = start_training(tutorial, "T1")
    wait_for_usage(tutorial, {"T1": 8})
    choose_training(tutorial, "T2")
    wait_until(lambda: job(tutorial, first)["progress"] >= HEAD_START, "T1's head start", PATIENCE_SECONDS)
    second = start_training(tutorial, "T2")
    wait_for_usage(tutorial, {"T1": 4, "T2": 4})
    update_priority(tutorial, "T2", 10_000)
    wait_for_usage(tutorial, {"T1": 3, "T2": 5})
    wait_until(lambda: job(tutorial, first)["state"] == "SUCCEEDED", "T1's end", PATIENCE_SECONDS)
    wait_for_usage(tutorial, {"T1": 0, "T2": 8})

    assert moments(tutorial) == [(8, 0), (4, 4), (3, 5), (0, 8)]
    picture_of_usage(tutorial, first)
    assert sizes(tutorial, first) == [1, 8, 4, 3], "as the ranks themselves reported, in one life"
    wait_until(lambda: job(tutorial, second)["finished_at"], "T2's end", PATIENCE_SECONDS)
    assert sizes(tutorial, second)[-3:] == [4, 5, 8]
    assert job(tutorial, first)["final_metrics"]["test_accuracy"] > 50


# --- 3: resource groups ---


def configure_compute_hosts(tutorial: Tutorial) -> None:
    page = tutorial.page
    tutorial.choose("Resource groups")
    page.get_by_role("link", name="ComputeHosts", exact=True).click()
    page.get_by_label("A fixed number").check()
    page.get_by_label("Slots on each host").fill("8")
    page.get_by_label("Static (List of Names)").check()
    for host in HOSTS:
        page.get_by_label(f"{host} is a member").check()
    expect(page.locator("[data-totals] [data-field=hosts]")).to_have_text("2")
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_text("The resource group ComputeHosts was changed").first).to_be_visible()
    expect(page.locator("[data-totals] [data-field=slots]")).to_have_text("16")


def create_compute_hosts_gpu(tutorial: Tutorial) -> None:
    page = tutorial.page
    tutorial.choose("Resource groups")
    page.get_by_role("link", name="Create a Resource Group").click()
    page.get_by_label("Resource group name").fill("ComputeHostsGPU")
    page.get_by_label("Advanced formula").check()
    page.get_by_label("Formula", exact=True).fill("ngpus")
    page.get_by_label("Static (List of Names)").check()
    for host in HOSTS:
        page.get_by_label(f"{host} is a member").check()
    page.get_by_role("button", name="Preferences").click()
    page.get_by_label("ngpus").check()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    expect(page.locator("#members tr[data-host=gpu-host-1] td[data-column=ngpus]")).to_have_text("4")
    expect(page.locator("[data-totals] [data-field=hosts]")).to_have_text("2")
    expect(page.locator("[data-totals] [data-field=slots]")).to_have_text("8")
    tutorial.picture("1-resource-group")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator("#resource-groups tr", has_text="ComputeHostsGPU")).to_contain_text("8 GPUs")


# --- 4: the instance group ---


def create_and_deploy_instance_group(tutorial: Tutorial) -> None:
    page = tutorial.page
    tutorial.choose("Instance groups")
    page.get_by_role("link", name="New", exact=True).click()
    template = page.get_by_role("listitem").filter(has_text="dli-sig-template-2-2-0")
    template.get_by_role("link", name=re.compile("^Use")).click()
    page.get_by_label("Instance group name").fill("sig-elastic")
    page.get_by_label("Execution user").fill("egoadmin")
    page.get_by_role("button", name="Configuration").click()
    dialog = page.get_by_role("dialog", name="Configuration")
    dialog.get_by_label("SPARK_EGO_APP_SCHEDULE_POLICY").select_option("fairshare")
    dialog.get_by_label("SPARK_EGO_ENABLE_PREEMPTION").select_option("true")
    tutorial.picture("2-configuration")
    dialog.get_by_role("button", name="Done").click()
    page.get_by_label("Resource group", exact=False).select_option(label="ComputeHostsGPU")
    page.get_by_role("button", name="Create and Deploy Instance Group").click()
    expect(page.get_by_text("2 of 2 hosts are ready, with 8 GPUs.")).to_be_visible()
    page.get_by_role("link", name="Continue to Instance Group").click()
    expect(page.locator("#now .state-word")).to_have_text("Started")


# --- 7: the dataset ---


def create_dataset(tutorial: Tutorial) -> None:
    page, folder = tutorial.page, tutorial.stack.home / "data" / "cifar10"
    tutorial.choose("Datasets")
    page.get_by_role("link", name="New dataset").click()
    page.get_by_role("link", name=re.compile("^Any")).click()
    page.get_by_label("Dataset name").fill("cifar10EDTpytorch")
    page.get_by_role("textbox", name=re.compile("^Training folder")).fill(str(folder / "train_db"))
    page.get_by_role("textbox", name=re.compile("^Testing folder")).fill(str(folder / "test_db"))
    tutorial.picture("3-dataset")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("heading", level=1, name="cifar10EDTpytorch").wait_for()


# --- 8: the model ---


def add_location(tutorial: Tutorial) -> None:
    page = tutorial.page
    tutorial.choose("Models")
    page.get_by_role("link", name="New model").click()
    page.get_by_role("link", name="Add location").first.click()
    page.get_by_label("Framework").select_option("PyTorch")
    page.get_by_label("Name", exact=True).fill("PytorchResnet")
    page.get_by_role("textbox", name=re.compile("^Path")).fill(str(tutorial.stack.home / "models" / "resnet-cifar"))
    page.get_by_label("Training script").fill("elastic-main.py")
    tutorial.picture("4-add-location")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("Model template has been added.").first).to_be_visible()


def add_model(tutorial: Tutorial, epochs: int) -> None:
    page = tutorial.page
    tutorial.choose("Models")
    page.get_by_role("link", name="New model").click()
    page.get_by_label("PyTorch-PytorchResnet").check()
    page.get_by_role("button", name="Next").click()
    page.get_by_label("Model name").fill("PytorchResnet")
    page.get_by_label("Training engine").select_option("elastic")
    page.get_by_label("Training dataset").fill("cifar10EDTpytorch")
    page.get_by_label("Learning rate policy").select_option("fixed")
    page.get_by_label("Base learning rate").fill("0.01")
    page.get_by_label("Optimizer type").select_option("Adam")
    page.get_by_label("Epochs").fill(str(epochs))
    page.get_by_label("Batch size").fill(str(BATCH))
    expect(page.get_by_text("Passed to the script through pth_parameter_mgr.").first).to_be_visible()
    tutorial.picture("5-model")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("heading", level=1, name="PytorchResnet").wait_for()


# --- 9: two trainings ---


def choose_training(tutorial: Tutorial, name: str) -> None:
    """Choose the training by the model's page."""
    page = tutorial.page
    tutorial.choose("Models")
    page.get_by_role("link", name="PytorchResnet", exact=True).click()
    page.get_by_role("link", name="Train this model").click()
    page.get_by_label("Name of the training").fill(name)
    page.get_by_label("At most").fill("8")
    expect(page.locator("#preview [data-field=gpus]")).to_contain_text("GPU")


def start_training(tutorial: Tutorial, name: str) -> int:
    """The number of the training."""
    page = tutorial.page
    if name == "T2":
        tutorial.picture("6-train")
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", level=1, name=name).wait_for()
    return int(page.url.rstrip("/").rsplit("/", 1)[-1])


def update_priority(tutorial: Tutorial, name: str, priority: int) -> None:
    page = tutorial.page
    tutorial.choose("Instance groups")
    page.get_by_role("link", name="sig-elastic", exact=True).click()
    page.get_by_role("tab", name="Trainings").click()
    expect(page.locator("#trainings").get_by_role("link", name=name)).to_be_visible()
    tutorial.picture("7-trainings")
    page.get_by_role("link", name="Show all in the list of trainings").click()
    page.get_by_label(f"Select {name}").check()
    page.get_by_role("spinbutton", name="Priority").fill(str(priority))
    page.get_by_role("button", name="Update Priority").click()
    page.get_by_role("button", name="Set the priority of 1 training").click()
    expect(page.get_by_text(f"now has the priority {priority}").first).to_be_visible()


# --- usage chart ---


def wait_for_usage(tutorial: Tutorial, sizes: dict[str, int]) -> None:
    """Wait like a person who looks at the chart until it shows this."""
    tutorial.page.goto("/usage/?range=15m&by=job")
    table = open_table(tutorial.page)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(all(row.get(name) == size for name, size in sizes.items()) for row in usage_rows(table)):
        assert time.monotonic() < deadline, f"not seen: {sizes}; {usage_rows(table)}"
        tutorial.page.wait_for_timeout(200)


def open_table(page: Page) -> Locator:
    chart = page.locator("[data-chart=usage-allocation]")
    button = chart.get_by_role("button", name="Table")
    if button.get_attribute("aria-pressed") != "true":
        button.click()
    return chart.locator(".chart-table table")


def usage_rows(table: Locator) -> list[dict[str, float]]:
    """The chart's table, newest first: GPUs by training."""
    cells: list[list[str]] = table.evaluate(
        "table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    heads, *rows = cells
    return [{name: float(text) for name, text in zip(heads[1:], row[1:], strict=True) if text.strip()} for row in rows]


def moments(tutorial: Tutorial) -> list[tuple[float, float]]:
    """Return the slots that both trainings held at once, in order; without the moments between."""
    rows = usage_rows(open_table(tutorial.page))
    wanted = [(8, 0), (4, 4), (3, 5), (0, 8)]
    found = [(row.get("T1", 0), row.get("T2", 0)) for row in reversed(rows)]
    seen: list[tuple[float, float]] = []
    for pair in found:
        if pair in wanted and pair not in seen:
            seen.append(pair)
    return seen


def picture_of_usage(tutorial: Tutorial, first: int) -> None:
    """The chart from the first training's submission on."""
    begun = job(tutorial, first)["submitted_at"][:16]
    until = datetime.now(UTC) + timedelta(minutes=1)
    tutorial.page.goto(f"/usage/?from={begun}&to={until:%Y-%m-%dT%H:%M}&by=job")
    tutorial.page.locator("[data-chart=usage-allocation] .chart-canvas svg").first.wait_for()
    tutorial.picture("8-usage")


def job(tutorial: Tutorial, number: int) -> dict[str, Any]:
    with tutorial.stack.api() as api:
        return dict(api.get(f"jobs/{number}/").json())


def sizes(tutorial: Tutorial, number: int) -> list[int]:
    """World sizes in order; it was never started again."""
    with tutorial.stack.api() as api:
        series = [point for point in api.get(f"jobs/{number}/allocation/").json() if point["slots"]]
    assert {point["attempt"] for point in series} == {1}
    return [size for size, _ in itertools.groupby(point["slots"] for point in series)]


def epochs_for(seconds: float) -> int:
    """Return the epochs that all GPUs together need at least `seconds` for, with each core as fast as one alone.

    Counted in CPU time, so that it does not matter what else the machine does meanwhile.
    """
    code = f"""
import sys, time, torch
sys.path.insert(0, {str(EXAMPLE)!r})
from small_resnet import SmallResNet
torch.set_num_threads(1)
model, images = SmallResNet(), torch.randn({BATCH}, 3, 32, 32)
def timed():
    begun = time.process_time()
    model(images).sum().backward()
    return time.process_time() - begun
print(min(timed() for _ in range(20)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    a_step = float(done.stdout) * 8 / min(8, os.cpu_count() or 1)
    return math.ceil(seconds / (a_step * STEPS_PER_EPOCH))
