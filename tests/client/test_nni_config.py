"""`tidepool study create --nni`: both forms of NNI's configuration, read on the client."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from tidepool import study_from_nni
from tidepool.client import default
from tidepool.client.api import Client
from tidepool.client.errors import InvalidRequest, MissingPackage
from tidepool.client.nni_config import NniStudy, study_of_nni

from studies.models import Study
from tests.client.conftest import Call
from tests.scene import Scene

SPACE = {
    "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
    "batch_size": {"_type": "choice", "_value": [16, 32]},
    "hidden": {"_type": "randint", "_value": [8, 65]},
}
#: The space in the notation of the REST API.
CONVERTED = {
    "lr": {"kind": "log_uniform", "low": 0.0001, "high": 0.1},
    "batch_size": [16, 32],
    "hidden": {"kind": "int", "low": 8, "high": 64},
}
NEWER = """
experimentName: digits            # shown on the page
searchSpaceFile: spaces/digits.json
trialCommand: python3 train.py --epochs 2
trialCodeDirectory: code
trialGpuNumber: 2
trialConcurrency: 4
maxTrialNumber: 20
maxExperimentDuration: 1.5h
maxTrialDuration: 10m
tuner:
  name: TPE
  classArgs:
    optimize_mode: maximize
assessor:
  name: Medianstop
trainingService:
  platform: local
  useActiveGpu: false
"""
OLDER = """
authorName: somebody
experimentName: digits on AdaptDL
trialConcurrency: 2
maxExecDuration: 30m
maxTrialNum: 12
nniManagerIp: 10.0.0.7
logCollection: http
trainingServicePlatform: adl
searchSpacePath: spaces/digits.json
useAnnotation: false
tuner:
  builtinTunerName: Anneal
  classArgs:
    optimize_mode: minimize
trial:
  namespace: default
  command: SEED=3 python3 /digits/train.py
  codeDir: /digits
  gpuNum: 1
  cpuNum: 2
  image: registry.example.org/digits:1
  adaptive: true
  checkpoint:
    storageClass: dfs
    storageSize: 1Gi
  nfs: {server: 10.0.0.8, path: /, containerMountPath: /nfs}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment"
    (folder / "code").mkdir(parents=True)
    (folder / "spaces").mkdir()
    (folder / "code/train.py").write_text("import nni\nprint(nni.get_next_parameter())\n")
    (folder / "code/words.txt").write_text("data\n")
    (folder / "spaces/digits.json").write_text(json.dumps(SPACE))
    return folder


def read(folder: Path, text: str, **options: Any) -> NniStudy:
    (folder / "config.yml").write_text(text)
    return study_of_nni(folder / "config.yml", **options)


def test_the_newer_form(folder: Path) -> None:
    found = read(folder, NEWER)
    assert found.search == {
        "space": CONVERTED,
        "metric": "default",
        "goal": "maximize",
        "sampler": "tpe",
        "pruner": "median",
        "trials": 20,
        "at_once": 4,
        "minutes": 90,
        "dialect": "nni",
    }
    assert (found.code.entry_point, found.arguments) == ("train.py", ("--epochs", "2"))
    assert [file.as_posix() for file in found.code.files] == ["train.py", "words.txt"]
    assert found.options == {"name": "digits", "max_slots": 2, "max_seconds": 600}
    assert found.notices == ("Without effect here: trainingService.useActiveGpu.",)


def test_the_older_form_of_adaptdl(folder: Path) -> None:
    found = read(folder, OLDER)
    assert found.search == {
        "space": CONVERTED,
        "metric": "default",
        "goal": "minimize",
        "sampler": "tpe",
        "pruner": "none",
        "trials": 12,
        "at_once": 2,
        "minutes": 30,
        "dialect": "nni",
    }
    assert (found.code.entry_point, found.arguments) == ("code/train.py", ())
    assert found.options == {"name": "digits on AdaptDL", "max_slots": None, "environment": {"SEED": "3"}}
    assert found.notices == (
        "The tuner Anneal is not supported: tpe is used instead.",
        "There is no folder /digits: the files beside config.yml are sent.",
        "Without effect here: authorName, nniManagerIp, logCollection, trial.namespace, trial.cpuNum, trial.image, "
        "trial.checkpoint, trial.nfs.",
    )


