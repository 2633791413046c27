"""WMLA's smaller modules: what their files and lines look like, and that scripts can import them as they do."""

import importlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from _wmla.absent import INSTEAD
from elog import ELog
from emetrics import EMetrics
from monitor_pth import PytorchMonitor
from tidepool import wmla_environment
from tidepool.wmla_environment import build_fabric

from models_registry.code_inspection import COMPAT_MODULES
from tests.runtime.lab import RUNTIME

EXAMPLE = Path(__file__).parents[3] / "examples" / "mnist-edt"
TRAIN = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] Train,\tTimestamp: \d{13},\tGlobal steps: 7,\tIteration: 3,"
    r"\tLoss: 0\.12346,\tAccuracy: 0\.5"
)
TEST = re.compile(r"\[[^]]+\] Test,\tTimestamp: \d{13},\tLoss: 0\.25,\tAccuracy: 0\.75")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "log"))
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    monkeypatch.setenv("TRAINING_ID", "alice-1-2")
    return tmp_path / "log"


def test_elog_writes_the_lines_that_notebooks_parse(log: Path) -> None:
    with ELog.open() as elog:
        elog.recordTrain("Train", 3, 7, 0.123456, 0.5, 1)
        elog.recordTest("Test", 0.25, 0.75, 1)
        elog.recordText("anything")
    train, test, text = (log / "stdout").read_text().splitlines()
    assert TRAIN.fullmatch(train)
    assert TEST.fullmatch(test)
    assert text.endswith("] anything")
    fields = train.replace(":", ",").split(",")
    assert [float(fields[place]) for place in (6, 8, 10, 12)] == [7, 3, 0.12346, 0.5], "the columns of the notebook"


def test_elog_takes_metrics_by_name_too(log: Path) -> None:
    with ELog.open("sub") as elog:
        elog.recordTrain("Train", 3, 7, {"loss": 0.5, "top5": 1.0})
        elog.recordTest("Test", {"loss": 0.25})
    train, test = (log / "sub" / "stdout").read_text().splitlines()
    assert train.endswith("Global steps: 7,\tIteration: 3,\tloss: 0.5,\ttop5: 1.0")
    assert test.endswith(",\tloss: 0.25")


def test_without_its_folder_it_logs_below_that_of_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOG_DIR", raising=False)
    monkeypatch.setenv("JOB_STATE_DIR", str(tmp_path))
    with ELog.open() as elog:
        elog.recordText("here")
    assert (tmp_path / "logs" / "stdout").read_text().endswith("here\n")


def test_emetrics_writes_a_line_of_json_for_each_record(log: Path) -> None:
    with EMetrics.open() as metrics:
        metrics.record(EMetrics.TEST_GROUP, 4, {"loss": 0.03, "seen": 12, "note": "fine"})
    entry = json.loads((log / "evaluation-metrics.txt").read_text())
    assert entry["meta"].pop("time") > 10**12
    assert entry["meta"] == {"training_id": "alice-1-2", "rindex": 1}
    assert (entry["grouplabel"], entry["etimes"]["iteration"]) == ("test", {"type": 2, "value": "4"})
    assert set(entry["etimes"]["time_stamp"]) == {"value"}
    assert entry["values"] == {
        "loss": {"type": 3, "value": "0.03"},
        "seen": {"type": 2, "value": "12"},
        "note": {"value": "fine"},
    }
    assert not (log.parent / "val_dict_list.json").exists()


def test_emetrics_of_a_tuner_leaves_the_list_that_it_reads(log: Path) -> None:
    with EMetrics.open("hpo-1") as metrics:
        metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 0.5})
        metrics.record(EMetrics.TRAIN_GROUP, 1, {"loss": 0.6})
        metrics.record(EMetrics.TEST_GROUP, 2, {"loss": 0.25})
    assert json.loads((log.parent / "val_dict_list.json").read_text()) == [
        {"steps": 1, "loss": 0.5},
        {"steps": 2, "loss": 0.25},
    ]
    assert json.loads((log / "hpo-1" / "evaluation-metrics.txt").read_text().split("\n")[0])["meta"]["subid"] == "hpo-1"


def test_emetrics_of_a_tuner_reaches_the_curves_too(log: Path) -> None:
    """Curves are read from the folder for logs itself."""
    for _ in range(2):
        with EMetrics.open("3") as metrics:
            metrics.record(EMetrics.TRAIN_GROUP, 1, {"loss": 0.5})
    assert (log / "evaluation-metrics.txt").read_text() == (log / "3" / "evaluation-metrics.txt").read_text()
    assert len((log / "evaluation-metrics.txt").read_text().splitlines()) == 2


