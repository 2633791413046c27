"""Flame graph and trace on a training's page: the buttons, the drawing and the tables."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from playwright.sync_api import Page, expect
from tidepool.protocol import (
    FlameAnswer,
    RecordingKind,
    SampledFunction,
    SampledThread,
    TraceAnswer,
    TracedOperator,
    to_json,
)
from tidepool.recordings.requests import ANSWER_FILES

from jobs.files.job_folder import job_folder
from jobs.files.recordings import recording_of
from jobs.models import Job
from tests.scene import Scene

#: Home of the web process, which started before any test made a home of its own.
SITE_HOME = Path(django_settings.TIDEPOOL_HOME)


@pytest.fixture(autouse=True)
def results(scene: Scene, settings: Any, complaints: list[str]) -> Iterator[None]:
    """The test writes what ranks would, where the web process reads it."""
    settings.TIDEPOOL_RESULTS_ROOT = SITE_HOME / "results"
    yield
    shutil.rmtree(SITE_HOME / "results", ignore_errors=True)
    assert complaints == []


def answer(job: Job, kind: RecordingKind, answer: FlameAnswer | TraceAnswer) -> None:
    job = Job.objects.get(pk=job.pk)
    recording = recording_of(job, kind)
    assert recording is not None
    folder = job_folder(job).attempt(recording.attempt) / "log" / f"{recording.member_id}.{recording.host}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ANSWER_FILES[kind]).write_text(json.dumps(to_json(answer)))


def flame(job: Job, *, is_native: bool = False) -> FlameAnswer:
    code, torch = job_folder(job).code, "/venv/lib/python3.11/site-packages/torch"
    functions = [
        SampledFunction("main", f"{code}/train.py", 12),
        SampledFunction("Digits.__getitem__", f"{code}/dataset.py", 41),
        SampledFunction("_BaseDataLoaderIter.__next__", f"{torch}/utils/data/dataloader.py", 700),
        SampledFunction("Tensor.backward", f"{torch}/_tensor.py", 500),
    ]
    stacks = [[0, 2, 1], [0, 2], [0, 3], [0]]
    if is_native:
        functions.append(SampledFunction("torch::autograd::Engine::execute", f"{torch}/lib/libtorch_cpu.so", 0, True))
        stacks[2] = [0, 3, 4]
    main = SampledThread("MainThread", True, stacks, [280, 40, 150, 30])
    number = 2 if is_native else 1
    return FlameAnswer(number, seconds=10.0, samples=500, functions=functions, threads=[main], is_native=is_native)


def test_a_flame_graph_and_a_trace_are_recorded_and_shown(page: Page, scene: Scene) -> None:
    page.goto(f"/jobs/{scene.first.pk}/#why-slow")
    page.wait_for_function("() => document.documentElement.dataset.ready")
    page.get_by_role("button", name="Record a flame graph").click()
    expect(page.get_by_text("Rank 0 records for 10 s.")).to_be_visible()
    answer(scene.first, "flame", flame(scene.first))
    expect(page.get_by_text("rank 0 is in dataset.py line 41, in Digits.__getitem__.")).to_be_visible()
    drawing = page.get_by_role("img", name="Flame graph of the main thread")
    expect(drawing.locator("svg")).to_have_count(4)
    page.get_by_text("Functions as a table").click()
    row = page.get_by_role("row", name="Digits.__getitem__")
    expect(row).to_contain_text("56.0 %")

    page.get_by_label("Functions of C").check()
    page.get_by_role("button", name="Record a flame graph").click()
    expect(page.get_by_text("Rank 0 records for 10 s.")).to_be_visible()
    answer(scene.first, "flame", flame(scene.first, is_native=True))
    expect(drawing.locator("svg")).to_have_count(5)
    expect(drawing.get_by_text("torch::autograd::Engine::execute", exact=True)).to_be_visible()
    expect(page.locator(".flame-swatch.flame-native")).to_be_visible()
    expect(page.get_by_label("Functions of C, too")).to_be_checked()

    page.get_by_label("Steps").fill("2")
    page.get_by_role("button", name="Record a trace").click()
    expect(page.get_by_text("Rank 0 records 2 steps")).to_be_visible()
    operators = [TracedOperator("aten::mm", False, 120, 0.21), TracedOperator("aten::copy_", False, 40, 0.04)]
    trace = TraceAnswer(3, steps=2, seconds=0.4, operators=operators, cpu_seconds=0.31, file_bytes=70_000)
    answer(scene.first, "trace", trace)
    expect(page.get_by_text("operators ran for 78 % of the time")).to_be_visible()
    expect(page.get_by_role("row", name="aten::mm")).to_contain_text("210.0 ms")
    expect(page.get_by_role("link", name="Download for speedscope")).to_be_visible()
    expect(page.get_by_text("What you entered here")).to_have_count(0)
    page.reload()
    expect(page.get_by_text("operators ran for 78 % of the time")).to_be_visible()
    expect(page.get_by_text("What you entered here")).to_have_count(0)
