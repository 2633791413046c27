"""The documents for users, tried as a new user would: in an empty environment, with the site's own wheel alone."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tidepool.version import VERSION

from tests.journey.newcomer import Newcomer
from tests.journey.running_stack import RunningStack
from tests.journey.training import cancel_all
from tests.test_architecture import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(900)]

DOCUMENTS = ROOT / "docs" / "user"
#: The site, and the trainings, of the documents' examples.
_SITE, _JOB = "https://gpus.example.org", re.compile(r"\b41[23]\b")
_COMMANDS_ALONE = frozenset({"ps", "top", "queue", "gpus"})

#: Script for any number of processes; loading torch would test no more of the documents.
TRAIN = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
epochs = parser.parse_args().epochs
if os.environ["RANK"] == "0" and os.environ["LOCAL_RANK"] == "0":
    for epoch in range(epochs):
        print(f"epoch {epoch} loss {1 / (1 + epoch)}", flush=True)
    open("scores.csv", "w").write("a,b\\n")
"""


@dataclass(frozen=True)
class Example:
    language: str
    text: str


def examples(document: str) -> list[Example]:
    tokens = MarkdownIt().parse((DOCUMENTS / document).read_text())
    return [Example(token.info, token.content) for token in tokens if token.type == "fence"]


def first_cells(document: str) -> Iterator[str]:
    """Whole commands in the first column of its tables."""
    for line in (DOCUMENTS / document).read_text().splitlines():
        if line.startswith("| `"):
            yield from re.findall(r"`([^`]+)`", line.split("|")[1])