def test_monitor_prints_what_charts_are_made_of(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = PytorchMonitor()
    outputs, target = torch.eye(4), torch.tensor([0, 1, 2, 0])
    monitor.log_train(1, 0, 10, target, torch.tensor(0.5), outputs)
    monitor.log_train(1, 1, 10, target, 0.25, outputs)
    monitor.log_test(1, 1, 0, 4, target, 0.125, outputs)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Timestamp \d{13}, Iteration 2", lines[5])
    assert re.fullmatch(r"Timestamp \d{13}, batchIdx 1", lines[6])
    assert lines[7:] == [
        "batches :2 0.25",
        "Iteration 2: tag train_accuracy, simple_value 0.75",
        "Iteration 2: tag train_loss, simple_value 0.25",
        "Iteration 1: tag test_accuracy, simple_value 0.75",
        "Iteration 1: tag test_loss, simple_value 0.125",
    ]
    recorded = [json.loads(line) for line in (log / "evaluation-metrics.txt").read_text().splitlines()]
    values = [(each["grouplabel"], each["values"]["loss"]["value"]) for each in recorded]
    assert values == [("train", "0.5"), ("train", "0.25"), ("test", "0.125")], "what charts here are made of"


# --- fabric.zip ---


def test_the_archive_is_a_zip_and_always_the_same(tmp_path: Path) -> None:
    home = build_fabric(tmp_path / "one")
    archive = home / "libs" / "fabric.zip"
    before = archive.stat().st_mtime_ns
    names = zipfile.ZipFile(archive).namelist()
    assert {"fabric_model.py", "callbacks.py", "pyedt/fabric_model.py"} <= set(names)
    assert all(name.endswith(".py") for name in names), "nothing that must lie in a file of its own to be loaded"
    assert not {"elog.py", "emetrics.py", "edtcallback.py", *(f"{name}.py" for name in INSTEAD)} & set(names), (
        "a model's own come first"
    )
    assert archive.read_bytes() == (build_fabric(tmp_path / "two") / "libs" / "fabric.zip").read_bytes()
    assert build_fabric(tmp_path / "one") == home
    assert archive.stat().st_mtime_ns == before, "not made again"


def test_other_sources_make_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_fabric(tmp_path)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "fabric_model.py").write_text("changed = True\n")
    monkeypatch.setattr(wmla_environment, "_SOURCES", tmp_path / "sources")
    monkeypatch.setattr(wmla_environment, "_ARCHIVED", ("fabric_model.py",))
    assert build_fabric(tmp_path) != before


def imported(code: str, tmp_path: Path, **environment: str) -> list[str]:
    path = f"{RUNTIME / 'compat' / 'wmla'}:{RUNTIME}"
    variables: dict[str, Any] = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, **environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, env=variables, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    return done.stdout.split()


def test_scripts_import_from_the_archive_and_their_own_modules_come_first(tmp_path: Path) -> None:
    home = build_fabric(tmp_path)
    code = """
import os, sys
sys.path.insert(0, ".")
sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
import callbacks, elog, emetrics, fabric_model
from pyedt.fabric_model import FabricModel
assert FabricModel is fabric_model.FabricModel
print(fabric_model.__file__, callbacks.__file__, elog.__file__, emetrics.__file__)
"""
    (tmp_path / "elog.py").write_text("")
    zipped, zipped_too, own, ours = imported(code, tmp_path, FABRIC_HOME=str(home))
    assert zipped.startswith(str(home / "libs" / "fabric.zip"))
    assert zipped_too.startswith(str(home / "libs" / "fabric.zip"))
    assert own == str(tmp_path / "elog.py")
    assert ours == str(RUNTIME / "compat" / "wmla" / "emetrics.py")


# --- absent names -------


@pytest.mark.parametrize("name", INSTEAD)
def test_a_module_that_is_not_here_says_what_there_is_instead(name: str) -> None:
    with pytest.raises(ImportError, match=f"^WMLA's {name} is not here: .*Tidepool.* See /help/coming-from-wmla/"):
        importlib.import_module(name)
    assert name not in sys.modules


def test_those_for_training_name_the_module_for_pytorch() -> None:
    for name, twin in {"tf_parameter_mgr": "pth_parameter_mgr", "monitor_tf": "monitor_pth"}.items():
        with pytest.raises(ModuleNotFoundError, match=f"trains PyTorch models.* import {twin} instead") as caught:
            importlib.import_module(name)
        assert caught.value.name == name


def test_they_say_so_behind_the_archive_too_and_a_models_own_come_first(tmp_path: Path) -> None:
    code = """
import os, sys
sys.path.insert(0, ".")
sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
import inference_helper
for name in ("tf_parameter_mgr", "monitor_tf", "redhareapi"):
    try:
        __import__(name)
    except ImportError as error:
        print(str(error).split(":")[0].replace(" ", "-"))
"""
    (tmp_path / "inference_helper.py").write_text("")
    assert imported(code, tmp_path, FABRIC_HOME=str(build_fabric(tmp_path))) == [
        f"WMLA's-{name}-is-not-here" for name in ("tf_parameter_mgr", "monitor_tf", "redhareapi")
    ]


def test_they_are_documented_and_a_script_that_imports_one_is_known_as_wmlas() -> None:
    page = (
        (Path(__file__).parents[3] / "docs/user/coming-from-wmla.md").read_text().split("## What is not supported")[1]
    )
    assert [name for name in INSTEAD if f"`{name}`" not in page] == []
    assert set(INSTEAD) <= COMPAT_MODULES["wmla"]
