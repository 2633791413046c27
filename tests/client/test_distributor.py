"""TorchDistributor: what it asks of the site, and what it makes of the answers."""

import inspect
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidepool import distributor
from tidepool.client import patience
from tidepool.client.api import Client
from tidepool.client.errors import InvalidRequest, Unreachable
from tidepool.client.following import Follower
from tidepool.client.rows import LogLine
from tidepool.client.training import Job as ClientJob
from tidepool.distributor import TorchDistributor

from jobs.models import Job
from tests.factories import host_with_slots
from tests.scene import Scene
from workers.models import ResourceGroup

pytestmark = pytest.mark.django_db


def _train(rate: float) -> float:
    return rate


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "TorchDistributor"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "work" / "train.py"
    file.parent.mkdir()
    file.write_text("print('hello')\n")
    return file


def test_it_is_made_as_pysparks() -> None:
    """The first three parameters with their defaults, in pyspark 3.4 to 4.3."""
    parameters = list(inspect.signature(TorchDistributor).parameters.values())
    found = [(each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert found == [("num_processes", 1), ("local_mode", True), ("use_gpu", True)]


def test_attributes(alices: Client, scene: Scene) -> None:
    made = TorchDistributor(2, False, client=alices)
    assert (made.num_processes, made.local_mode, made.use_gpu, made.num_tasks) == (2, False, True, 2)
    assert made.input_params == {"num_processes": 2, "num_tasks": 2, "local_mode": False, "use_gpu": True}
    assert made.logger is logging.getLogger("TorchDistributor")


_NOTEBOOK = """
import logging
from tidepool.distributor import TorchDistributor, _logger
_logger().info("before")
logging.basicConfig(format="root: %(message)s")
_logger().info("after")
"""


def test_its_lines_are_shown_once_also_where_logging_is_set_up_later() -> None:
    done = subprocess.run([sys.executable, "-c", _NOTEBOOK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines() == ["before", "root: after"]


@pytest.mark.parametrize("given", [{"num_processes": 0}, {"num_processes": -1}, {"num_processes": True}])
def test_a_number_that_cannot_be(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="num_processes has to be a positive integer"):
        TorchDistributor(**given)


def test_a_minimum_above_the_number() -> None:
    with pytest.raises(ValueError, match="more than num_processes"):
        TorchDistributor(2, min_processes=3)


@pytest.mark.parametrize(
    ("local_mode", "most", "place"), [(True, 4, "one host of"), (False, 8, "the instance group has")]
)
def test_too_many_processes_are_lowered_with_one_warning(
    alices: Client, scene: Scene, caplog: pytest.LogCaptureFixture, local_mode: bool, most: int, place: str
) -> None:
    assert TorchDistributor(99, local_mode, client=alices).num_processes == most
    (warning,) = _said(caplog)
    assert f"lowered from 99 to {most}" in warning
    assert place in warning


def test_hosts_of_other_groups_do_not_count(alices: Client, scene: Scene) -> None:
    host_with_slots("large", 9)
    own = ResourceGroup.objects.get(name="ComputeHostsGPU")
    own.requirement = "ngpus < 9"
    own.save(update_fields=["requirement"])
    assert TorchDistributor(99, client=alices).num_processes == 4


@pytest.mark.parametrize(
    ("given", "engine", "slots", "placement"),
    [
        ({}, "fixed", (1, 1), "any"),
        ({"num_processes": 3}, "fixed", (3, 3), "one_host"),
        ({"num_processes": 3, "local_mode": False}, "fixed", (3, 3), "any"),
        ({"num_processes": 3, "elastic": True}, "elastic", (1, 3), "any"),
        ({"num_processes": 3, "min_processes": 2}, "elastic", (2, 3), "any"),
    ],
)
def test_what_it_submits(
    alices: Client,
    scene: Scene,
    script: Path,
    given: dict[str, Any],
    engine: str,
    slots: tuple[int, int],
    placement: str,
) -> None:
    made = TorchDistributor(**given, name="mine", priority=6000, client=alices)
    for job in (made.submit(_train, 0.1), made.submit(str(script)), made.submit(script)):
        row = Job.objects.get(pk=job.id)
        assert (row.name, row.priority, row.model.engine) == ("mine", 6000, engine)
        assert (row.min_slots, row.max_slots, row.placement) == (*slots, placement)


def test_arguments_of_a_script_are_made_text(alices: Client, scene: Scene, script: Path) -> None:
    job = TorchDistributor(client=alices).submit(str(script), "--rate", 0.1, 3)
    assert Job.objects.get(pk=job.id).arguments == ["--rate", "0.1", "3"]


def test_what_is_refused_before_anything_is_queued(alices: Client, scene: Scene, script: Path) -> None:
    made, before = TorchDistributor(client=alices), Job.objects.count()
    with pytest.raises(ValueError, match=r"takes no keyword arguments \(epochs\)"):
        made.run(str(script), epochs=3)
    with pytest.raises(InvalidRequest, match=r"There is no .*nowhere\.py"):
        made.run(str(script.with_name("nowhere.py")))
    with pytest.raises(TypeError, match="neither a function nor the path"):
        made.run(5)  # type: ignore[arg-type]
    assert Job.objects.count() == before


def test_without_gpus_they_are_hidden_and_it_says_so(
    alices: Client, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    job = TorchDistributor(use_gpu=False, environment={"MINE": "1"}, client=alices).submit(_train, 0.1)
    assert Job.objects.get(pk=job.id).environment == {"MINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    assert "holds its GPUs, hidden from it" in caplog.text


def test_without_gpus_their_number_limits_nothing(
    alices: Client, scene: Scene, script: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = TorchDistributor(99, use_gpu=False, client=alices)
    assert (made.num_processes, made.described) == (99, "local training with 99 processes")
    assert "holds one GPU for all processes" in caplog.text
    for job in (made.submit(_train, 0.1), made.submit(script, "--rate", 0.1)):
        row = Job.objects.get(pk=job.id)
        assert (row.model.engine, row.max_slots, row.placement) == ("single", 1, "any")
        assert row.environment == {"CUDA_VISIBLE_DEVICES": ""}
    assert (row.model.entry_point, row.arguments) == ("train_on_cpus.py", ["--rate", "0.1"])
    assert TorchDistributor(99, use_gpu=False, elastic=True, client=alices).num_processes == 4, "a GPU for each"


@pytest.fixture
def running(alices: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> TorchDistributor:
    """One whose run follows a training that is over."""
    made = TorchDistributor(2, client=alices)
    monkeypatch.setattr(made, "submit", lambda *given: alices.job(scene.done.pk))
    monkeypatch.setattr(patience.time, "sleep", lambda seconds: None)
    return made


def _play(monkeypatch: pytest.MonkeyPatch, *looks: list[LogLine | BaseException]) -> None:
    """Let these be the news, connection after connection."""
    left = list(looks)

    def changes(follower: Follower) -> Iterator[LogLine]:
        for each in left.pop(0):
            if isinstance(each, BaseException):
                raise each
            yield each

    monkeypatch.setattr(distributor, "Follower", type("Played", (Follower,), {"changes": changes}))


def test_a_lost_connection_ends_nothing(
    running: TorchDistributor,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, again = LogLine("one", 1, "a"), LogLine("two", 1, "a"), LogLine("one", 2, "b")
    monkeypatch.setattr(patience, "TELL_AFTER", 0.0)
    _play(monkeypatch, [first, Unreachable("gone")], [Unreachable("gone")], [second, again])
    assert running.run(_train, 0.1) is None
    assert capsys.readouterr().out == "one\ntwo\none\n"
    said = _said(caplog)
    assert [line.partition(" ")[0] for line in said] == ["job", "Started", "http://testserver", "---", "Finished"]
    assert "Started local training with 2 processes" in said
    assert "--- attempt 2, b ---" in said


def test_an_interrupt_cancels_and_says_so(
    running: TorchDistributor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = []
    monkeypatch.setattr(ClientJob, "cancel", lambda self: cancelled.append(self.id))
    _play(monkeypatch, [KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        running.run(_train, 0.1)
    assert len(cancelled) == 1
    assert "is being cancelled. Ctrl-C again leaves it to that." in caplog.text


def test_a_second_interrupt_leaves_it_to_its_end(
    running: TorchDistributor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = []

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ClientJob, "cancel", lambda self: cancelled.append(self.id))
    monkeypatch.setattr(ClientJob, "wait", interrupted)
    _play(monkeypatch, [KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        running.run(_train, 0.1)
    assert len(cancelled) == 1
    assert _said(caplog)[-1].endswith("Ctrl-C again leaves it to that.")
