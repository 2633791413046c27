"""Lists in place of values: on the command line, in a file of options, and in Python."""

from pathlib import Path

import pytest
from tidepool.client.api import Client
from tidepool.client.errors import InvalidRequest
from tidepool.client.studies import Study as ClientStudy

from jobs.models import Job
from studies.models import Study
from tests.client.conftest import Call
from tests.scene import Scene

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--layers", default="64,32")
parser.add_argument("--epochs", type=int, default=1)
print(parser.parse_args())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_several_numbers_on_the_command_line(logged_in: Scene, tidepool: Call, script: Path) -> None:
    words = ("--set", "lr=0.1, 0.03", "--set", "epochs=2", "--name", "rates", "--tag", "night")
    code, printed, said = tidepool("submit", script, *words)
    study = Study.objects.get(name="rates")
    assert (code, printed) == (0, "")
    assert f"Study {study.pk}, rates: 2 trainings, compared by loss." in said
    assert (study.space, study.parameters, study.tags) == ({"lr": [0.1, 0.03]}, {"epochs": 2}, ["night"])
    assert (study.sampler, study.trials_wanted, study.goal) == ("grid", 2, "minimize")


def test_a_goal_of_the_sweep(logged_in: Scene, tidepool: Call, script: Path) -> None:
    words = ("--set", "lr=0.1,0.03", "--set", "epochs=1,2,3", "--metric", "accuracy", "--goal", "maximize")
    assert "would" not in tidepool("submit", script, *words, "--dry-run")[2]
    assert not Study.objects.filter(metric="accuracy").exists()
    number = int(tidepool("submit", script, *words, "-q")[1])
    study = Study.objects.get(pk=number)
    assert (study.metric, study.goal, study.trials_wanted) == ("accuracy", "maximize", 6)


def test_a_text_of_the_script_is_one_value(logged_in: Scene, tidepool: Call, script: Path) -> None:
    assert tidepool("submit", script, "--set", "layers=128,64", "--name", "wide")[0] == 0
    assert Job.objects.get(name="wide").parameters == {"layers": "128,64"}


def test_a_file_of_options(logged_in: Scene, tidepool: Call, script: Path) -> None:
    file = script.with_name("job.toml")
    file.write_text('script = "train.py"\nname = "filed"\n[parameters]\nlr = [0.1, 0.03]\nepochs = 3\n')
    assert tidepool("submit", "-f", file)[0] == 0
    study = Study.objects.get(name="filed")
    assert (study.space, study.parameters) == ({"lr": [0.1, 0.03]}, {"epochs": 3})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--metric", "loss"), "--metric and --goal compare several values"),
        (("--set", "lr=0.1,0.2", "--key", "night"), "A sweep takes no --key"),
        (("--set", "lr=0.1,0.1"), "`lr`: '0.1' is listed twice"),
    ],
)
def test_refused_by_name(logged_in: Scene, tidepool: Call, script: Path, words: tuple[str, ...], sentence: str) -> None:
    before = Study.objects.count(), Job.objects.count()
    code, _, said = tidepool("submit", script, *words)
    assert code in (2, 5)
    assert sentence in said
    assert (Study.objects.count(), Job.objects.count()) == before


def test_a_list_in_python(alices: Client, script: Path) -> None:
    made = alices.submit(script, parameters={"lr": (0.1, 0.03), "epochs": 2}, metric="accuracy", goal="maximize")
    assert isinstance(made, ClientStudy)
    assert (made.info.space, made.info.parameters) == ({"lr": [0.1, 0.03]}, {"epochs": 2})
    with pytest.raises(InvalidRequest, match="lr has several values: add metric="):
        alices.submit(script, parameters={"lr": [0.1, 0.03]})
    with pytest.raises(InvalidRequest, match="give a list"):
        alices.submit(script, parameters={"lr": 0.1}, metric="loss")
