"""Scripts that know nothing of Tidepool, as real processes: their gang, their environment, their ends."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tidepool.command_runner import COMMAND_FILE, COMMAND_SOURCE

from jobs.control.outcome import RankEnd
from tests.runtime.lab import SCRIPTS, Lab
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp-digits"


@pytest.fixture
def make_fixed(make_lab: Callable[..., Lab]) -> Callable[..., Lab]:
    def make(script: str, *arguments: str, sizes: dict[str, int] | None = None, **launch: Any) -> Lab:
        sizes = sizes or {"a": 2}
        options = {"engine": "fixed", "min_slots": sum(sizes.values()), **launch}
        lab = make_lab(script, arguments=list(arguments), sizes=sizes, **options)
        for name in ("checkpoint", "model"):
            (lab.folder / name).mkdir()
        return lab

    return make


def seen(lab: Lab) -> dict[str, dict[str, str]]:
    """Return the environment that each rank's script had, by member_id."""
    wait_until(lambda: len(lab.exits()) == len(lab.started()) > 0, lab.story)
    return {path.parent.name: json.loads(path.read_text()) for path in lab.folder.glob("log/*/environment.json")}


@pytest.mark.parametrize("way", ["env", "own-store"])
def test_the_ranks_of_two_hosts_meet_and_see_what_torchrun_sets(make_fixed: Callable[..., Lab], way: str) -> None:
    lab = make_fixed("gang.py", way, sizes={"a": 1, "b": 1})
    lab.size(2)
    ranks = sorted(seen(lab).values(), key=lambda values: values["RANK"])

    assert [path.read_text() for path in lab.folder.glob("log/*/total")] == ["1.0", "1.0"], lab.story()
    for number, values in enumerate(ranks):
        expected = {"RANK": str(number), "LOCAL_RANK": "0", "GROUP_RANK": str(number), "WORLD_SIZE": "2"}
        assert {name: values[name] for name in expected} == expected
        assert (values["LOCAL_WORLD_SIZE"], values["MASTER_ADDR"]) == ("1", "127.0.0.1")
        assert values["CHECKPOINT_DIR"] == str(lab.folder / "checkpoint")
    assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"]
    active = lab.active()
    assert (active["generation"], active["world_size"], active["cause"]) == (1, 2, "start")


