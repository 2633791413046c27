"""Cost of WMLA's addresses beside our own: CPU of a submit and of a poll, memory of a log and of a result.

    python -m benchmarks.wmla [--json FILE] [--long]

A submit by `POST execs` with a model's tar is compared with the same by our own API in the same run: `POST models/`
with the same archive, then `POST jobs/`. A poll by Basic is compared with the same view called by who is known
already. Log and result are read to their end while the memory of this process is watched; `--long`: with 2 GB each.
Uses a database and a home of its own.
"""

import base64
import io
import json
import logging
import resource
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import signed_in, with_database

REPEATS = 60
POLLS = 200
DLI = "/platform/rest/deeplearning/v1"
ARGS = (
    "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=mnist --model-dir pytorch_edt "
    "--edt-options maxWorkers=4 --model-main main.py --epochs 10"
)
SCRIPT = Path(__file__).parent.parent / "examples/mnist-edt"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    size = 2 * 1024**3 if options.long else 64 * 1024**2
    with TemporaryDirectory(prefix="tidepool-wmla-") as home:
        show(with_database(lambda: measure(Path(home), size)), options.json)


def measure(home: Path, size: int) -> list[Result]:
    from django.conf import settings
    from django.test import Client

    from tests.factories import PASSWORD, InstanceGroupFactory, ResourceGroupFactory, UserFactory, host_with_slots

    logging.disable(logging.WARNING)
    settings.TIDEPOOL_HOME, settings.TIDEPOOL_RESULTS_ROOT = home, home / "results"
    settings.TIDEPOOL_DATA_ROOTS, settings.TIDEPOOL_MODEL_ROOTS = [home / "data"], [home / "models"]
    (home / "data/mnist").mkdir(parents=True)
    (home / "data/mnist/train.npz").write_bytes(b"x")
    host_with_slots("gpu-host-1", 8)
    InstanceGroupFactory(name="sig-elastic", resource_group=ResourceGroupFactory())
    alice = UserFactory(username="alice")
    client = signed_in(alice)
    basic = {"Authorization": "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()}
    exec_id, results = submits(client)
    return [*results, *polls(client, Client(headers={"host": "127.0.0.1", **basic}), exec_id), *reads(client, size)]


def model_tar(number: int) -> bytes:
    """Another model each time, so that each is registered."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(SCRIPT, "pytorch_edt")
        text = f"# {number}\nfrom fabric_model import FabricModel\n".encode()
        info = tarfile.TarInfo("pytorch_edt/main.py")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    return content.getvalue()


def submits(client: Any) -> tuple[str, list[Result]]:
    from django.core.files.uploadedfile import SimpleUploadedFile

    address = f"{DLI}/execs?{urlencode({'sigName': 'sig-elastic', 'args': ARGS})}"
    theirs, ours, exec_id = [], [], ""
    for number in range(REPEATS):
        archive = model_tar(number)
        sent = SimpleUploadedFile("pytorch_edt.modelDir.tar", archive)
        spent, answer = cpu(lambda sent=sent: client.post(address, {"file": sent}))
        exec_id = checked(answer, 200)["id"]
        # Under ASGI the address is judged once more, before the upload; this goes as far and ends there.
        judged, answer = cpu(lambda: client.post(address, {}))
        assert answer.status_code == 400
        theirs.append(spent + judged)
        sent = SimpleUploadedFile("own.tar.gz", model_tar(number + REPEATS))
        fields = {"name": "own", "entry_point": "pytorch_edt/main.py", "engine": "elastic", "file": sent}
        spent, answer = cpu(lambda fields=fields: client.post("/api/v1/models/", fields))
        checked(answer, 201)
        wanted = {"name": "T", "model": "own", "dataset": "mnist", "instance_group": "sig-elastic", "max_slots": 4}
        again, answer = cpu(
            lambda wanted=wanted: client.post("/api/v1/jobs/", json.dumps(wanted), content_type="application/json")
        )
        checked(answer, 201)
        ours.append(spent + again)
    warm = slice(5, None)
    added = [one - other for one, other in zip(theirs[warm], ours[warm], strict=True)]
    return exec_id, [
        result("submit: POST execs", "ms", theirs[warm], "POST models/ and jobs/", ours[warm]),
        result("submit: added beside our own", "ms", added),
    ]


def polls(known: Any, by_basic: Any, exec_id: str) -> list[Result]:
    """The view alone: by a request whose user is known, without middleware."""
    from django.contrib.auth.models import User
    from rest_framework.test import APIRequestFactory, force_authenticate

    from wmla.execs import Exec

    view, user = Exec.as_view(), User.objects.get(username="alice")

    def call() -> Any:
        request = APIRequestFactory(headers={"host": "127.0.0.1"}).get(f"{DLI}/execs/{exec_id}")
        force_authenticate(request, user)
        return view(request, exec_id=exec_id).render()

    address = f"{DLI}/execs/{exec_id}"
    checked(by_basic.get(address), 200)
    views = [cpu(call)[0] for _ in range(POLLS)][10:]
    full = [cpu(lambda: by_basic.get(address))[0] for _ in range(POLLS)][10:]
    added = [one - other for one, other in zip(full, views, strict=True)]
    return [result("poll: by Basic", "ms", full, "the view alone", views), result("poll: beyond the view", "ms", added)]


def reads(client: Any, size: int) -> list[Result]:
    """Memory that this process gained while a log and a result of `size` bytes were sent."""
    from jobs.files.job_folder import job_folder
    from jobs.models import Job
    from tests.factories import set_job

    job = Job.objects.filter(dialect="on-prem").latest("pk")
    folder = job_folder(job).start_attempt(1)
    set_job(job, attempt=1, state="RUNNING")
    fields = b"Timestamp: 1767268800000,\tGlobal steps: 1,\tIteration: 1,\tLoss: 1,\tAccuracy: 0\n"
    line = b"[2026-01-01 12:00:00] Train,\t" + fields
    log = folder / "log/driver-x.gpu-host-1/stdout"
    log.parent.mkdir()
    with log.open("wb") as stream:
        block = line * (1024**2 // len(line))
        for _ in range(size // len(block)):
            stream.write(block)
    results = [grown(f"log of {size >> 20} MB", lambda: client.get(f"{DLI}/execs/wmla-{job.pk}/log"))]
    log.unlink()
    with (folder / "model/train/weights.pth").open("wb") as stream:
        stream.truncate(size)  # zeros cost no disk, and zip stores them all the same
    return [*results, grown(f"result of {size >> 20} MB", lambda: client.get(f"{DLI}/execs/wmla-{job.pk}/result"))]


def grown(name: str, ask: Callable[[], Any]) -> Result:
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    answer = ask()
    read = sum(map(len, answer.streaming_content))
    seconds = time.perf_counter() - begun
    answer.close()
    if header := answer.headers.get("Content-Disposition"):
        assert read == int(header.split("size=")[1])
    print(f"{name}: {read / seconds / 1e6:.0f} MB/s")
    gained = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return result(f"{name}: memory", "MiB", [gained])


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """(milliseconds of CPU of this process, what it returned)"""
    before = time.process_time()
    value = work()
    return (time.process_time() - before) * 1000, value


def checked(answer: Any, status: int) -> Any:
    assert answer.status_code == status, answer.content
    return answer.json()


if __name__ == "__main__":
    main()