def test_a_space_in_the_file_and_no_limits(folder: Path) -> None:
    found = read(
        folder / "code",
        "searchSpace:\n  lr: {_type: loguniform, _value: [1e-4, 1e-1]}\ntrialCommand: python train.py\n"
        "trialConcurrency: 1\ntuner: {name: Random}\ntrainingService: {platform: local}\n",
    )
    assert found.search == {
        "space": {"lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1}},
        "metric": "default",
        "goal": "minimize",
        "sampler": "random",
        "pruner": "none",
        "trials": None,
        "at_once": 1,
        "minutes": None,
        "dialect": "nni",
    }
    assert found.notices == ("There is no optimize_mode: the study minimizes, as NNI's tuners do.",)


@pytest.mark.parametrize(
    ("command", "entry_point", "arguments"),
    [
        ("python3 -u train.py --name 'two words'", "train.py", ("--name", "two words")),
        ("/usr/bin/python3.11 ./train.py", "train.py", ()),
        ("python -m train --fast", "train", ("--fast",)),
        ("train.py", "train.py", ()),
    ],
)
def test_commands(folder: Path, command: str, entry_point: str, arguments: tuple[str, ...]) -> None:
    found = read(folder, NEWER.replace("python3 train.py --epochs 2", command))
    assert (found.code.entry_point, found.arguments) == (entry_point, arguments)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("name: TPE", "name: Evolution", "The tuner Evolution is not supported: there are TPE, Random, GridSearch"),
        ("name: TPE", "name: SMAC", "or choose one with --sampler"),
        ("name: TPE", "className: mine.Tuner", "A tuner of your own is not supported"),
        ("name: Medianstop", "name: Curvefitting", "The assessor Curvefitting is not supported: there is Medianstop"),
        ("tuner:\n", "advisor: {name: BOHB}\ntuner:\n", "`advisor` in config.yml: advisors are not supported"),
        ("trialConcurrency", "useAnnotation: true\ntrialConcurrency", "annotations in the script are not read"),
        ("maxTrialNumber", "maxTrialNumer", "is not a key of NNI's configuration. Did you mean `maxTrialNumber`?"),
        ("maxTrialNumber: 20", "maxTrialNumber: many", "write a whole number above 0"),
        ("1.5h", "soon", "write a duration such as 30m, 1h or 2d"),
        ("optimize_mode: maximize", "optimize_mode: best", "write minimize or maximize"),
        ("python3 train.py", "bash train.sh", "does not just start a Python script"),
        ("python3 train.py", "cd x && python3 train.py", "does not just start a Python script"),
        ("python3 train.py", "python3 other.py", "other.py is not among the files"),
        ("trialCommand", "debug: true #", "has no command"),
        ("trialCodeDirectory: code", "trialCodeDirectory: elsewhere", "There is no"),
        ("searchSpaceFile: spaces/digits.json", "", "has no search space"),
        ("searchSpaceFile: spaces/digits.json", "searchSpaceFile: none.json", "none.json cannot be read"),
        ("trialGpuNumber: 2", "trialGpuNumber: all", "write the number of GPUs of a trial"),
        ("tuner:", "tuner: [", "is not valid YAML (line "),
    ],
)
def test_refusals_say_what_there_is(folder: Path, old: str, new: str, sentence: str) -> None:
    assert old in NEWER
    with pytest.raises(InvalidRequest) as caught:
        read(folder, NEWER.replace(old, new))
    assert sentence in str(caught.value)


def test_options_of_the_command_line_replace_what_is_not_there(folder: Path) -> None:
    text = NEWER.replace("name: TPE", "name: Evolution").replace("Medianstop", "Curvefitting")
    found = read(folder, text, sampler="cmaes", pruner="asha")
    assert (found.search["sampler"], found.search["pruner"]) == ("cmaes", "asha")


def test_without_yaml_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackage, match=r"pip install pyyaml"):
        read(folder, NEWER)
    # JSON is YAML too, and needs no package.
    words = {"searchSpace": SPACE, "trialCommand": "python3 code/train.py", "tuner": {"name": "GridSearch"}}
    assert read(folder, json.dumps(words)).search["sampler"] == "grid"


@pytest.mark.django_db
def test_the_command_creates_the_study(logged_in: Scene, tidepool: Call, folder: Path) -> None:
    (folder / "config.yml").write_text(NEWER.replace("trialGpuNumber: 2", "trialGpuNumber: 1"))
    code, printed, said = tidepool("study", "create", "--nni", folder / "config.yml", "-q", "--trials", "5")
    assert code == 0, said
    assert "config.yml: Without effect here: trainingService.useActiveGpu." in said
    study = Study.objects.get(pk=int(printed))
    assert (study.name, study.metric, study.goal, study.trials_wanted) == ("digits", "default", "maximize", 5)
    assert (study.dialect, study.arguments, study.at_once) == ("nni", ["--epochs", "2"], 4)
    assert (study.model.entry_point, study.model.compat) == ("train.py", ["nni"])
    assert study.space == CONVERTED
    preview = tidepool("study", "create", "--nni", folder / "config.yml", "--dry-run", "--json")
    assert json.loads(preview[1])["at_once"] == 4


@pytest.mark.django_db
def test_the_function_creates_the_study(logged_in: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "config.yml").write_text(NEWER.replace("name: TPE", "name: SMAC"))
    client = Client()
    monkeypatch.setattr(default, "_default", lambda: client)
    with pytest.warns(UserWarning, match=r"config.yml: Without effect here: tuner.name, trainingService"):
        made = study_from_nni(folder / "config.yml", sampler="random", trials=3, max_slots=1)
    info = made.info
    client.close()
    assert (info.name, info.sampler, info.trials, info.at_once, info.pruner) == ("digits", "random", 3, 4, "median")


@pytest.mark.django_db
def test_the_command_takes_a_file_or_options(logged_in: Scene, tidepool: Call, folder: Path) -> None:
    (folder / "config.yml").write_text(NEWER)
    script = folder / "code/train.py"
    assert "leave --metric out" in tidepool("study", "create", "--nni", folder / "config.yml", "--metric", "loss")[2]
    assert "leave a script out" in tidepool("study", "create", script, "--nni", folder / "config.yml")[2]
    assert "There is no --space" in tidepool("study", "create", script, "--metric", "loss")[2]
    assert "There is no --metric" in tidepool("study", "create", script, "--space", "lr=1,2")[2]