def test_no_variable_of_torchrun_is_missing(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("gang.py", "env")
    lab.size(2)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "--no-python"]
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
    told = subprocess.run([*command, "env", "-0"], env=plain, capture_output=True, text=True, timeout=120, check=True)
    names = {entry.partition("=")[0] for entry in told.stdout.split("\0") if "=" in entry} - plain.keys()
    # Variables for torchrun's own launcher, not for the script.
    names -= {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
    names = {name for name in names if not name.startswith("LC_")}  # Python may choose a locale for its children
    assert "MASTER_PORT" in names
    for values in seen(lab).values():
        assert sorted(names - values.keys()) == []


def test_a_rank_waits_for_its_gang_also_through_a_new_coordinator(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("gang.py", "env")
    lab.size(1)
    wait_until(lambda: lab.journal("rank_joined"), lab.story)
    os.kill(lab.coordinator["pid"], signal.SIGKILL)
    lab.start_coordinator()
    wait_until(lambda: len(lab.journal("rank_joined")) == 2, lab.story)
    assert not lab.journal("generation_planned"), "one of two is no gang"
    lab.size(2)
    assert len(seen(lab)) == 2
    assert lab.active()["world_size"] == 2


@pytest.mark.parametrize(("ranks", "expected"), [(2, ["0", "1"]), (1, ["-1"])])
def test_a_script_that_wants_its_local_rank_as_an_argument_gets_it(
    make_fixed: Callable[..., Lab], ranks: int, expected: list[str]
) -> None:
    lab = make_fixed("local_rank.py", "--epochs", "2", sizes={"a": ranks}, local_rank_argument="local-rank")
    lab.size(ranks)
    wait_until(lambda: len(lab.exits()) == ranks, lab.story)
    assert sorted(path.read_text() for path in lab.folder.glob("log/*/local_rank")) == expected, lab.story()


def test_own_projects_are_found_by_the_script_and_its_processes(make_fixed: Callable[..., Lab], tmp_path: Path) -> None:
    code = tmp_path / "project"
    for name, text in {
        "scripts/train.py": "import mine, plain, subprocess, sys\nprint(mine.NAME, plain.NAME, flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import mine; print(mine.NAME)'], check=True, cwd='/')\n",
        "lib/src/mine/__init__.py": "NAME = 'mine'\n",
        "plain.py": "NAME = 'plain'\n",
    }.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    options = {"code_folder": str(code), "requirements": "-e .\n-e lib\ntorch", "engine": "single"}
    lab = make_fixed("scripts/train.py", sizes={"a": 1}, **options)
    lab.size(1)
    wait_until(lambda: lab.exits(), lab.story)
    assert printed(lab) == "mine plain\nmine\n", lab.story()


@pytest.mark.parametrize(
    ("way", "left"), [("thread", "the thread monitor"), ("process", "the process helper"), ("exit", "a function that")]
)
def test_a_script_that_is_done_does_not_hold_its_gpu(make_fixed: Callable[..., Lab], way: str, left: str) -> None:
    lab = make_fixed("leftovers.py", way, sizes={"a": 1}, engine="single", linger_seconds=2.0)
    lab.size(1)
    [member] = wait_until(lambda: lab.exits().keys(), lab.story)
    assert lab.exits()[member]["code"] == 0
    assert lab.lingering() == [member]
    [text] = [path.read_text() for path in lab.folder.glob("log/*/stderr")]
    assert f"the script has ended, but {left}" in text


def test_what_works_after_the_end_of_a_script_may_end(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("leftovers.py", "work", sizes={"a": 1}, engine="single", linger_seconds=1.0)
    lab.size(1)
    wait_until(lambda: lab.exits(), lab.story)
    assert printed(lab).split()[-1] == "done", "it printed for longer than it could have been idle"


def test_a_single_process_is_run_as_by_hand(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("gang.py", "plain", sizes={"a": 1}, engine="single")
    lab.size(1)
    [values] = seen(lab).values()
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & values.keys()
    assert lab.active()["world_size"] == 1


def test_what_a_script_needs_for_saving_is_left_to_it(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("gang.py", "save", sizes={"a": 1}, engine="single")
    lab.size(1)
    wait_until(lambda: "ready" in printed(lab), lab.story)
    lab.end(grace_seconds=60.0)
    assert (lab.folder / "checkpoint" / "child").read_text() == "lives", "SIGTERM is for the script alone"
    [end] = lab.exits().values()
    assert (end["code"], end["stopped"]) == (0, True)


@pytest.fixture
def commanded(make_fixed: Callable[..., Lab], tmp_path: Path) -> Callable[..., Lab]:
    """A lab whose script is a command: its words."""
    code = tmp_path / "command"
    code.mkdir()
    (code / COMMAND_FILE).write_text(COMMAND_SOURCE)
    shutil.copy(SCRIPTS / "gang.py", code)

    def start(*words: str, **options: Any) -> Lab:
        lab = make_fixed(COMMAND_FILE, *words, code_folder=str(code), **options)
        lab.size(sum(lab.sizes.values()))
        return lab

    return start


def test_a_command_is_run_on_each_slot_as_a_node_of_one_device(commanded: Callable[..., Lab]) -> None:
    lab = commanded("sh", "-c", "exec python gang.py plain")
    ranks = sorted(seen(lab).values(), key=lambda values: values["RANK"])
    assert [end["code"] for end in lab.exits().values()] == [0, 0], lab.story()
    expected = ("NODE_RANK", "WMLA_NWORKER", "WMLA_WORKER_NDEVICE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    assert [[values[name] for name in expected] for values in ranks] == [
        ["0", "2", "1", "0", "1", "0"],
        ["1", "2", "1", "0", "1", "1"],
    ]
    own, theirs = ranks[0]["PATH"].split(os.pathsep)[1:3]
    assert (Path(own).parts[-4:-2], theirs) == ((".own", "python"), str(Path(sys.executable).parent))
    assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"]


@pytest.mark.parametrize(
    ("words", "code"),
    [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (["no-such-command-here", "x"], 1)],
)
def test_a_rank_ends_as_its_command_ends(commanded: Callable[..., Lab], words: list[str], code: int) -> None:
    lab = commanded(*words, sizes={"a": 1}, engine="single")
    wait_until(lambda: lab.exits(), lab.story)
    [end] = lab.exits().values()
    assert (end["code"], end["by_script"]) == (code, True)


def test_a_command_is_told_to_end_and_may_save(commanded: Callable[..., Lab]) -> None:
    lab = commanded("python", "-u", "gang.py", "save", sizes={"a": 1}, engine="single")
    wait_until(lambda: "ready" in printed(lab), lab.story)
    lab.end(grace_seconds=60.0)
    assert (lab.folder / "checkpoint" / "child").read_text() == "lives"
    [end] = lab.exits().values()
    assert (end["code"], end["stopped"]) == (0, True)


@pytest.mark.long
def test_torchrun_is_such_a_command(commanded: Callable[..., Lab]) -> None:
    places = "--nnodes $WMLA_NWORKER --nproc-per-node $WMLA_WORKER_NDEVICE --node-rank $NODE_RANK"
    address = "--master-addr $MASTER_ADDR --master-port $MASTER_PORT"
    lab = commanded("bash", "-c", f"exec torchrun {places} {address} gang.py env")
    ranks = sorted(seen(lab).values(), key=lambda values: values["RANK"])
    assert [(values["RANK"], values["WORLD_SIZE"]) for values in ranks] == [("0", "2"), ("1", "2")]
    assert [path.read_text() for path in lab.folder.glob("log/*/total")] == ["1.0", "1.0"], lab.story()


def test_a_session_works_in_a_single_process(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("gang.py", "session", "2", sizes={"a": 1}, engine="single")
    lab.size(1)
    lab.wait_for_the_end()
    assert [record["step"] for record in lab.steps()] == [1, 2, 3, 4]
    assert lab.journal("checkpoint"), "its own checkpoints are published"
    generations = [(entry["generation"], entry["world_size"]) for entry in lab.journal("generation_active")]
    assert generations == [(1, 1), (2, 1)], "the script's, and then the session's"
    assert (lab.folder / "model/train/model_epoch_final.pth").exists()


def test_a_session_in_a_single_process_outlives_its_coordinator(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("gang.py", "session", "100000", sizes={"a": 1}, engine="single")
    lab.size(1)
    lab.wait_for_steps(3)
    greetings = len(lab.journal("rank_joined"))
    os.kill(lab.coordinator["pid"], signal.SIGKILL)
    lab.start_coordinator()
    wait_until(lambda: len(lab.journal("rank_joined")) > greetings, lab.story)
    lab.wait_for_steps(3)
    assert not lab.exits()
    assert [entry["generation"] for entry in lab.journal("generation_active")] == [1, 2], "nothing was planned anew"


def test_a_session_in_a_gang_is_refused(make_fixed: Callable[..., Lab]) -> None:
    lab = make_fixed("gang.py", "session", "2")
    lab.size(2)
    wait_until(lambda: len(lab.exits()) == 2, lab.story)
    for end in lab.exits().values():
        assert end["code"] == 1
        assert "register the model with the engine 'elastic'" in end["error"]["message"]


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    folder.mkdir()
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    for name, part in (("train", slice(0, 600)), ("test", slice(600, 900))):
        np.savez(folder / f"{name}.npz", images=images[part], labels=labels[part].astype(np.int64))
    return folder


def printed(lab: Lab) -> str:
    return "".join(path.read_text() for path in sorted(lab.folder.glob("log/*/stdout")))


def test_ddp_goes_on_after_a_stop_at_the_end_of_an_epoch(tmp_path: Path, digits: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "DATA_DIR": str(digits), "CHECKPOINT_DIR": str(tmp_path)}

    def run(epochs: int) -> str:
        command = [sys.executable, str(EXAMPLE / "train.py"), "--epochs", str(epochs)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True).stdout

    run(1)
    saved = torch.load(tmp_path / "ddp-digits.pt", weights_only=True)
    torch.save(saved | {"epoch": 0, "step": math.ceil(600 / 32)}, tmp_path / "ddp-digits.pt")
    told = run(2)
    assert "rank 0 goes on at epoch 1, step 0" in told
    assert "epoch 1: loss" in told


def test_ddp_is_stopped_resumed_and_not_patched_up(make_fixed: Callable[..., Lab], digits: Path) -> None:
    example: dict[str, Any] = {"code_folder": str(EXAMPLE), "data_dir": str(digits)}
    lab = make_fixed("train.py", "--epochs", "1000", **example)
    lab.size(2)
    wait_until(lambda: "epoch 1" in printed(lab), lab.story)
    wait_until(lambda: lab.grouped() == sorted(lab.started()), "both tell, once, that they have formed a group")
    lab.end(grace_seconds=60.0)
    ends = lab.exits().values()
    assert [(end["code"], end["stopped"]) for end in ends] == [(0, True), (0, True)], lab.story()
    assert "saved after epoch" in printed(lab)

    resumed = make_fixed("train.py", "--epochs", "1000", **example)
    shutil.copy(lab.folder / "checkpoint" / "ddp-digits.pt", resumed.folder / "checkpoint")
    resumed.size(2)
    wait_until(lambda: printed(resumed).count("goes on at epoch") == 2, resumed.story)
    wait_until(lambda: "accuracy" in printed(resumed), resumed.story)
    resumed.kill(resumed.member_ids()[1])
    wait_until(lambda: len(resumed.exits()) == 2, resumed.story)

    ends = [resumed.exits()[member_id] for member_id in resumed.member_ids()]
    assert ends[1]["signal"] == signal.SIGKILL
    assert not ends[0]["stopped"], "it failed by itself, for it lost the other one"
    assert RankEnd("a", code=ends[0]["code"], error=ends[0]["error"]).lost_a_peer, ends[0]
    assert len(resumed.started()) == 2, "no rank of a gang is started again alone"
