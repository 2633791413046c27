"""A script in WMLA's style on real ranks: its environment, its driver's log through resizes and deaths, its results."""

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tidepool.protocol import to_json

from tests.runtime.compat.conftest import DRIVER, EXAMPLE, SCRIPTS, MakeLab
from tests.runtime.lab import Lab
from tests.runtime.test_halt import halted, newest
from tests.waiting import wait_until

LINE = re.compile(
    r"\[[^]]+\] Train,\tTimestamp: \d+,\tGlobal steps: (\d+),\tIteration: (\d+),\tLoss: ([\d.]+),\tAccuracy: ([\d.]+)"
)


def driver_log(lab: Lab) -> Path:
    [folder] = lab.folder.glob("log/driver*")
    return folder / "stdout"


def train_lines(lab: Lab) -> list[tuple[int, int, float, float]]:
    """(global steps, iteration, loss, accuracy) of each line; those of tests are left out."""
    lines = driver_log(lab).read_text().splitlines()
    found = [match for line in lines if (match := LINE.fullmatch(line))]
    assert len(found) + sum("] Test,\t" in line for line in lines) == len(lines), "nothing else is in it"
    return [
        (int(steps), int(batch), float(loss), float(share)) for steps, batch, loss, share in map(re.Match.groups, found)
    ]


