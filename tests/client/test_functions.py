"""Functions as trainings, against the site's own views."""

import hashlib
from typing import Any

import cloudpickle
import pytest
from django.contrib.auth.models import User
from tidepool.client.api import Client
from tidepool.client.errors import InvalidRequest, JobFailed, NotAllowed
from tidepool.client.functions import submit_function
from tidepool.function_payload import VALUE_FACTS, VALUE_FILE, ValueFacts

from jobs.files.job_folder import job_folder
from jobs.models import Job
from tests.scene import Scene

pytestmark = pytest.mark.django_db


def _train(rate: float) -> float:
    return rate


def _leave(row: Job, value: object) -> None:
    """Leave a result as rank 0 does."""
    content = cloudpickle.dumps(value)
    folder = job_folder(row).attempt(row.run.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VALUE_FILE).write_bytes(content)
    (folder / VALUE_FACTS).write_text(ValueFacts("dict", len(content), hashlib.sha256(content).hexdigest()).to_json())


@pytest.mark.parametrize(
    ("asked", "engine", "slots"),
    [
        ({}, "single", (1, 1)),
        ({"processes": 3}, "fixed", (3, 3)),
        ({"as_torchrun": True}, "fixed", (1, 1)),
        ({"processes": 3, "elastic": True}, "elastic", (1, 3)),
        ({"processes": 3, "elastic": True, "min_processes": 2}, "elastic", (2, 3)),
    ],
)
def test_a_function_is_a_training(
    alices: Client, scene: Scene, asked: dict[str, Any], engine: str, slots: tuple[int, int]
) -> None:
    job = submit_function(alices, _train, (0.1,), name="mine", **asked)
    row = Job.objects.get(pk=job.id)
    assert (row.name, row.model.engine, row.dataset) == ("mine", engine, None)
    assert (row.min_slots, row.max_slots) == slots
    assert (row.model.entry_point, row.model.model.readers) == ("function.py", "owner")


def test_a_key_makes_one_training_of_it(alices: Client, scene: Scene) -> None:
    first, second = (submit_function(alices, _train, (0.1,), key="0123456789", name="mine") for _ in range(2))
    assert first.id == second.id


def test_nothing_is_queued_where_the_cluster_could_not_load_it(
    alices: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alices, "software", lambda: {"python": "3.99.1", "packages": {}})
    before = Job.objects.count()
    with pytest.raises(InvalidRequest, match=r"the cluster 3\.99"):
        submit_function(alices, _train, (0.1,))
    assert Job.objects.count() == before


def test_the_value_of_ones_own(alices: Client, scene: Scene) -> None:
    assert alices.job(scene.done.pk).value() is None
    _leave(scene.done, {"accuracy": 97.1})
    assert alices.job(scene.done.pk).value() == {"accuracy": 97.1}


def test_nobody_loads_what_another_user_has_pickled(client_of: Any, scene: Scene, carol: User) -> None:
    _leave(scene.done, {"accuracy": 97.1})
    job = client_of(carol).job(scene.done.pk)
    with pytest.raises(NotAllowed, match="is alice's"):
        job.value()
    assert cloudpickle.loads(job.value(raw=True)) == {"accuracy": 97.1}


def test_a_failure_ends_with_the_traceback(alices: Client, scene: Scene) -> None:
    with pytest.raises(JobFailed) as raised:
        alices.job(scene.failed.pk).value()
    assert raised.value.kind == "FileNotFoundError"
    assert isinstance(raised.value, RuntimeError), "as pyspark's, which programs catch"
    assert str(raised.value).startswith(f"Job {scene.failed.pk} is FAILED: ")
    assert str(raised.value).endswith(raised.value.traceback)
