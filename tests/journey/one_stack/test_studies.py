"""Studies of plain scripts on a stack, as docs/user/studies.md creates them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.documents import example
from tests.journey.running_stack import RunningStack
from tests.journey.training import cancel_all
from tests.test_architecture import ROOT
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(900)]

#: The loss falls with the distance of `lr` from 0.01; two scripts in three ways of reading their values agree.
TRAIN = """
import argparse, json, math, pathlib, tidepool
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float)
parser.add_argument("--width", type=int, default=32)
given = parser.parse_args()
told = dict(tidepool.trial().params)
assert told == json.loads(pathlib.Path("config.json").read_text())
assert {"lr", "epochs"} <= told.keys() and told == {name: vars(given)[name] for name in told}
for epoch in range(given.epochs):
    print(f"epoch {epoch + 1}/{given.epochs} loss {abs(math.log10(given.lr) + 2) + 1 / given.width:.4f}", flush=True)
"""

Run = Callable[[str], str]


@pytest.fixture
def api(stack: RunningStack) -> Iterator[httpx.Client]:
    with stack.api() as api:
        yield api


@pytest.fixture
def run(stack: RunningStack, api: httpx.Client, tmp_path: Path) -> Run:
    """Run lines of a shell in a folder with the script, as the administrator."""
    (tmp_path / "train.py").write_text(TRAIN)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("tidepool", f"{sys.executable} -m tidepool"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "runtime"),
        "TIDEPOOL_URL": stack.url,
        "TIDEPOOL_TOKEN": api.post("me/token/").raise_for_status().json()["token"],
    }

    def run(words: str) -> str:
        ended = subprocess.run(
            [shutil.which("bash") or "bash", "-euo", "pipefail", "-c", words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout

    return run


def test_studies_md_in_a_shell(run: Run, api: httpx.Client) -> None:
    run(example("docs/user/studies.md#Create a study.1").text)
    [study] = [row for row in api.get("studies/").json()["results"] if row["name"] == "rates"]
    address = f"studies/{study['id']}/"
    wait_until(lambda: api.get(address).json()["state"] != "RUNNING", "the study is over")
    over = api.get(address).json()
    assert (over["state"], over["counts"]["complete"]) == ("FINISHED", 6), over
    trials = api.get(f"{address}trials/").json()["results"]
    assert over["best"]["value"] == min(trial["value"] for trial in trials)
    assert all(api.get(f"jobs/{trial['job']}/").json()["attempt"] == 1 for trial in trials)
    said = run(example("docs/user/studies.md#Follow a study.1").text)
    assert over["best_text"] in said
    assert f"--lr {over['best']['values']['lr']} --width {over['best']['values']['width']}" in said


def test_studies_md_in_a_shell_by_hand(run: Run, api: httpx.Client) -> None:
    run(example("docs/user/studies.md#Several values by hand.1").text)
    [study] = [row for row in api.get("studies/").json()["results"] if row["name"] == "by-hand"]
    address = f"studies/{study['id']}/"
    wait_until(lambda: api.get(address).json()["state"] != "RUNNING", "the study is over")
    over = api.get(address).json()
    trials = api.get(f"{address}trials/").json()["results"]
    assert (over["state"], sorted(trial["values"]["lr"] for trial in trials)) == ("FINISHED", [0.01, 0.03, 0.1]), over
    assert over["parameters"] == {"epochs": 2}


def test_studies_md_in_python(run: Run, api: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(example("docs/user/studies.md#From Python.1").text)
    said = run("python study.py")
    [study] = [row for row in api.get("studies/").json()["results"] if row["name"] == "widths"]
    assert study["counts"]["complete"] == 4
    assert study["best_text"] in said
    (tmp_path / "sweep.py").write_text(example("docs/user/studies.md#Several values by hand.2").text)
    assert "Trial " in run("python sweep.py")


def test_nni_md_in_a_shell(run: Run, api: httpx.Client, tmp_path: Path) -> None:
    script, config, command = (example(f"docs/user/nni.md#Searches written for NNI.{n}").text for n in (1, 2, 3))
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "config.yml").write_text(config)
    run(command)
    [study] = [row for row in api.get("studies/").json()["results"] if row["name"] == "digits"]
    address = f"studies/{study['id']}/"
    wait_until(lambda: api.get(address).json()["state"] != "RUNNING", "the study is over")
    over = api.get(address).json()
    assert (over["state"], over["metric"], over["counts"]["complete"]) == ("FINISHED", "default", 4), over
    for trial in api.get(f"{address}trials/").json()["results"]:
        assert trial["value"] == pytest.approx(1 - abs(trial["values"]["lr"] - 0.01))
        curve = api.get(f"jobs/{trial['job']}/metrics/", params={"name": "default"}).json()["results"]
        assert [(point["step"], point["value"]) for point in curve][-1] == (3, pytest.approx(trial["value"]))


def test_a_users_training_has_its_share_and_no_trial_restarts(api: httpx.Client) -> None:
    cancel_all(api)
    model = {"model": "digits-cnn", "dataset": "digits", "instance_group": "sig-elastic", "parameters": {"epochs": 200}}
    space = {"learning-rate": {"kind": "log_uniform", "low": 1e-3, "high": 1e-1}}
    search = {"space": space, "metric": "accuracy", "goal": "maximize", "trials": 12, "at_once": 4, "max_slots": 2}
    study = api.post("studies/", json={**model, **search, "name": "twelve"}).raise_for_status().json()["id"]

    def trials() -> list[dict[str, Any]]:
        rows = api.get(f"studies/{study}/trials/").json()["results"]
        return [api.get(f"jobs/{row['job']}/").json() for row in rows]

    try:
        wait_until(lambda: [job["slots"] for job in trials()] == [2, 2, 2, 2], "four trials train on all eight GPUs")
        mine = api.post("jobs/", json={**model, "name": "mine", "max_slots": 8}).raise_for_status().json()["id"]
        wait_until(lambda: api.get(f"jobs/{mine}/").json()["slots"] == 4, "the training has half of the GPUs")
        said = api.get(f"jobs/{mine}/").json()["reason"]["text"]
        assert said == "4 of 8 GPUs: the study of twelve #0 has the same priority (5000)."
        wait_until(lambda: [job["slots"] for job in trials()] == [1, 1, 1, 1], "each trial trains on one GPU")
        assert [job["attempt"] for job in trials()] == [1, 1, 1, 1]
        assert all("counts as one training" in job["reason"]["text"] for job in trials())
    finally:
        api.post(f"studies/{study}/stop/")
        cancel_all(api)
    wait_until(lambda: not api.get(f"studies/{study}/").json()["counts"]["running"], "no trial is left")
    assert api.get(f"studies/{study}/").json()["state"] == "STOPPED"
