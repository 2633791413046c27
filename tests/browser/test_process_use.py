"""Why this speed of a program whose time is not told apart: what its processes use."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobs.control.gpu_spans import SPAN, HostUse, Span, store
from jobs.gpu_time import cuts, to_ms
from jobs.models import Job, SlotClaim
from models_registry.models import RegisteredModelVersion
from tests.browser.test_accessibility import violations
from tests.scene import Scene
from workers.models import Host

#: Folder for pictures; "": none are taken.
FOLDER = os.environ.get("TIDEPOOL_PICTURES", "")
_MEBIBYTE = 2**20


@pytest.fixture
def program(scene: Scene) -> Job:
    job = scene.first
    RegisteredModelVersion.objects.filter(pk=job.model_id).update(engine=RegisteredModelVersion.Engine.SINGLE)
    Host.objects.update(cores=8.0, usable_memory_bytes=2**34)
    end = to_ms(timezone.now())
    for number, claim in enumerate(SlotClaim.objects.filter(job=job).select_related("slot")):
        for place, ends in enumerate(cuts(end - 300_000, end, SPAN)):
            swing = 1 + (place * 7 + number) % 5 / 5
            use = HostUse(0.9 * swing, 60 * _MEBIBYTE * swing, 1.5 * _MEBIBYTE)
            store(claim.slot.host_id, [Span(claim.pk, *ends, 35.0 * swing, None, use)])
    SlotClaim.objects.filter(job=job).update(claimed_at=timezone.now() - timedelta(minutes=10))
    return job


def test_a_program_shows_what_its_processes_use(page: Page, program: Job) -> None:
    page.goto(f"/jobs/{program.pk}/#why-slow")
    page.wait_for_function("() => document.documentElement.dataset.ready")
    part = page.locator("#why-slow")
    expect(part).to_contain_text("read")
    expect(part.get_by_role("img", name="Cores over time")).to_be_visible()
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
        part.get_by_role("img", name="Cores over time").scroll_into_view_if_needed()
        assert violations(page) == []
        if FOLDER:
            page.screenshot(path=Path(FOLDER, f"processes-{width}.png"), animations="disabled", full_page=width < 1000)
