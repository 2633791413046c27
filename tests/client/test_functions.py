"""Functions as trainings, against the site's own views."""

import hashlib
from typing import Any

import cloudpickle
import pytest
from django.contrib.auth.models import User
from IPython.core.interactiveshell import InteractiveShell
from tidepool.client.api import Client
from tidepool.client.errors import InvalidRequest, JobFailed, NotAllowed, TidepoolError
from tidepool.client.functions import submit_function
from tidepool.distributor import TorchDistributor
from tidepool.function_payload import VALUE_FACTS, VALUE_FILE, ValueFacts
from tidepool.notebook.magics import TidepoolMagics

from insights.api import cluster
from jobs.files.function_values import written_digest
from jobs.files.job_folder import job_folder
from jobs.models import Job, JobRun
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


def _needs_much() -> object:
    import tp_nowhere.layers  # type: ignore[import-not-found]
    from tp_absent import thing  # type: ignore[import-not-found]

    try:
        import tp_optional  # type: ignore[import-not-found]
    except ImportError:
        tp_optional = None
    return tp_nowhere, thing, tp_optional, cloudpickle


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tidepool.client.functions"]


def test_all_modules_that_the_cluster_lacks_are_named_before_the_queue(
    alices: Client, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    submit_function(alices, _needs_much)
    assert _told(caplog) == [
        "The cluster lacks tp_absent, tp_nowhere, which _needs_much imports. Name their packages in requirements, "
        "unless an administrator has added them to the hosts."
    ]
    caplog.clear()
    TorchDistributor(client=alices).submit(_needs_much)
    assert len(_told(caplog)) == 1
    caplog.clear()
    submit_function(alices, _train, (0.1,))
    assert _told(caplog) == []


def test_a_cell_names_the_modules_that_the_cluster_lacks(
    alices: Client, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    magics = TidepoolMagics(InteractiveShell())
    magics._client = alices
    magics.tidepool("--detach", "import tp_absent\nimport torch\nif torch:\n    import tp_optional\n")
    [told] = _told(caplog)
    assert told.startswith("The cluster lacks tp_absent, which cell imports. Name its package in requirements")


def _logs_a_model() -> None:
    import mlflow

    if mlflow.active_run():
        mlflow.xgboost.log_model(None, "model")


def test_a_site_with_mlflow_brings_what_its_client_needs_to_log_models(
    alices: Client, scene: Scene, caplog: pytest.LogCaptureFixture, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "importable_modules", lambda: frozenset({"torch"}))
    settings.TIDEPOOL_MLFLOW_SOCKET = "/nowhere/server.sock"
    submit_function(alices, _logs_a_model)
    settings.TIDEPOOL_MLFLOW_SOCKET = ""
    submit_function(alices, _logs_a_model)
    with_client, without = _told(caplog)
    assert with_client.startswith("The cluster lacks xgboost, which")
    assert without.startswith("The cluster lacks mlflow, pandas, xgboost, which")


def test_the_value_of_ones_own(alices: Client, scene: Scene) -> None:
    assert alices.job(scene.done.pk).value() is None
    _leave(scene.done, {"accuracy": 97.1})
    assert alices.job(scene.done.pk).value() == {"accuracy": 97.1}


def test_what_was_put_there_after_the_end_is_not_loaded(alices: Client, scene: Scene) -> None:
    """Another one changes the value and the digest beside it: only the site's record tells."""
    _leave(scene.done, {"accuracy": 97.1})
    JobRun.objects.filter(job=scene.done).update(value_sha256=written_digest(scene.done))
    assert alices.job(scene.done.pk).value() == {"accuracy": 97.1}
    _leave(scene.done, {"accuracy": 99.9})
    with pytest.raises(TidepoolError, match="was changed after its rank wrote it"):
        alices.job(scene.done.pk).value()
    JobRun.objects.filter(job=scene.done).update(value_sha256="")
    assert alices.job(scene.done.pk).value() is None


def test_a_digest_is_read_as_a_strangers_file(scene: Scene) -> None:
    assert written_digest(scene.done) == ""
    _leave(scene.done, 1)
    file = job_folder(scene.done).attempt(scene.done.run.attempt) / VALUE_FACTS
    assert written_digest(scene.done) == ValueFacts.from_text(file.read_text()).sha256
    for text in ("", "[]", "{}", '{"sha256": 7}', '{"sha256": "short"}', "[" * 100_000):
        file.write_text(text)
        assert written_digest(scene.done) == ""


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
