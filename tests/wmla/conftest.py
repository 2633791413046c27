"""A cluster to submit to as WMLA's clients do."""

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.files.job_folder import job_folder
from jobs.models import InstanceGroup, Job
from jobs.states import JobState
from tests.factories import InstanceGroupFactory, ResourceGroupFactory, host_with_slots, set_job
from tests.wmla.commandline import RUN, TOKEN, Command
from tests.wmla.recorded import BASE, Answer, RecordedServer, recorded_server
from wmla.identifiers import job_of

DLI = "/platform/rest/deeplearning/v1"
ARGS = (
    "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=mnist --model-dir pytorch_edt "
    "--edt-options maxWorkers=4 --model-main main.py --epochs 10"
)
SCRIPT = """import argparse
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--numWorker", type=int, default=2)
parser.add_argument("--epochs", type=int, default=5)
args, _ = parser.parse_known_args()
"""

Submit = Callable[..., Any]


@pytest.fixture
def group(db: None) -> InstanceGroup:
    host_with_slots("gpu-host-1", 8)
    return InstanceGroupFactory(name="sig-elastic", resource_group=ResourceGroupFactory(name="ComputeHostsGPU"))


@pytest.fixture
def data(home: Path) -> Path:
    """The folder `mnist` below the data folder."""
    folder = home / "data/mnist"
    folder.mkdir()
    (folder / "train.npz").write_text("x")
    return folder


@pytest.fixture
def submit(alice_client: Client, group: InstanceGroup, data: Path) -> Submit:
    """Posts a model; sig_name None: as in Cloud Pak."""

    def post(
        args: str = ARGS,
        *,
        sig_name: str | None = "sig-elastic",
        files: Mapping[str, bytes] | None = None,
        upload: Any = None,
        client: Client = alice_client,
        **fields: Any,
    ) -> Any:
        query = {"args": args} if sig_name is None else {"sigName": sig_name, "args": args}
        sent = upload or model_tar(files or {"main.py": SCRIPT.encode()})
        return client.post(f"{DLI}/execs?{urlencode(query)}", {"file": sent, **fields})

    return post


@pytest.fixture
def on_prem(submit: Submit, alice: User) -> Job:
    return job_of(alice, submit().json()["id"])


@pytest.fixture
def cloud_pak(submit: Submit, alice: User) -> Job:
    return job_of(
        alice, submit(ARGS.replace("--edt-options maxWorkers=4", "--numWorker 2"), sig_name=None).json()["id"]
    )


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def server() -> Iterator[RecordedServer]:
    answers: dict[tuple[str, str], Answer | list[Answer]] = {
        ("GET", "/auth/v1/logon"): Answer({"accessToken": TOKEN}),
        ("POST", "/auth/v1/logoff"): Answer(),
        ("GET", f"{BASE}/status"): Answer({"status": "ok"}),
        ("GET", f"{BASE}/execs"): Answer([RUN, {**RUN, "id": "wmla-3", "state": "FINISHED"}]),
        ("GET", f"{BASE}/execs/wmla-12"): Answer(RUN),
        ("POST", f"{BASE}/execs/"): Answer(RUN),
    }
    with recorded_server(answers) as running:
        yield running


@pytest.fixture
def logged_on(command: Command, server: RecordedServer) -> Command:
    command.keep_logon(server)
    return command


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "mnist"
    (folder / "net/__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("print('training')\n")
    (folder / "net/layers.py").write_text("x = 1\n")
    (folder / "net/__pycache__/layers.pyc").write_bytes(b"\0")
    (tmp_path / "shared.py").write_text("y = 2\n")
    (folder / "shared.py").symlink_to(tmp_path / "shared.py")
    (folder / "gone.py").symlink_to(tmp_path / "nothing")
    return folder


def job_behind(answer: Any, alice: User) -> Job:
    assert answer.status_code == 200, answer.content
    return job_of(alice, answer.json()["id"])


def text_of(answer: Any) -> str:
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    return answer.content.decode()


def model_tar(files: Mapping[str, bytes], top: str = "pytorch_edt", name: str = "") -> SimpleUploadedFile:
    """Pack a model as notebooks do: gzipped, with one folder at the top."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"{top}/{path}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return SimpleUploadedFile(name or f"{top}.modelDir.tar", content.getvalue())


def started(job: Job, **changes: Any) -> Job:
    """Begin its first attempt; tests write what its ranks would."""
    job_folder(job).start_attempt(1)
    set_job(job, attempt=1, state=JobState.RUNNING, **changes)
    job.refresh_from_db()
    return job


def write(job: Job, path: str, content: str | bytes) -> None:
    """Below the folder of the first attempt."""
    file = job_folder(job).attempt(1) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def body_of(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content
