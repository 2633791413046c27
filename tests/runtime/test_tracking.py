"""MLflow in a rank, without MLflow: the first import of a framework, and the end of what was logged."""

import importlib
import sys
import threading
from types import ModuleType

import pytest
from tidepool import tracking
from tidepool.first_imports import after_first_import
from tidepool.protocol import LaunchSpec
from tidepool.tracking import flush


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """A package that can be imported, and was not."""
    (tmp_path / "frame.py").write_text("made = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield "frame"
    sys.modules.pop("frame", None)


def test_the_first_import_of_a_framework_is_told_once_it_is_there(framework):
    told = []
    after_first_import(frozenset({framework}), lambda: told.append(sys.modules[framework].made))
    assert told == []
    module = importlib.import_module(framework)
    assert told == [True]
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    importlib.reload(module)
    assert told == [True]
    after_first_import(frozenset({framework}), lambda: told.append(False))
    assert told == [True, False], "it is there already"


def test_an_experiment_of_the_scripts_choice_is_refused_in_words_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "mlflow.py").write_text("named = []\ndef set_experiment(name=None, **more): named.append(name)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    rank = 0
    tracking.refuse_experiments("/Users/alice/digits", lambda: rank == 0)
    client = importlib.import_module("mlflow")
    monkeypatch.delitem(sys.modules, "mlflow")
    for name in ("/Users/alice/digits", "mine", "mine"):
        client.set_experiment(name)
    rank = 1
    client.set_experiment("other")
    assert client.named == ["/Users/alice/digits", "mine", "mine", "other"], "MLflow's client learns the training's run"
    assert capsys.readouterr().out == (
        "tidepool: mlflow.set_experiment('mine') is not honoured in a training: its run stays in the experiment "
        "/Users/alice/digits, as its page in MLflow shows.\n"
    )


def test_autologging_that_fails_leaves_the_training_alone(monkeypatch, capsys):
    client = ModuleType("mlflow")

    def autolog(**options):
        raise RuntimeError("no such thing")

    client.autolog = autolog
    monkeypatch.setitem(sys.modules, "mlflow", client)
    tracking._autolog()
    assert "no such thing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("autolog", "environment", "logs"),
    [
        ("on", {"MLFLOW_TRACKING_URI": "http://site/mlflow"}, True),
        ("on", {"MLFLOW_TRACKING_URI": "http://site/mlflow", "RANK": "0"}, True),
        ("on", {"MLFLOW_TRACKING_URI": "http://site/mlflow", "RANK": "1"}, False),
        ("off", {"MLFLOW_TRACKING_URI": "http://site/mlflow"}, False),
        ("on", {}, False),
    ],
)
def test_one_rank_of_a_training_logs_by_itself_unless_its_owner_does_not_want_that(autolog, environment, logs):
    launch = LaunchSpec("/f", "/c", "train.py", [], "/d", {}, [], 1, 1, None, 0, "sum", autolog=autolog)
    assert tracking.is_to_log(launch, environment) is logs


def test_what_was_logged_is_waited_for_and_no_longer_than_the_bound(monkeypatch, capsys):
    assert flush() is True  # no client was imported
    client, arrives = ModuleType("mlflow"), threading.Event()
    client.flush_async_logging = arrives.wait
    monkeypatch.setitem(sys.modules, "mlflow", client)
    assert flush(seconds=0.01) is False
    assert "not within 0.01 s" in capsys.readouterr().err
    arrives.set()
    assert flush() is True
    client.flush_async_logging = lambda: 1 / 0
    assert flush() is False
