"""Tests of a training's requirements: found, checked and kept; unknown imports are named before it is submitted."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
from django.contrib.auth.models import User
from django.test import Client
from tidepool.function_payload import CALL_FILE

from jobs import actions
from jobs.actions.environments import EnvironmentSpec, create_environment
from jobs.actions.requirements import environment_words
from jobs.control.dispatch import launch_spec
from jobs.files.job_folder import job_folder
from jobs.files.log_tail import topic_log
from jobs.messages import message, text_of
from jobs.models import Job
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

STATED = '# /// script\n# dependencies = ["stated"]\n# ///\nimport stated\n'


@pytest.fixture
def folder(db: None, code: RegisteredModelVersion) -> Path:
    return Path(code.path)


def test_the_option_counts_before_the_script_and_that_before_its_folder(submit: Submit, folder: Path) -> None:
    (folder / "requirements.txt").write_text("listed>=1  # here\n")
    assert submit().requirements == "listed>=1"
    (folder / "main.py").write_text(STATED)
    assert submit().requirements == "stated"
    given = submit(requirements="given\n")
    assert (given.requirements, launch_spec(given).requirements) == ("given", "given")
    assert submit(requirements="# none").requirements == ""


@pytest.mark.parametrize("requirements", ["--python 2.7", "--index-url x", "two words", 7, "-r nowhere.txt"])
def test_requirements_that_cannot_be_met_are_refused(submit: Submit, requirements: object) -> None:
    with pytest.raises(actions.InvalidSubmission) as refused:
        submit(requirements=requirements)
    assert list(refused.value.fields) == ["requirements"]


MIXED = "# pip freeze\nx @ http://a\nlisted>=1\nmine @ file:///home/me/mine-2.0-py3-none-any.whl\n"


def test_all_unusable_lines_are_named_and_the_rest_goes_on_if_the_user_says_so(submit: Submit, folder: Path) -> None:
    (folder / "requirements.txt").write_text(MIXED)
    with pytest.raises(actions.InvalidSubmission) as refused:
        submit()
    first, second, last = refused.value.fields["requirements"]
    assert first.startswith("requirements.txt, line 2, 'x @ http://a': an address must begin")
    assert second.startswith("requirements.txt, line 4, 'mine @ file:")
    assert "--skip-unusable-requirements" in last
    job = submit(skip_unusable_requirements=True)
    assert job.requirements == "listed>=1\nmine==2.0"
    told = job.events.order_by("seq")[1].detail
    assert (told["message"], told["lines"]) == ("requirements_skipped", [first, second])


def test_a_preview_names_the_lines_that_are_skipped(
    cluster: Cluster, given: dict[str, object], folder: Path, alice: User, client: Client
) -> None:
    (folder / "requirements.txt").write_text(MIXED)
    client.force_login(alice)
    for skip, status in [(False, 400), (True, 200)]:
        body = json.dumps({**given, "skip_unusable_requirements": skip})
        answer = client.post("/api/v1/jobs/preview/", body, content_type="application/json")
        assert answer.status_code == status
    assert [each.partition(":")[0] for each in answer.json()["skipped"]] == [
        "requirements.txt, line 2, 'x @ http",
        "requirements.txt, line 4, 'mine @ file",
    ]


IMAGE = f"docker.io/pytorch/pytorch@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        ("# none", ""),
        ("numpy>=1", ""),
        ("timm>=1\nnumpy>=1", "It adds timm>=1 to the cluster's packages. The first training with it"),
        ("numpy<2", "It gets an environment of its own, because it asks for another numpy than the cluster's. The"),
        (f"--image {IMAGE}", f"It runs in the image {IMAGE}, which each host pulls once."),
    ],
)
def test_a_preview_says_which_packages_it_runs_with(
    cluster: Cluster,
    given: dict[str, object],
    folder: Path,
    alice: User,
    client: Client,
    requirements: str,
    words: str,
) -> None:
    client.force_login(alice)
    body = json.dumps({**given, "requirements": requirements})
    seen = client.post("/api/v1/jobs/preview/", body, content_type="application/json").json()["environment_text"]
    assert seen.startswith(words)
    assert bool(seen) == bool(words)


def test_condas_file_counts_where_there_is_no_other(submit: Submit, folder: Path) -> None:
    (folder / "environment.yml").write_text("dependencies: [{pip: [colorama]}]\n")
    assert submit().requirements == "colorama"
    (folder / "requirements.txt").write_text("listed")
    assert submit().requirements == "listed"


CONDA = "channels: [conda-forge]\ndependencies: [libfoo=1.2, {pip: [colorama]}]\n"


def test_condas_own_packages_need_a_host_with_a_solver(
    submit: Submit, folder: Path, cluster: Cluster, alice: User
) -> None:
    (folder / "environment.yml").write_text(CONDA)
    with pytest.raises(actions.InvalidSubmission) as refused:
        submit()
    [line, parts, _] = refused.value.fields["requirements"]
    assert "libfoo is a package of conda, which hosts do not have" in line
    assert parts == "Of environment.yml, these lines need no conda and can go into a requirements.txt: colorama."
    with pytest.raises(actions.InvalidSubmission, match="no host of the instance group has one"):
        submit(requirements="--conda libfoo=1.2")
    Host.objects.filter(name="gpu-host-1").update(conda="micromamba")
    job = submit()
    assert job.requirements.splitlines() == ["--conda libfoo=1.2", "--conda-channels conda-forge", "colorama"]
    assert actions.clone(job, alice).requirements == job.requirements
    assert environment_words(job).startswith("it gets an environment of its own, for which conda solves libfoo=1.2. ")


def test_what_the_cluster_has_needs_no_solver(submit: Submit, folder: Path, cluster: Cluster) -> None:
    Host.objects.update(conda="conda")
    (folder / "environment.yml").write_text("channels: [conda-forge]\ndependencies: [pytorch, {pip: [colorama]}]\n")
    assert submit().requirements == "colorama\ntorch"


def test_a_clone_requires_the_same(submit: Submit, alice: User) -> None:
    assert actions.clone(submit(requirements="given"), alice).requirements == "given"


@pytest.mark.parametrize(
    ("source", "requirements", "missing"),
    [
        (
            "import os, nowhere.part\nimport local\nfrom elsewhere import x\nimport torch, tidepool\n",
            "",
            ["elsewhere", "nowhere"],
        ),
        ("try:\n    import nowhere\nexcept ImportError:\n    pass\ndef f():\n    import elsewhere\n", "", []),
        ("import nowhere\n", "brings-it", []),
    ],
)
def test_modules_that_nobody_provides_are_named_beforehand(
    cluster: Cluster, given: dict[str, object], folder: Path, alice: User, client: Client,
    source: str, requirements: str, missing: list[str],
) -> None:  # fmt: skip
    (folder / "main.py").write_text(source)
    (folder / "local.py").write_text("import json\n")
    client.force_login(alice)
    body = json.dumps({**given, "requirements": requirements})
    answer = client.post("/api/v1/jobs/preview/", body, content_type="application/json")
    assert (answer.status_code, answer.json()["missing"]) == (200, missing)


@pytest.mark.parametrize("engine", ["single", "elastic"])
def test_what_cannot_be_installed_ends_the_training(
    cluster: Cluster, submit: Submit, code: RegisteredModelVersion, engine: str
) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=engine)
    job = submit(max_slots=1, requirements="given")
    cluster.turn()
    job = Job.objects.get(pk=job.pk)
    host = cluster.hosts[job.run.lead_host]
    journal = f"shim.{host.name}"
    host.write(job, journal, "environment_building", requirements="given")
    cluster.report()
    assert Job.objects.get(pk=job.pk).state == JobState.STARTING
    host.write(job, journal, "environment_failed", why="error: No solution\n  cause: there is no given")
    cluster.report()
    after = Job.objects.get(pk=job.pk)
    assert (after.state, after.reason_code) == (JobState.FAILED, "ENVIRONMENT_FAILED")
    assert after.run.error["message"] == "there is no given"
    codes = list(after.events.order_by("seq").values_list("reason", flat=True))
    assert codes[-2:] == ["ENVIRONMENT_BUILDING", "ENVIRONMENT_FAILED"]


@pytest.mark.parametrize(
    ("requirements", "sentence"),
    [
        ("--image a@sha256:0", "Pulling the image a@sha256:0 on a, unless it is there."),
        ("--folder /opt/envs/vision", "Reading the environment in /opt/envs/vision on a."),
        ("--conda numpy=1.26\n--conda x\ntqdm", "Making an environment of conda on a, with numpy=1.26, x."),
    ],
)
def test_what_a_host_prepares(requirements: str, sentence: str) -> None:
    assert text_of(message("environment_building", host="a", requirements=requirements)) == sentence


def test_a_folder_that_changes_under_a_training_is_an_event(
    cluster: Cluster, submit: Submit, code: RegisteredModelVersion, carol: User
) -> None:
    create_environment(EnvironmentSpec("vision", folder="/opt/envs/vision"), carol)
    job = submit(max_slots=1, named_environment="vision")
    cluster.turn()
    job = Job.objects.get(pk=job.pk)
    host = cluster.hosts[job.run.lead_host]
    changed = {"folder": "/opt/envs/vision", "digest": "0f", "changes": ["timm 1.0 -> 1.1"]}
    host.write(job, f"host.{host.name}", "environment_changed", **changed)
    cluster.report()
    event = job.events.get(reason="ENVIRONMENT_CHANGED")
    assert f"The folder /opt/envs/vision has changed on {host.name} " in text_of(event.detail)
    assert Job.objects.get(pk=job.pk).state == job.state, "it goes on"


def test_the_log_of_an_installation_stands_beside_those_of_ranks(
    cluster: Cluster, submit: Submit, alice: User, client: Client
) -> None:
    job = submit(max_slots=1, requirements="given")
    cluster.turn()
    job = Job.objects.get(pk=job.pk)
    folder = job_folder(job).attempt(1) / "log" / "environment@gpu-host-1"
    folder.mkdir(parents=True)
    (folder / "stdout").write_text("Installing given.\n")
    client.force_login(alice)
    logs = client.get(f"/api/v1/jobs/{job.pk}/logs/files/").json()["results"]
    assert (logs[0]["rank"], logs[0]["stream"]) == ("environment@gpu-host-1", "stdout")
    lines = client.get(f"/api/v1/jobs/{job.pk}/logs/lines/", {"rank": "environment@gpu-host-1"}).json()
    assert lines["lines"][0]["spans"][0]["text"] == "Installing given."
    found = topic_log(logs[0]["topic"])
    assert found is not None
    assert found.path == folder / "stdout"


CLIENT = "mlflow-skinny==3.13.*\npandas"
IN_A_FUNCTION = "def train():\n    import mlflow\n"


@pytest.mark.parametrize(
    ("script", "lines", "kept"),
    [
        (IN_A_FUNCTION, "", CLIENT),
        (IN_A_FUNCTION, "timm", f"{CLIENT}\ntimm"),
        (IN_A_FUNCTION, "mlflow-skinny==3.17.2", "mlflow-skinny==3.17.2\npandas"),
        (IN_A_FUNCTION, "mlflow", "mlflow\npandas"),
        (IN_A_FUNCTION, "# none", ""),
        ("import os\n", "timm", "timm"),
    ],
)
def test_a_site_with_mlflow_supplies_the_client_to_code_that_imports_it(
    submit: Submit, folder: Path, settings: Any, script: str, lines: str, kept: str
) -> None:
    (folder / "main.py").write_text(script)
    settings.TIDEPOOL_MLFLOW_SOCKET = "/nowhere/server.sock"
    assert submit(requirements=lines).requirements == kept
    settings.TIDEPOOL_MLFLOW_SOCKET = ""
    assert CLIENT not in submit(requirements=lines).requirements


@pytest.mark.parametrize(("way", "uses"), [("inside", True), ("outside", True), ("neither", False)])
def test_a_function_that_imports_mlflow_gets_its_client(
    submit: Submit, folder: Path, settings: Any, way: str, uses: bool
) -> None:
    settings.TIDEPOOL_MLFLOW_SOCKET = "/nowhere/server.sock"
    (folder / CALL_FILE).write_bytes(cloudpickle.dumps(FUNCTIONS[way]))
    assert (submit().requirements == CLIENT) is uses


@pytest.mark.parametrize(
    ("cell", "uses"),
    [
        ("import mlflow", True),
        ("x = 1\nif x:\n    from mlflow import pytorch\n" + "# more than a short text\n" * 20, True),
        ("from mlflow.models import infer_signature\n" + "# more than a short text\n" * 20, True),
        ("import mlflow_export", False),
        ("print('import mlflow')", False),
    ],
)
def test_a_cell_that_imports_mlflow_gets_its_client(
    submit: Submit, folder: Path, settings: Any, cell: str, uses: bool
) -> None:
    settings.TIDEPOOL_MLFLOW_SOCKET = "/nowhere/server.sock"
    (folder / CALL_FILE).write_bytes(cloudpickle.dumps((FUNCTIONS["neither"], (cell, None), {})))
    assert (submit().requirements == CLIENT) is uses


def _functions() -> dict[str, Callable[[], object]]:
    """Functions as a notebook has them: they are pickled by value."""
    names: dict[str, Any] = {"mlflow": ModuleType("mlflow"), "__name__": "__main__"}
    exec(
        "def inside():\n    import mlflow.pytorch\ndef outside():\n    mlflow.start_run()\n"
        "def neither():\n    return '/mlflow/', 'mlflow-x'\n",
        names,
    )
    return names


FUNCTIONS = _functions()
