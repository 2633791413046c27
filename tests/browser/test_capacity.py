"""Every look of pages about hosts that come and go, and about GPUs that nobody uses."""

from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import Page, expect

from capacity.models import FleetChange, FleetState
from jobs.models import JobRun
from tests.browser.test_accessibility import looks_of
from tests.scene import Scene
from workers.models import Host


def test_looks_of_capacity_notices_and_idle_gpus(page: Page, scene: Scene, complaints: list[str]) -> None:
    now = timezone.now()
    why = "2 hosts more: 2 waiting trainings would take 12 GPUs now and 1 further host would add 5.2 GPUs of speed."
    FleetState.objects.create(
        name="spot", at=now, sentence=why, hosts=3, coming=2, wanted=2, most=10, spent_month=1234.5
    )
    FleetState.objects.create(name="on-demand", at=now, sentence="1 host: no more are wanted.", hosts=1, most=4)
    for minutes, action, state, hosts, note in (
        (1, "start", "COMING", [], "Launched 2 instances."),
        (30, "start", "FAILED", [], "/usr/bin/aws ended with code 254: InsufficientInstanceCapacity."),
        (90, "stop", "DONE", ["i-0af1e5c2b9d3"], ""),
    ):
        FleetChange.objects.create(
            fleet="spot", action=action, state=state, count=2, hosts=hosts, why=why, note=note,
            at=now - timedelta(minutes=minutes), ended_at=None if state == "COMING" else now,
        )  # fmt: skip
    Host.objects.filter(name="gpu-host-2").update(
        state="DRAINING", leaving_at=now + timedelta(seconds=90), leaving_why="AWS", drains_for_notice_since=now
    )
    JobRun.objects.filter(job=scene.first).update(idle_warned_at=now - timedelta(minutes=2))

    assert looks_of(page, "/capacity/") == []
    assert looks_of(page, "/hosts/") == []
    expect(page.get_by_text("The machine will be gone in")).to_be_visible()
    assert looks_of(page, f"/jobs/{scene.first.pk}/") == []
    page.get_by_role("button", name="Keep GPUs for an hour").click()
    expect(page.get_by_text("The training keeps its GPUs for an hour.")).to_be_visible()
    assert complaints == []