def assert_every_step_is_logged(lab: Lab, steps: list[dict[str, Any]] | None = None) -> None:
    """Once for each worker, in order; the counter of the script goes on wherever the driver is."""
    lines, steps = train_lines(lab), steps or lab.steps()
    assert [line[0] for line in lines] == list(range(1, len(lines) + 1))
    expected = [step for step in steps for _ in range(step["world_size"])]
    assert [line[2] for line in lines] == pytest.approx([step["loss"] for step in expected], abs=1e-5)
    assert [line[3] for line in lines] == pytest.approx([step["accuracy"] / 100 for step in expected], abs=1e-5)
    ends = [line[1] for line, step in zip(lines, expected, strict=True) if step["cursor"] == 1438]
    assert set(ends[-1:]) == {-(-1438 // 32)}


def weights_of(lab: Lab) -> dict[str, torch.Tensor]:
    return torch.load(lab.folder / "model/train/model_epoch_final.pth", weights_only=True)


def assert_same_weights(one: Lab, other: Lab) -> None:
    for name, tensor in weights_of(one).items():
        torch.testing.assert_close(tensor, weights_of(other)[name], rtol=1e-4, atol=1e-5)


ARGUMENTS = ["--epochs", "12", "--batchsize", "32", "--numWorker", "2"]


def test_the_driver_moves_and_its_log_goes_on(make_job: MakeLab) -> None:
    """1 -> 2 -> 1, where the rank that leaves is the first one, which was the driver."""
    lab = make_job("mnist_edt.py", ARGUMENTS, EXAMPLE)
    lab.target(("a", 0))
    lab.wait_for_size(1)
    lab.wait_for_steps(5)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(5)
    lab.target(("a", 1))
    lab.wait_for_size(1)
    lab.wait_for_the_end()
    assert {step["world_size"] for step in lab.steps()} == {1, 2}
    assert [len(lab.active()["members"]), lab.member_ids()[0].split(".")[1]] == [1, "1"]
    assert_every_step_is_logged(lab)
    results = json.loads((lab.folder / "val_dict_list.json").read_text())
    assert [entry["steps"] for entry in results] == [line[0] for line in train_lines(lab)]
    whole = make_job("mnist_edt.py", ARGUMENTS, EXAMPLE, max_slots=2)
    whole.target(("a", 0))
    whole.wait_for_the_end()
    assert_same_weights(lab, whole)


def test_a_killed_driver_leaves_no_gap_and_nothing_twice(make_job: MakeLab) -> None:
    lab = make_job("mnist_edt.py", ARGUMENTS, EXAMPLE)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(6)
    lab.kill(lab.member_ids()[0], signal.SIGKILL)
    lab.wait_for_the_end()
    assert_every_step_is_logged(lab)


def test_ranks_find_what_scripts_for_wmla_look_for(make_job: MakeLab, mnist: Path) -> None:
    extra = {"HF_HOME": "/tmp/hub", "PYTHONPATH": "/extra/one:/extra/two"}
    lab = make_job("show.py", ["--epochs", "1"], environment=extra)
    lab.target(("a", 0))
    lab.wait_for_the_end()
    [shown] = lab.folder.glob("shown-*.json")
    facts = json.loads(shown.read_text())
    variables = facts["environment"]
    assert (variables["DATA_DIR"], variables["RESULT_DIR"]) == (str(mnist), str(lab.folder))
    assert variables["SAVED_MODEL_DIR"] == str(lab.folder / "model")
    assert variables["JOB_STATE_DIR"] == str(lab.folder)
    assert variables["MODEL_PATH"] == variables["DLI_WORK_DIR"] == facts["cwd"] == str(SCRIPTS)
    assert variables["DATA_PATH"] == variables["DLI_DATA_FS"] == str(mnist)
    assert (variables["DLI_EXECID"], variables["TRAINING_ID"]) == ("alice-1-1", "alice-1-1")
    assert (variables["DLI_IS_ELASTIC"], variables["FABRIC_BACKEND"]) == ("true", "pytorch")
    assert (variables["FRAME_WORK"], variables["DLI_LOGGER_LEVEL"], variables["DLI_EXTRA_CONF"]) == (
        *("PyTorch", "INFO"),
        "",
    )
    assert (variables["PS_PATH"], variables["RESUME_WEIGHT_PATH"]) == ("", "")
    assert variables["DLI_RESULT_FS"] == variables["DLI_SHARED_FS"] == variables["DL_NFS_PATH"]
    assert variables["DLI_CS_DATASTORE_META"] == f"type=fs,data_path={mnist}"
    assert variables["USER"] == variables["DLI_RUN_AS_USERNAME"] != ""
    absent = ("TF_CONFIG", "SUBID", "DLI_RUN_AS_USERID", "DLI_RUN_AS_GROUPID")
    assert [name for name in variables if name in absent or name.startswith(("DLI_CONDA_", "REDIS", "RDMA"))] == []
    archive = str(Path(variables["FABRIC_HOME"], "libs", "fabric.zip"))
    compat, zipped, code, _, *asked_for = variables["PYTHONPATH"].split(":")
    assert (Path(compat).name, zipped, code) == ("wmla", archive, str(SCRIPTS))
    assert (variables["HF_HOME"], asked_for) == ("/tmp/hub", ["/extra/one", "/extra/two"])
    assert [folder for folder in facts["path"] if folder.startswith("/extra")] == asked_for
    assert facts["fabric_model"].startswith(archive), "sys.path[0]"
    assert Path(variables["LOG_DIR"]).name == facts["member_id"] + ".a"
    assert facts["log_dir_in_logger"] == str(lab.folder / "log" / f"{DRIVER}.a")
    said = (Path(variables["LOG_DIR"]) / "stdout").read_text()
    for name in ("DATA_DIR", "RESULT_DIR", "LOG_DIR", "SAVED_MODEL_DIR"):
        assert f"Exposed the environment variable {name} to: {variables[name]}\n" in said
    assert "Using pytorch backend.\nExposed " in said
    assert "Total iterations: 45\n--------START TRAINING--------\n" in said
    assert not re.search(r"^Timestamp \d|: tag |^batches :|allreduce:", said, re.MULTILINE), "its charts have the steps"
    assert json.loads((lab.folder / "val_dict_list.json").read_text()) == [{"steps": 45, "mine": 0.5}], "the script's"
    assert re.search(r"-{8}END TRAINING: completed 45 iterations in [\d.]+ seconds\.-{8}\n", said)


def assert_workers_log_what_they_made(lab: Lab) -> None:
    """Each in its own folder: the steps since it joined, as the worker that it was then."""
    for member_id in lab.started():
        lines = (lab.folder / "log" / f"{member_id}.a" / "worker").read_text().splitlines()
        losses = [float(line.split()[3]) for line in lines]
        by_loss = {step["loss"]: step for step in lab.steps()}
        mine = [by_loss[loss] for loss in losses]
        assert [step["step"] for step in mine] == list(range(mine[0]["step"], mine[-1]["step"] + 1))
        assert all(int(line.split()[0]) < step["world_size"] for line, step in zip(lines, mine, strict=True))


def test_fewer_processes_compute_where_scaleup_function_says_so(make_job: MakeLab) -> None:
    lab = make_job("newer.py", [*STRICT, "--most", "1"], max_slots=2, min_slots=2)
    lab.size(2)
    lab.wait_for_the_end()
    assert {step["world_size"] for step in lab.steps()} == {2}
    assert {step["samples"] for step in lab.steps() if step["cursor"] < 1438} == {64}, "2 GPUs, though it asks for 16"
    assert [path.parent.name for path in lab.folder.glob("log/*/computes")] == [f"{lab.member_ids()[0]}.a"]
    whole = make_job("newer.py", STRICT, max_slots=2)
    whole.target(("a", 0))
    whole.wait_for_the_end()
    assert_same_weights(lab, whole)


STRICT = ["--epochs", "4", "--batch-size", "32"]


@pytest.mark.parametrize("exactness", ["sum", "bitwise"])
def test_hooks_and_callbacks_of_the_newer_generation_hold_through_resizes(
    make_job: MakeLab, tmp_path: Path, exactness: str
) -> None:
    """A strict parse_args, a learning rate that a callback halves, a step hook in several turns, a test hook."""
    options = {"max_slots": 2, "exactness": exactness, "virtual_ranks": 2 if exactness == "bitwise" else None}
    whole = make_job("newer.py", STRICT, **options)
    whole.target(("a", 0))
    whole.wait_for_the_end()
    hurry = tmp_path / "hurry-up"
    lab = make_job("newer.py", [*STRICT, "--hurry", str(hurry)], **options)
    lab.target(("a", 0))
    lab.wait_for_size(1)
    lab.wait_for_steps(3)
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(3)
    lab.target(("a", 1))
    lab.wait_for_size(1)
    hurry.touch()
    lab.wait_for_the_end()
    assert_same_weights(lab, whole)
    if exactness == "bitwise":
        assert all(tensor.equal(weights_of(whole)[name]) for name, tensor in weights_of(lab).items())
    assert_workers_log_what_they_made(lab)
    for job in (lab, whole):
        last_by_epoch = {step["epoch"]: step["learning_rate"] for step in job.steps()}
        assert last_by_epoch == {0: 0.1, 1: 0.05, 2: 0.025, 3: 0.0125}
        results = json.loads((job.folder / "val_dict_list.json").read_text())
        assert [list(entry) for entry in results] == [["steps", "loss"]] * 2
        names = sorted(path.name for path in (job.folder / "model" / "train").iterdir())
        assert names == [
            *("model_epoch_2.pth", "model_epoch_2_optimizer_state.pth"),
            *("model_epoch_4.pth", "model_epoch_4_optimizer_state.pth"),
            *("model_epoch_final.pth", "model_epoch_final_optimizer_state.pth"),
        ]
        calls = [json.loads(line) for line in (job.folder / "calls").read_text().splitlines()]
        assert [call[:2] for call in calls] == [[kind, epoch] for epoch in range(4) for kind in ("begin", "end")]
    by_step = zip(lab.steps(), whole.steps(), strict=True)
    assert all(
        one["test_loss"] == pytest.approx(other["test_loss"], rel=1e-4) for one, other in by_step if "test_loss" in one
    )


def test_a_training_that_starts_again_keeps_its_log(make_job: MakeLab, forkserver: Path, mnist: Path) -> None:
    """Stopped with a checkpoint and continued by the next attempt, whose driver's folder begins with what was."""
    first = make_job("mnist_edt.py", ARGUMENTS, EXAMPLE, max_slots=2)
    first.target(("a", 0))
    first.wait_for_size(1)
    first.wait_for_steps(7)
    step = halted(first)
    again = {**to_json(first.launch), "checkpoints": newest(first)}
    script, folder = again.pop("entry_point"), again.pop("folder")
    second = Lab(forkserver, Path(folder).parent, script, attempt=2, **again)
    try:
        second.target(("a", 0))
        second.wait_for_the_end()
    finally:
        second.stop()
    assert second.steps()[0]["step"] == step + 1
    assert_every_step_is_logged(second, [*first.steps(), *second.steps()])


def test_a_callback_in_which_the_driver_dies_is_run_by_the_next_one(make_job: MakeLab) -> None:
    """The dead driver had halved the rate already, and no other rank knew."""
    lab = make_job("newer.py", [*STRICT, "--die"], max_slots=2, min_slots=2)
    lab.size(2)
    lab.wait_for_the_end()
    assert (lab.folder / "died").exists()
    assert {step["epoch"]: step["learning_rate"] for step in lab.steps()} == {0: 0.1, 1: 0.05, 2: 0.025, 3: 0.0125}
    calls = [json.loads(line) for line in (lab.folder / "calls").read_text().splitlines()]
    assert [call[:2] for call in calls] == [[kind, epoch] for epoch in range(4) for kind in ("begin", "end")]
    assert calls[-1][2] == [call[:2] for call in calls], "what its predecessor had noted was carried along"
    whole = make_job("newer.py", STRICT, max_slots=2)
    whole.target(("a", 0))
    whole.wait_for_the_end()
    assert_same_weights(lab, whole)


def test_an_error_in_a_callback_names_the_scripts_line(make_job: MakeLab) -> None:
    lab = make_job("newer.py", [*STRICT, "--fail"])
    lab.target(("a", 0))
    wait_until(lambda: lab.journal("failed") or lab.journal("lost"), lab.story)
    [error, *_] = [json.loads(path.read_text()) for path in sorted(lab.folder.glob("log/*/error.json"))]
    assert error["kind"] == "ZeroDivisionError"
    [*_, last] = [line for line in error["traceback"].splitlines() if line.startswith("  File")]
    assert last.endswith("in on_epoch_end")
    assert "newer.py" in last


@pytest.fixture
def run_alone(forkserver: Path, tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """A script in the folders that the control plane makes, to its end, as a single process."""
    labs: list[Lab] = []

    def run(script: str, *arguments: str, exec_id: str = "wmla-7") -> Lab:
        folder = tmp_path / "results" / "alice" / "batchworkdir" / "7"
        code = folder / "_submitted_code" / "model"
        code.mkdir(parents=True)
        shutil.copy(SCRIPTS / script, code)
        (folder / "current").symlink_to("attempt-1")
        lab = Lab(
            *(forkserver, folder, script),
            arguments=[*arguments],
            code_folder=str(code),
            compat=["wmla"],
            engine="single",
            environment={"DLI_EXECID": exec_id},
        )
        labs.append(lab)
        lab.target(("a", 0))
        wait_until(lab.exits, lab.story)
        return lab

    yield run
    for lab in labs:
        lab.stop()


@pytest.mark.parametrize("exec_id", ["wmla-7", "al ice.ü@x-1767268800000000000-7"])
def test_results_are_where_scripts_build_their_path_to(run_alone: Callable[..., Lab], exec_id: str) -> None:
    lab = run_alone("paths.py", exec_id=exec_id)
    assert [end["code"] for end in lab.exits().values()] == [0], lab.story()
    assert (lab.folder / "written-there").read_text() == "alice false"
    link = lab.folder.parent.with_name(exec_id)
    assert link.readlink() == Path("7/current"), "of whatever attempt is the newest"


@pytest.mark.parametrize("exec_id", ["../../../escaped-1-7", "a/b-1-7", "/tmp/c-1-7", "ü" * 150 + "-1-7", "..", "7"])
def test_a_users_name_that_is_no_name_of_a_file_makes_no_link(run_alone: Callable[..., Lab], exec_id: str) -> None:
    lab = run_alone("paths.py", "json", exec_id=exec_id)
    trainings = lab.folder.parent.parent
    assert {path.name for path in trainings.iterdir()} == {"7"}
    assert {path.name for path in trainings.parents[2].iterdir()} == {"results"}


def test_importing_what_is_not_here_is_the_jobs_error(run_alone: Callable[..., Lab]) -> None:
    lab = run_alone("paths.py", "tf_parameter_mgr")
    [end] = lab.exits().values()
    assert end["code"] == 1
    said = "WMLA's tf_parameter_mgr is not here: Tidepool trains PyTorch models, not TensorFlow's"
    assert end["error"]["kind"] == "ModuleNotFoundError"
    assert end["error"]["message"].startswith(said)
    assert f"ModuleNotFoundError: {said}" in end["error"]["traceback"]
    assert "paths.py" in end["error"]["traceback"].splitlines()[1], "the script's line comes first"
