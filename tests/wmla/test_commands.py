"""`--user-cmd`: a command of the user's in place of a script."""

import os
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from tidepool.command_runner import COMMAND_FILE, COMMAND_SOURCE

from jobs import actions
from jobs.control.dispatch import launch_spec
from jobs.models import InstanceGroup
from tests.wmla.conftest import DLI, Submit, job_behind, text_of

pytestmark = pytest.mark.django_db


def test_the_tutorials_command_runs_once_on_each_gpu(submit: Submit, alice: User) -> None:
    args = (
        "--exec-start distPyTorch --msd-image-name registry/image --msd-env HF_HOME=/tmp --numWorker 4 "
        "--user-cmd -- bash bash_torchrun.sh train.py --deepspeed ds.config"
    )
    job = job_behind(submit(args, files={"bash_torchrun.sh": b"torchrun $@\n", "train.py": b"x = 1\n"}), alice)
    assert (job.model.engine, job.min_slots, job.max_slots) == ("fixed", 4, 4)
    assert job.arguments == ["bash", "bash_torchrun.sh", "train.py", "--deepspeed", "ds.config"]
    spec = launch_spec(job)
    assert Path(spec.code_folder, spec.entry_point).read_text() == COMMAND_SOURCE
    assert Path(spec.code_folder, "bash_torchrun.sh").exists()
    assert launch_spec(actions.clone(job, alice)).arguments == job.arguments


def test_a_command_needs_no_files(alice_client: Client, group: InstanceGroup, data: Path, alice: User) -> None:
    query = urlencode({"args": "--exec-start PyTorch --user-cmd -- nvidia-smi"})
    job = job_behind(alice_client.generic("POST", f"{DLI}/execs/?{query}"), alice)
    assert (job.arguments, os.listdir(launch_spec(job).code_folder)) == (["nvidia-smi"], [COMMAND_FILE])


def test_an_elastic_one_is_refused(submit: Submit) -> None:
    answer = submit("--exec-start edtPyTorch --user-cmd -- ls")
    assert (answer.status_code, "distPyTorch" in text_of(answer)) == (400, True)
