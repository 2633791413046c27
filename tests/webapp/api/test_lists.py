"""Lists come in pages, and a page costs the same number of queries however many rows it has."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import Checkpoint
from tests.factories import (
    DatasetVersionFactory,
    InstanceGroupFactory,
    JobFactory,
    ModelTemplateFactory,
    RegisteredModelVersionFactory,
    ResourceGroupFactory,
    host_with_slots,
)

pytestmark = pytest.mark.django_db

LISTS = [
    *("datasets/", "templates/", "models/", "jobs/", "checkpoints/", "hosts/", "slots/", "resource-groups/"),
    "instance-groups/",
]


def _rows(number: int) -> None:
    for _ in range(number):
        DatasetVersionFactory()
        RegisteredModelVersionFactory(template=ModelTemplateFactory())
        facts = {"attempt": 1, "step": 1, "epoch": 1, "path": "p", "size_bytes": 1, "sha256": "0"}
        Checkpoint.objects.create(job=JobFactory(), created_at=timezone.now(), **facts)
        group = ResourceGroupFactory(selection="static")
        InstanceGroupFactory(resource_group=group)
    for index in range(number):
        group.hosts.add(host_with_slots(f"host-{number}-{index}", 2))


@pytest.mark.parametrize("what", LISTS)
def test_more_rows_cost_no_more_queries(carol_api, what):
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert carol_api.get(f"/api/v1/{what}").json()["results"]
        return len(captured)

    _rows(2)
    few = queries()
    _rows(8)
    assert queries() == few
    assert few <= 16


@pytest.mark.parametrize("what", LISTS)
def test_pages_lead_through_all_rows_once(carol_api, what):
    _rows(5)
    whole = carol_api.get(f"/api/v1/{what}?page_size=1000").json()
    assert whole["next"] is None
    seen = []
    address = f"/api/v1/{what}?page_size=2"
    while address:
        page = carol_api.get(address).json()
        assert len(page["results"]) <= 2
        seen += page["results"]
        address = page["next"]
    assert seen == whole["results"]
    assert len(seen) >= 5


def test_jobs_by_state_and_text(carol_api):
    JobFactory(name="needle", state="RUNNING")
    JobFactory(name="hay")
    for query in ("state=RUNNING", "search=needle"):
        assert [job["name"] for job in carol_api.get(f"/api/v1/jobs/?{query}").json()["results"]] == ["needle"]


def test_checkpoints_of_a_job(alice, alice_api):
    job = JobFactory(owner=alice)
    for step in (10, 20):
        Checkpoint.objects.create(
            job=job,
            attempt=1,
            step=step,
            epoch=1,
            path=f"{step}",
            size_bytes=1,
            sha256="0",
            created_at=job.submitted_at,
        )
    page = alice_api.get(f"/api/v1/jobs/{job.pk}/checkpoints/").json()
    assert [checkpoint["step"] for checkpoint in page["results"]] == [20, 10]
