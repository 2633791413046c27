"""Studies whose values a plug-in proposes: each call is a training, played here by a process that runs its script."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from tidepool.search_plugin import ANSWER_FILE, ASK_FILE, STATE_FILE

from core.errors import Conflict, NotAllowed, UserError
from core.file_sources import Upload
from jobs.files.job_folder import job_folder
from jobs.models import InstanceGroup, Job
from jobs.states import JobState, Reason
from models_registry.actions import delete_model, set_readers
from models_registry.models import RegisteredModel
from studies import actions
from studies.control.controller import active_studies, take_turn
from studies.models import PluginCall, SearchPlugin, Study, Trial
from studies.plugins import PluginRequest, delete_plugin, find_plugin, install_plugin
from tests.documents import example
from tests.factories import SlotClaimFactory, UserFactory, set_job
from tests.search_plugins import GRID, RANDOM, packed
from tests.studies.conftest import Create, end, turn
from tests.test_architecture import ROOT
from workers.models import Slot

_PATH = os.pathsep.join([str(ROOT / "runtime/compat/wmla_plugins"), str(ROOT / "runtime")])
#: Parameters as WMLA's clients describe them, and the same as a space.
PARAMETERS: list[dict[str, Any]] = [
    {"name": "lr", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.01, "maxDbVal": 0.1},
    {"name": "width", "type": "Discrete", "dataType": "INT", "discreteIntVal": [32, 64, 128]},
]
SPACE = {"lr": {"kind": "uniform", "low": 0.01, "high": 0.1}, "width": [32, 64, 128]}
LISTS: list[dict[str, Any]] = [
    {"name": "width", "type": "Discrete", "dataType": "INT", "discreateStrVal": [], "discreteIntVal": [32, 64]},
    {"name": "kind", "type": "Discrete", "dataType": "STR", "discreateStrVal": ["a", "b"]},
]

Install = Callable[..., SearchPlugin]


@pytest.fixture
def install(alice: User, home: Path) -> Install:
    def install(optimizer: Any = RANDOM, name: str = "mine", owner: User = alice, **changes: Any) -> SearchPlugin:
        content = optimizer if isinstance(optimizer, bytes) else packed(optimizer)
        return install_plugin(owner, PluginRequest(name, Upload("plugin.tar.gz", io.BytesIO(content)), **changes))

    return install


@pytest.fixture
def search(create: Create, install: Install) -> Callable[..., Study]:
    def search(optimizer: Any = RANDOM, **changes: Any) -> Study:
        options = changes.pop("plugin_options", {"random_seed": "7"})
        arguments = {"hyper_parameters": PARAMETERS, "options": options}
        return create(**{"space": SPACE, "plugin": install(optimizer), "plugin_arguments": arguments, **changes})

    return search


def open_call(study: Study) -> Job:
    call = study.plugin_calls.select_related("job__run", "job__owner", "job__model__model").get(state="ASKED")
    assert call.job is not None
    return call.job


def results_of(job: Job) -> Path:
    folder = job_folder(job).attempt(job.run.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(job: Job) -> str:
    """Run the call's script as its training would, and return its log."""
    ended = subprocess.run(
        [sys.executable, job.model.entry_point],
        cwd=job_folder(job).code,
        env={**os.environ, "RESULT_DIR": str(results_of(job)), "PYTHONPATH": _PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ended.returncode == 0:
        set_job(job, state="SUCCEEDED", finished_at=timezone.now())
    else:
        kind, _, message = ended.stderr.strip().splitlines()[-1].partition(": ")
        error = {"kind": kind, "message": message, "traceback": ended.stderr}
        set_job(job, state="FAILED", finished_at=timezone.now(), reason_code=Reason.EXIT_NONZERO, error=error)
    return ended.stdout


def answer(job: Job, content: Any) -> None:
    """End the call's training with this file, a text as it is."""
    text = content if isinstance(content, str) else json.dumps({"proposals": content})
    (results_of(job) / ANSWER_FILE).write_text(text)
    set_job(job, state="SUCCEEDED", finished_at=timezone.now())


def running(study: Study) -> list[Trial]:
    return list(study.trials.filter(state=Trial.State.RUNNING).select_related("job__run").order_by("number"))


def play(study: Study) -> None:
    """Run calls and end trials until the study is no longer running."""
    for _ in range(40):
        turn(study)
        if study.state != Study.State.RUNNING:
            return
        if study.plugin_calls.filter(state="ASKED").exists():
            run(open_call(study))
            continue
        for trial in running(study):
            end(trial, final_metrics={"loss": trial.values["width"] / 100})
    raise AssertionError("the study does not end")


class TestCalls:
    def test_a_call_is_an_ordinary_training_of_the_owner(self, search: Callable[..., Study], alice: User) -> None:
        study = turn(search(options={"max_slots": 4, "priority": 4321}))
        job = open_call(study)
        assert (job.owner, job.instance_group, job.priority) == (alice, study.instance_group, 4321)
        assert (job.model.engine, job.min_slots, job.max_slots) == ("single", 1, 1)
        assert (job.bundle, job.bundle_rank) == (study.pk, 1000)
        assert job.name == "widths, proposals 1"
        asked = json.loads((job_folder(job).code / ASK_FILE).read_text())
        assert asked == {
            "name": "mine",
            "hyper_parameters": PARAMETERS,
            "options": {"random_seed": "7"},
            "objective": "minimize",
            "metric": "loss",
            "log_level": "INFO",
            "samples": 2,
            "results": [],
            "state": None,
        }
        assert not study.trials.exists()

    def test_a_random_search_goes_on_where_it_was(self, search: Callable[..., Study], home: Path) -> None:
        # Five draws in three calls are those of one generator.
        study = search(trials=5)
        play(study)
        assert study.state == Study.State.FINISHED
        assert study.reason.startswith("All 5 trials are over. Trial ")
        drawn = subprocess.run(
            [sys.executable, "-c", _ONE_PROCESS.format(values=[32, 64, 128])],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        values = [trial.values for trial in study.trials.order_by("number")]
        assert [[each["lr"], each["width"]] for each in values] == json.loads(drawn.stdout)
        assert [call.told for call in study.plugin_calls.order_by("number")] == [[], [0, 1], [2, 3]]

    def test_a_plug_in_that_keeps_its_place_in_an_attribute_tries_each_point_once(
        self, search: Callable[..., Study]
    ) -> None:
        arguments = {"hyper_parameters": LISTS, "options": {}}
        study = search(GRID, trials=None, space={"width": [32, 64], "kind": ["a", "b"]}, plugin_arguments=arguments)
        play(study)
        points = [(trial.values["width"], trial.values["kind"]) for trial in study.trials.order_by("number")]
        assert points == [(32, "a"), (32, "b"), (64, "a"), (64, "b")]
        assert study.state == Study.State.FINISHED
        assert study.reason.startswith("The plug-in proposes no more values. Trial 0 is the best")

    def test_it_is_told_what_became_of_its_proposals_and_nothing_twice(
        self, search: Callable[..., Study], alice: User
    ) -> None:
        study = turn(search(trials=6))
        run(open_call(study))
        first, second = running(turn(study))
        end(first, final_metrics={"loss": 0.5})
        end(second, "FAILED", reason_code=Reason.EXIT_NONZERO, error={"kind": "KeyError", "message": "'x'"})
        job = open_call(turn(study))
        told = json.loads((job_folder(job).code / ASK_FILE).read_text())
        assert [(one["id"], one["state"], one["metricVal"]) for one in told["results"]] == [
            (0, "FINISHED", 0.5),
            (1, "FAILED", None),
        ]
        assert told["results"][0]["values"] == first.values
        assert Path(told["state"]).name == STATE_FILE
        assert "told [(0, 0.5), (1, None)]" in run(job)
        [third, _] = running(turn(study))
        end(third, final_metrics={"loss": 0.1})
        turn(study)
        assert study.plugin_calls.get(number=2).told == [2]

    def test_there_is_one_call_at_a_time_and_none_without_a_place(self, search: Callable[..., Study]) -> None:
        study = search()
        for _ in range(3):
            turn(study)
        assert Job.objects.count() == 1
        run(open_call(study))
        for _ in range(3):
            turn(study)
        assert (len(running(study)), study.plugin_calls.count()) == (2, 1)

    def test_fewer_proposals_than_wanted_wait_for_a_result(self, search: Callable[..., Study]) -> None:
        study = turn(search(at_once=3))
        answer(open_call(study), [{"lr": 0.05, "width": 64}])
        for _ in range(3):
            turn(study)
        assert (len(running(study)), study.plugin_calls.count()) == (1, 1)
        end(running(study)[0], final_metrics={"loss": 0.5})
        assert open_call(turn(study))

    def test_a_users_own_values_come_first(self, search: Callable[..., Study], alice: User) -> None:
        study = search(trials=3)
        actions.enqueue(alice, study.pk, [{"lr": 0.02, "width": 32}])
        turn(study)
        assert [trial.values for trial in running(study)] == [{"lr": 0.02, "width": 32}]
        assert study.plugin_calls.get().samples == 1

    def test_pages_lead_from_the_study_to_the_call_and_back(
        self, search: Callable[..., Study], alice_client: Client
    ) -> None:
        study = turn(search())
        job = open_call(study)
        page = " ".join(alice_client.get(f"/studies/{study.pk}/").content.decode().split())
        assert "The search algorithm <strong>mine</strong> proposes the values." in page
        assert f'href="/jobs/{job.pk}/"' in page
        page = " ".join(alice_client.get(f"/jobs/{job.pk}/").content.decode().split())
        assert f'Asks the search algorithm of study <a href="/studies/{study.pk}/">widths</a>' in page


class TestRestarts:
    def test_a_controller_that_died_before_its_rows_were_stored_asks_again_once(
        self, search: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study = search()
        with monkeypatch.context() as patch:
            patch.setattr(PluginCall.objects, "create", _killed)
            with pytest.raises(KeyboardInterrupt):
                take_turn(study.pk, timezone.now())
        assert not Job.objects.exists()
        turn(study)
        turn(study)
        assert Job.objects.count() == 1

    def test_an_answer_is_queued_once(self, search: Callable[..., Study], monkeypatch: pytest.MonkeyPatch) -> None:
        study = turn(search())
        run(open_call(study))
        with monkeypatch.context() as patch:
            patch.setattr("studies.control.plugin_calls._close", _killed)
            with pytest.raises(KeyboardInterrupt):
                take_turn(study.pk, timezone.now())
        assert not study.trials.exists()
        turn(study)
        assert (study.trials.count(), study.plugin_calls.get().proposed) == (2, 2)

    def test_a_lost_call_is_repeated_with_the_same_question(self, search: Callable[..., Study]) -> None:
        study = turn(search())
        questions = []
        for _ in range(3):
            job = open_call(study)
            questions.append((job_folder(job).code / ASK_FILE).read_text())
            set_job(job, state="FAILED", reason_code=Reason.HOST_LOST, finished_at=timezone.now())
            turn(study)
        assert len(set(questions)) == 1
        assert (study.state, study.plugin_failed) == (Study.State.PAUSED, True)
        assert study.reason.startswith("The plug-in mine failed: ")

    def test_a_stop_ends_the_call(self, search: Callable[..., Study], alice: User) -> None:
        study = turn(search())
        job = open_call(study)
        actions.stop(alice, study.pk)
        job.refresh_from_db()
        assert (job.state, study.plugin_calls.get().state) == (JobState.CANCELLED, "FAILED")
        actions.restart(alice, study.pk)
        assert open_call(turn(study)) != job

    def test_a_time_limit_ends_the_call(self, search: Callable[..., Study]) -> None:
        study = turn(search(minutes=1))
        job = open_call(study)
        Study.objects.filter(pk=study.pk).update(created_at=timezone.now() - timedelta(minutes=2))
        turn(study)
        assert active_studies().filter(pk=study.pk).exists()
        turn(study)
        job.refresh_from_db()
        assert (study.state, job.state) == (Study.State.FINISHED, JobState.CANCELLED)
        assert not active_studies().exists()


def _killed(*args: Any, **given: Any) -> None:
    raise KeyboardInterrupt


_POINT = {"lr": 0.05, "width": 64}
BAD_ANSWERS: list[tuple[Any, str]] = [
    ("not JSON", "its answer is not JSON."),
    ("[" * 100_000, "its answer is not JSON."),
    ("[]", "its answer is not a list of values for each parameter."),
    ({"lr": 1}, "its answer is not a list of values for each parameter."),
    ([[0.05, 64]], "its answer is not a list of values for each parameter."),
    ([_POINT] * 3, "it proposes 3 sets of values, and 2 were asked for."),
    ([_POINT, {"lr": 0.05}], "its proposal 2 cannot be tried: `width` has no value"),
    ([{**_POINT, "x": 1}], "its proposal 1 cannot be tried: `x` is not a parameter of this study"),
    ([{**_POINT, "lr": 0.2}], "its proposal 1 cannot be tried: `lr`: '0.2' is not in the range from 0.01 to 0.1."),
    ([{**_POINT, "lr": "0.05"}], "its proposal 1 cannot be tried: `lr`: '0.05' is not in the range from 0.01 to 0.1."),
    ([{**_POINT, "lr": True}], "its proposal 1 cannot be tried: `lr`: 'True' is not in the range from 0.01 to 0.1."),
    ([{**_POINT, "lr": None}], "its proposal 1 cannot be tried: The parameter lr must be"),
    ([{**_POINT, "lr": [0.05]}], "its proposal 1 cannot be tried: The parameter lr must be"),
    ([{**_POINT, "width": 65}], "its proposal 1 cannot be tried: `width`: '65' is not in the list of its values."),
    ('{"proposals": [{"lr": NaN, "width": 64}]}', "its proposal 1 cannot be tried: The parameter lr must be"),
    ('{"proposals": [{"lr": 1e999, "width": 64}]}', "its proposal 1 cannot be tried: The parameter lr must be"),
    ([{**_POINT, "<b>": 1}], "its proposal 1 cannot be tried: '<b>' is not a valid parameter name"),
    (" " * (8 * 1024**2 + 1), "its answer is larger than 8 MiB."),
]


class TestFailures:
    @pytest.mark.parametrize(("content", "sentence"), BAD_ANSWERS)
    def test_an_answer_that_is_no_list_of_points_pauses(
        self, search: Callable[..., Study], content: Any, sentence: str
    ) -> None:
        study = turn(search())
        answer(open_call(study), content)
        turn(study)
        assert (study.state, study.plugin_failed) == (Study.State.PAUSED, True)
        assert study.reason.startswith(f"The plug-in mine failed: {sentence}")
        assert not study.trials.exists()

    def test_an_answer_elsewhere_is_not_read(self, search: Callable[..., Study], tmp_path: Path) -> None:
        study = turn(search())
        job = open_call(study)
        (tmp_path / "answer.json").write_text(json.dumps({"proposals": [_POINT]}))
        (results_of(job) / ANSWER_FILE).symlink_to(tmp_path / "answer.json")
        set_job(job, state="SUCCEEDED", finished_at=timezone.now())
        assert turn(study).reason == "The plug-in mine failed: its training ended without an answer."

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ("raise KeyError('alpha')", "KeyError: 'alpha'"),
            ("return 3", "TypeError: search() must return a list of dicts, one for each set of values"),
            ("return [{'lr': float('nan')}]", "ValueError: Out of range float values are not JSON compliant"),
            ("return [{'lr': object()}]", "TypeError: Object of type object is not JSON serializable"),
            (
                "self.lock = __import__('threading').Lock(); return []",
                "TypeError: the plug-in needs get_state and set_state, for it cannot be pickled: cannot pickle",
            ),
        ],
    )
    def test_its_own_error_is_the_reason(self, search: Callable[..., Study], body: str, words: str) -> None:
        study = turn(search(_searching(body)))
        run(open_call(study))
        turn(study)
        assert study.state == Study.State.PAUSED
        assert study.reason.startswith(f"The plug-in mine failed: {words}")

    def test_after_a_resume_it_is_asked_again(self, search: Callable[..., Study], alice: User) -> None:
        study = turn(search())
        answer(open_call(study), "not JSON")
        turn(study)
        study = actions.resume(alice, study.pk)
        assert not Study.objects.get(pk=study.pk).plugin_failed
        run(open_call(turn(study)))
        turn(study)
        assert len(running(study)) == 2

    def test_one_that_does_not_answer_is_stopped(self, search: Callable[..., Study], cluster: Any) -> None:
        study = turn(search())
        job = open_call(study)
        set_job(job, state="RUNNING", started_at=timezone.now())
        claim = SlotClaimFactory(job=job, slot=Slot.objects.first())
        turn(study)
        assert study.state == Study.State.RUNNING
        claim.claimed_at = timezone.now() - timedelta(minutes=11)
        claim.save()
        turn(study)
        job.refresh_from_db()
        assert study.reason == "The plug-in mine failed: it has not answered within 10 min 0 s."
        assert job.state == JobState.CANCELLING

    def test_a_refused_training_pauses(self, search: Callable[..., Study], group: InstanceGroup) -> None:
        study = search()
        InstanceGroup.objects.filter(pk=group.pk).update(state=InstanceGroup.State.REGISTERED)
        turn(study)
        assert study.state == Study.State.PAUSED
        assert study.reason.startswith("The plug-in cannot be asked for values: ")


def _searching(body: str) -> str:
    head = "from plugins.core.base_plugin_opt import BasePluginOptimizer\nclass PluginOptimizer(BasePluginOptimizer):\n"
    return f"{head}    def search(self, number_samples, last_exp_results):\n        {body}\n"


_ONE_PROCESS = """
import json
import numpy as np
np.random.seed(7)
drawn = [(np.random.uniform(0.01, 0.1), {values}[np.random.randint(3)]) for _ in range(5)]
print(json.dumps(drawn))
"""


def test_the_example_of_the_documentation_learns(search: Callable[..., Study]) -> None:
    rows = [PARAMETERS[0]]
    optimizer = example("docs/user/coming-from-wmla.md#Search algorithms of your own.1").text
    study = search(
        optimizer, space={"lr": SPACE["lr"]}, plugin_arguments={"hyper_parameters": rows, "options": {}}, at_once=1
    )
    run(open_call(turn(study)))
    [first] = running(turn(study))
    end(first, final_metrics={"loss": 0.5})
    assert "best so far: {'id': 0, 'state': 'FINISHED', 'metricVal': 0.5" in run(open_call(turn(study)))
    [second] = running(turn(study))
    assert 0.01 <= second.values["lr"] <= 0.1


class TestInstallation:
    def test_its_files_are_a_model_of_the_owner(self, install: Install, alice: User) -> None:
        plugin = install(log_level="DEBUG")
        assert (plugin.code.model.name, plugin.code.model.owner) == ("mine-optimizer", alice)
        assert {file.name for file in plugin.code.folder.iterdir()} == {
            "optimizer.py",
            "lists.py",
            "tidepool_plugin_call.py",
        }

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (packed({"folder/optimizer.py": RANDOM}), "The archive has no optimizer.py at its top: pack the files"),
            (packed({"../optimizer.py": RANDOM}), "The archive has an entry that may not be unpacked"),
            (packed({"optimizer.py": "def ("}), "optimizer.py is not valid Python (line 1"),
            (b"no archive", "The archive 'plugin.tar.gz' cannot be unpacked"),
        ],
    )
    def test_what_is_refused_leaves_nothing(self, install: Install, home: Path, content: bytes, sentence: str) -> None:
        with pytest.raises(UserError) as refused:
            install(content)
        assert refused.value.message.startswith(sentence)
        assert not RegisteredModel.objects.exists()
        assert not list((home / "models/uploads").glob("*"))

    def test_its_code_cannot_be_deleted_nor_trained(self, install: Install, alice: User, tmp_path: Path) -> None:
        code = install().code
        with pytest.raises(Conflict) as refused:
            delete_model(code.model, alice)
        assert refused.value.message.endswith("cannot be deleted: it is the code of the search plugin mine.")
        ended = subprocess.run(
            [sys.executable, code.entry_point],
            cwd=code.folder,
            env={**os.environ, "RESULT_DIR": str(tmp_path), "PYTHONPATH": _PATH},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stderr[:36]) == (1, "This model is a search algorithm: st")

    def test_a_name_is_taken_once_in_any_case(self, install: Install) -> None:
        install()
        with pytest.raises(Conflict):
            install(name="MINE", owner=UserFactory())
        assert SearchPlugin.objects.count() == 1

    def test_others_use_it_while_they_may_read_its_model(self, install: Install, alice: User) -> None:
        plugin, bob = install(), UserFactory()
        assert find_plugin(bob, "Mine") == plugin
        with pytest.raises(NotAllowed):
            delete_plugin(bob, plugin)
        set_readers(plugin.code.model, "owner", alice)
        assert find_plugin(bob, "mine") is None

    def test_it_is_deleted_with_its_code_unless_a_training_has_it(
        self, search: Callable[..., Study], install: Install, alice: User
    ) -> None:
        delete_plugin(alice, install(name="unused"))
        assert not RegisteredModel.objects.filter(name="unused-optimizer").exists()
        study = turn(search())
        assert study.plugin is not None
        with pytest.raises(Conflict) as refused:
            delete_plugin(alice, study.plugin)
        assert refused.value.message == "1 study uses the search algorithm mine: stop that first."
        actions.stop(alice, study.pk)
        delete_plugin(alice, study.plugin)
        assert RegisteredModel.objects.filter(name="mine-optimizer").exists()
        study = actions.restart(alice, study.pk)
        turn(study)
        assert study.reason == "The plug-in cannot be asked for values: The plug-in of this study was deleted."
        # The same name may be used again, by the same owner.
        assert install(GRID).code.number == 2
