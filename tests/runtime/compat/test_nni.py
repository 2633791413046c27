"""The module `nni`: alone, in the process of a trial, and beside an installed one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.compat.conftest import MakeLab
from tests.runtime.lab import OFF_CLUSTER, Lab
from tests.waiting import wait_until

COMPAT = Path(__file__).parents[3] / "runtime/compat/nni"
TRIAL = {"study": 7, "name": "digits", "number": 3, "params": {"lr": 0.25, "layers": 2, "act": "relu"}}
PLAIN = """
import json, os, sys
import nni
from nni.utils import merge_parameter
assert nni.get_current_parameter() is None
values = nni.get_next_parameter()
params = merge_parameter({"lr": 0.1, "layers": 1, "act": "tanh", "epochs": 3}, values)
for epoch in range(params["epochs"]):
    nni.report_intermediate_result({"default": 1 / (epoch + 1), "epoch_loss": epoch, "note": "fine"})
nni.report_final_result(0.125)
now = nni.get_current_parameter()
facts = [values, params, nni.get_experiment_id(), nni.get_trial_id(), nni.get_sequence_id(), now]
names = ["NNI_EXP_ID", "NNI_TRIAL_JOB_ID", "NNI_TRIAL_SEQ_ID", "NNI_PLATFORM"]
has_folder = os.path.isdir(os.environ.get("NNI_OUTPUT_DIR", "?"))
print(json.dumps([facts, [os.environ.get(name) for name in names], has_folder]))
"""


def alone(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**OFF_CLUSTER, "PYTHONPATH": ":".join(map(str, (COMPAT, Path(OFF_CLUSTER["PYTHONPATH"]), *path)))}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment, capture_output=True, text=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip


def made(folder: Path, script: str, trial: dict[str, Any] | None = TRIAL) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(script)
    if trial is not None:
        (folder / "tidepool-trial.json").write_text(json.dumps(trial))
    return folder


def run(make_lab: MakeLab, folder: Path, **launch: Any) -> Lab:
    options = {"engine": "single", "compat": ["nni"], "max_slots": 1, **launch}
    lab = make_lab("train.py", code_folder=str(folder), **options)
    lab.target(("a", 0))
    wait_until(lambda: len(lab.exits()) == len(lab.started()) > 0, lab.story)
    return lab


def printed(lab: Lab) -> str:
    [file] = lab.folder.glob("log/*/stdout")
    return file.read_text()


def test_off_the_cluster_there_are_no_values_and_results_are_printed() -> None:
    ran = alone(PLAIN)
    assert ran.returncode == 0, ran.stderr
    *lines, last = ran.stdout.splitlines()
    assert lines == [
        "nni: this script runs without a study, so get_next_parameter() returns {}",
        *(
            f"nni: Intermediate result: {{'default': {1 / (n + 1)}, 'epoch_loss': {n}, 'note': 'fine'}}  (Index {n})"
            for n in range(3)
        ),
        "nni: Final result: 0.125",
    ]
    params = {"lr": 0.1, "layers": 1, "act": "tanh", "epochs": 3}
    alone_id = "STANDALONE"
    assert json.loads(last)[0][:5] == [{}, params, alone_id, alone_id, 0]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import nni; nni.report_final_result('good')", "ValueError: 'good' is not a result: report a number"),
        ("import nni; nni.report_final_result({'loss': 1})", "report a number, or a dict with a number as `default`."),
        ("import nni; nni.variable(1)", "AttributeError: nni.variable is not supported"),
        ("from nni import trace", "ImportError: cannot import name 'trace'"),
        ("import nni.compression", "ModuleNotFoundError: nni.compression is not supported: a trial of a study has"),
        ("from nni.experiment import Experiment", "ModuleNotFoundError: nni.experiment is not supported"),
        ("from nni.utils import merge_parameter as m; m({'a': 1}, {'b': 2})", "ValueError: The parameter 'b' is not"),
        ("from nni.utils import merge_parameter as m; m({'a': 1}, {'a': 2.5})", "expects a value of the type int"),
    ],
)
def test_other_names_are_refused(code: str, error: str) -> None:
    ran = alone(code)
    assert ran.returncode == 1
    assert error in ran.stderr.splitlines()[-1]


def test_a_trial_has_its_values_and_its_results_become_points(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = run(make_lab, made(tmp_path / "code", PLAIN))
    facts, variables, has_folder = json.loads(printed(lab).splitlines()[-1])
    job, values = facts[3], TRIAL["params"]
    assert job.isdecimal()
    assert facts == [values, {**values, "epochs": 3}, "7", job, 3, values]
    assert (variables, has_folder) == (["7", job, "3", "tidepool"], True)
    lines = [json.loads(line) for line in (lab.folder / "journal/nni.jsonl").read_text().splitlines()]
    assert [(line["step"], line["metrics"]) for line in lines] == [
        (1, {"default": 1.0, "epoch_loss": 0.0}),
        (2, {"default": 0.5, "epoch_loss": 1.0}),
        (3, {"default": 1 / 3, "epoch_loss": 2.0}),
        (3, {"default": 0.125}),
    ]


@pytest.mark.parametrize("is_trial", [True, False])
def test_ours_comes_before_an_installed_one_only_in_a_trial(make_lab: MakeLab, tmp_path: Path, is_trial: bool) -> None:
    """A training outside of a study may use parts of NNI that ours lacks."""
    installed = tmp_path / "installed/nni"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    script = "import nni, sys; print(hasattr(nni, 'get_next_parameter'))"
    folder = made(tmp_path / "code", script, TRIAL if is_trial else None)
    environment = {"PYTHONPATH": str(installed.parent)}
    assert printed(run(make_lab, folder, environment=environment)) == f"{is_trial}\n"
    assert "True" in printed(run(make_lab, made(tmp_path / "other", script, None), attempt=2))


ELASTIC = """
import nni, torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset
import adaptdl.torch as adl
values = nni.get_next_parameter()
adl.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = adl.AdaptiveDataLoader(data, batch_size=16, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=values["lr"])
model = adl.AdaptiveDataParallel(model, optimizer)
for epoch in adl.remaining_epochs_until(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
    nni.report_intermediate_result(10 + epoch)
nni.report_final_result(20)
"""


def test_results_survive_replicas_that_join_and_leave(make_lab: MakeLab, tmp_path: Path) -> None:
    """The first replica leaves, whose results would have counted."""
    slow = ELASTIC.replace("_until(3)", "_until(15)")
    slow = slow.replace("        optimizer.step()\n", "        optimizer.step()\n        time.sleep(0.02)\n")
    lab = make_lab(
        "train.py",
        code_folder=str(made(tmp_path / "code", f"import time\n{slow}")),
        compat=["adaptdl", "nni"],
        max_slots=2,
    )
    lab.size(2)
    lab.wait_for_size(2)
    lab.wait_for_steps(4)
    lab.target(("a", 1))
    lab.wait_for_size(1)
    lab.wait_for_the_end()
    steps = {line["step"]: line["default"] for line in lab.steps() if "default" in line}
    assert steps == {4 * (epoch + 1): 10.0 + epoch for epoch in range(14)} | {60: 20.0}
    assert {line["world_size"] for line in lab.steps()} >= {2}


def test_a_program_of_adaptdl_reports_with_its_steps(make_lab: MakeLab, tmp_path: Path) -> None:
    folder = made(tmp_path / "code", ELASTIC)
    lab = make_lab("train.py", code_folder=str(folder), compat=["adaptdl", "nni"], max_slots=2)
    lab.size(2)
    lab.wait_for_the_end()
    steps = {line["step"]: line["default"] for line in lab.steps() if "default" in line}
    assert steps == {4: 10.0, 8: 11.0, 12: 20.0}
    assert not (lab.folder / "journal/nni.jsonl").exists()