@pytest.fixture(scope="module")
def newcomer(stack: RunningStack, recorder: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """A newcomer who has followed cli.md: installed the site's wheel and logged in by a code."""
    somebody = Newcomer(tmp_path_factory.mktemp("newcomer"), stack)
    project = tomllib.loads((ROOT / "runtime" / "pyproject.toml").read_text())["project"]
    somebody.has(*(re.split(r"[<>=]", line)[0] for line in project["dependencies"]))
    install, login = examples("cli.md")[0].text.replace(_SITE, stack.url).splitlines()
    assert VERSION in install
    somebody.says(install)
    assert "Logged in as admin" in somebody.logs_in(login)
    (somebody.work / "train.py").write_text(TRAIN)
    (somebody.work / "main.py").write_text(TRAIN + 'os.listdir(os.environ["DATA_DIR"])\n')
    yield somebody
    with stack.api() as api:
        cancel_all(api)


@pytest.fixture(scope="module")
def done(newcomer: Newcomer) -> str:
    """The number of a training that has succeeded."""
    return newcomer.says("tidepool submit train.py --wait --json | grep -m1 '\"id\"' | tr -dc 0-9").stdout


def test_the_wheel_alone_loads_next_to_nothing(newcomer: Newcomer) -> None:
    code = "import sys; before = set(sys.modules); import tidepool; print(*(set(sys.modules) - before))"
    loaded = newcomer.says(f'python -c "{code}"').stdout.split()
    assert "tidepool" in loaded
    assert {name.partition(".")[0] for name in loaded} <= {"tidepool", "importlib", "warnings"}
    assert "tidepool run train.py" in newcomer.says("tidepool --help").stdout
    assert newcomer.says("tidepool --version").stdout.strip() == f"tidepool {VERSION}"


def test_cli_md_trains(newcomer: Newcomer) -> None:
    [trains] = [each.text for each in examples("cli.md") if "tidepool run" in each.text]
    found = newcomer.says(trains)
    assert found.stdout.rstrip().endswith("done")
    assert "epoch 4 loss 0.2" in found.stdout
    assert "Nothing was submitted." in found.stderr


def test_adaptdl_md_has_the_commands_of_adaptdl(newcomer: Newcomer) -> None:
    """AdaptDL's *Hello, world!*, as its documentation submits it and fetches its file."""
    project = newcomer.work / "hello_world"
    project.mkdir()
    (project / "hello_world.py").write_text(
        "import adaptdl.env, os\nprint('Hello, world!')\n"
        "open(os.path.join(adaptdl.env.share_path(), 'foo.txt'), 'w').write('Hello, world!')\n"
    )
    (project / "adaptdljob.yaml").write_text(
        "apiVersion: adaptdl.petuum.com/v1\nkind: AdaptDLJob\nmetadata: {generateName: hello-world-}\n"
        "spec: {template: {spec: {containers: [{name: main, command: [python3, /root/hello_world.py]}]}}}\n"
    )
    number = newcomer.says("tidepool adaptdl submit hello_world -q").stdout.strip()
    job = f"hello-world-{number}"
    assert "Hello, world!" in newcomer.says(f"tidepool adaptdl logs {job}").stdout
    assert job in newcomer.says("tidepool adaptdl ls").stdout
    newcomer.says(f"tidepool adaptdl cp {job}:/adaptdl/share/foo.txt foo.txt")
    assert (newcomer.work / "foo.txt").read_text() == "Hello, world!"


def test_cli_md_submits_a_file(newcomer: Newcomer) -> None:
    [settings] = [each.text for each in examples("cli.md") if each.language == "toml"]
    (newcomer.work / "job.toml").write_text(settings)
    newcomer.says("tidepool submit -f job.toml --wait")


def test_cli_md_looks_and_fetches(stack: RunningStack, newcomer: Newcomer, done: str) -> None:
    options = "--set epochs=100000 --set step-seconds=0.2"
    elastic = newcomer.says(f"tidepool submit -q --model recorder --dataset digits {options}").stdout.strip()
    kept = newcomer.says("tidepool submit -q --model digits-cnn --dataset digits --set epochs=1").stdout.strip()
    newcomer.says(f"tidepool logs -f {kept}")
    point = newcomer.says(f"tidepool checkpoints -q {kept} | head -1").stdout.strip()
    with stack.api() as api:
        assert api.post("environments/", json={"name": "vision", "source": "numpy"}).status_code == 201
        wait_until(lambda: api.get(f"jobs/{elastic}/").json()["state"] == "RUNNING", "the training runs")
    commands = [cell for cell in first_cells("cli.md") if " " in cell or cell in _COMMANDS_ALONE]
    assert len(commands) > 12
    for command in commands:
        needs_ranks = command.split()[0] in ("scale", "priority", "undo", "stacks", "flame", "trace")
        if command == "checkpoints 412 --keep 77":
            said = newcomer.says(f"tidepool checkpoints {kept} --keep {point}").stdout
            assert [line for line in said.splitlines() if line.split()[0] == point and "kept" in line.split()]
        elif command != "admin hosts":
            # `tidepool env` exits with 4 for a package that ranks do not have, such as timm.
            codes = (4,) if command.startswith("env torch") else (0,)
            newcomer.says(f"tidepool {_JOB.sub(elastic if needs_ranks else done, command)}", codes=codes)
    assert list((newcomer.work / "out").rglob("scores.csv"))
    newcomer.says(f"tidepool cancel {elastic}")
    wait_until(lambda: "CANCELLED" in newcomer.says(f"tidepool describe {elastic}").stdout, "the training has ended")


def test_cli_md_completes(newcomer: Newcomer) -> None:
    [bash] = [line for each in examples("cli.md") for line in each.text.splitlines() if "completion bash" in line]
    newcomer.says(bash)


def test_sdk_md(newcomer: Newcomer) -> None:
    newcomer.has("pandas")  # the document says to install it
    [program] = [each.text for each in examples("sdk.md") if each.language == "python"]
    (newcomer.work / "program.py").write_text(program.replace("out/", "fetched/"))
    found = newcomer.says("python program.py")
    assert "epoch 4 loss 0.2" in found.stdout
    assert (newcomer.work / "fetched").is_dir()


def test_without_a_login_and_without_the_site(newcomer: Newcomer, tmp_path: Path) -> None:
    stranger = {"HOME": str(tmp_path)}
    assert "tidepool login" in newcomer.says("tidepool ps", codes=(3,), **stranger).stderr
    away = {"TIDEPOOL_URL": "http://127.0.0.1:9", "TIDEPOOL_TOKEN": "x"}
    assert newcomer.says("tidepool --help", **away).stdout


#: Cells in a kernel of the newcomer's, one after the other; the notebook with what they put out.
RUN_CELLS = """
import json, sys, nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
book = nbformat.v4.new_notebook(cells=cells)
NotebookClient(book, timeout=300, allow_errors=True).execute()
print(json.dumps([[(o.get("text") or o.get("ename") or str(o.get("data")), str(o.get("evalue", "")))
                   for o in cell.outputs] for cell in cells]))
"""
#: Interrupts the kernel once a training of it runs, as its button does.
INTERRUPT = """
import os, signal, threading, time, tidepool
def interrupt():
    while not tidepool.jobs(state="RUNNING", search="endless"):
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
"""


def put_out(newcomer: Newcomer, *cells: str) -> list[str]:
    """Return the output of each cell, errors too."""
    newcomer.has("nbclient", "ipykernel")
    (newcomer.work / "run_cells.py").write_text(RUN_CELLS)
    (newcomer.work / "cells.json").write_text(json.dumps(cells))
    found = newcomer.says("python -W ignore run_cells.py < cells.json").stdout
    return ["\n".join("\n".join(part) for part in parts) for parts in json.loads(found.splitlines()[-1])]


def test_notebook_md(newcomer: Newcomer) -> None:
    tokens = MarkdownIt().parse((DOCUMENTS / "notebook.md").read_text())
    left_out = {number + 1 for number, token in enumerate(tokens) if token.content.startswith("<!-- not run")}
    cells = [each.content for number, each in enumerate(tokens) if each.type == "fence" and number not in left_out]
    assert len(cells) == 5
    begun, line, _, ran, shown = put_out(newcomer, *cells)
    assert "admin" in begun
    assert not line
    assert "step 40 loss" in ran
    assert "SUCCEEDED" in ran
    first, last = map(float, shown.split())
    assert last < first
    assert re.search(r"^(model|loss|torch) stays on the cluster", ran, re.MULTILINE), "there is no torch here"


def test_cells_that_fail_are_detached_or_interrupted(newcomer: Newcomer) -> None:
    begun, failed, refused, unknown, detached, fetched, _, interrupted, after = put_out(
        newcomer,
        "%load_ext tidepool\nx = 1",
        "%%tidepool\ny = 5\nz = x / 0",
        "file = open('/dev/null')\n%%tidepool\nfile.read()".replace("file = open('/dev/null')\n", ""),
        "%%tidepool --slot",
        "%%tidepool --detach\ny = x + 1",
        "%tidepool fetch {_.id}\nprint('y is', y)",
        INTERRUPT,
        "%%tidepool --name endless\nimport time\ntime.sleep(3600)",
        "%tidepool ps --search endless",
    )
    assert begun.startswith("pyspark.ml.torch.distributor is Tidepool's here")
    assert "ZeroDivisionError" in failed
    assert "z = x / 0" in failed
    assert "NameError" in refused
    assert unknown
    assert "%tidepool fetch" in detached
    assert "y is 2" in fetched
    assert "is being cancelled" in interrupted
    assert "CANCEL" in after
