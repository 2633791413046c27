"""The compose files and the Dockerfile, without a container engine: by the schema, and by what must hold of each."""

import ast
import importlib.util
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.docker.compose import COMPOSE, DOCKERFILE, EXECUTOR, ROOT, Missing, Tagged, load, variables_of
from tests.test_architecture import APPS
from webapp.help.documents import DOCUMENTS

#: From the Compose Specification (https://github.com/compose-spec/compose-spec), Apache License 2.0.
SCHEMA = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
GIVEN = {
    "TIDEPOOL_UID": "1000",
    "TIDEPOOL_GID": "1000",
    "TIDEPOOL_STATE": "/srv/tidepool",
    "TIDEPOOL_POOL": "/srv/tidepool/pool",
    "TIDEPOOL_URL": "https://gpus.example.org",
}
FILES = [COMPOSE, EXECUTOR]
#: Folder of MLflow's server in the settings, relative to the checkout.
MLFLOW_VENV = ".venv-mlflow"
MLFLOW_PAGE = ROOT / "docs/operator/mlflow.md"
FLEETS_PAGE = ROOT / "docs/operator/autoscaling.md"
SERVICES = [(file, name) for file in FILES for name in load(file, GIVEN)["services"]]
#: They end by themselves.
ONCE = {"setup"}
SECRET_WORDS = re.compile(r"PASSWORD|TOKEN|SECRET|(DATABASE|BROKER)_URL")


@pytest.fixture(params=SERVICES, ids=lambda each: each[1])
def service(request) -> dict[str, Any]:
    file, name = request.param
    return {**load(file, GIVEN)["services"][name], "name": name}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_file_is_one_by_the_specification(file):
    jsonschema.Draft202012Validator(SCHEMA).validate(load(file, GIVEN))


def test_a_misspelt_key_would_be_found():
    file = load(COMPOSE, GIVEN)
    file["services"]["web"]["healtcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="healtcheck"):
        jsonschema.Draft202012Validator(SCHEMA).validate(file)


@pytest.mark.parametrize("name", ["TIDEPOOL_UID", "TIDEPOOL_STATE", "TIDEPOOL_POOL"])
def test_nothing_starts_unprepared(name):
    with pytest.raises(Missing, match="run docker/prepare first"):
        load(COMPOSE, {**GIVEN, name: ""})


def test_nobody_runs_as_root_or_gains_rights(service):
    is_executor = service["name"].startswith("executor")
    owner = service["entrypoint"][:4] if is_executor else service["user"]
    assert owner == (["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"] if is_executor else "1000:1000")
    assert service["cap_drop"] == ["ALL"]
    assert is_executor or "cap_add" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")


def test_everything_is_started_again(service):
    assert service["restart"] == ("on-failure" if service["name"] in ONCE else "unless-stopped")


def test_all_but_what_runs_scripts_of_users_cannot_write_to_its_image(service):
    assert bool(service.get("read_only")) == (not service["name"].startswith("executor"))


def test_every_service_has_a_health_check_with_a_deadline(service):
    if service["name"] not in ONCE:
        check = service["healthcheck"]
        assert check["test"][0] in ("CMD", "CMD-SHELL")
        assert {"interval", "timeout", "retries", "start_period"} <= check.keys()


def test_secrets_reach_a_service_as_files_alone(service):
    environment = service.get("environment", {})
    told = {name: value for name, value in environment.items() if SECRET_WORDS.search(name)}
    assert [name for name, value in told.items() if not value.startswith("/run/secrets/")] == []
    assert "TOKEN" not in " ".join(service.get("command", []))


def test_every_secret_that_is_read_is_given(service):
    read = set(re.findall(r"/run/secrets/([\w-]+)", json.dumps(service)))
    assert read <= set(service.get("secrets", []))


def test_executors_get_no_database_and_nothing_of_the_pool_but_data_and_results():
    services = load(COMPOSE, GIVEN)["services"] | {"joined": load(EXECUTOR, GIVEN)["services"]["executor"]}
    for name in ("executor", "executor-virtual", "joined"):
        executor = services[name]
        assert not [variable for variable in executor["environment"] if "DATABASE" in variable]
        inside = {volume.split(":", 1)[1].removeprefix("/home/tidepool/pool/") for volume in executor["volumes"]}
        assert inside == {"data:ro", "results", "run", "/tmp"}
    assert services["executor"]["secrets"] == ["executor-broker-url"]


def test_gpus_are_reserved_where_they_are_real():
    services = load(COMPOSE, GIVEN)["services"]
    [device] = services["executor"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", "all", ["gpu"])
    assert services["executor-virtual"]["deploy"] == {}
    assert services["executor-virtual"]["environment"]["TIDEPOOL_VIRTUAL_SLOTS"] == "4"


def test_the_broker_keeps_what_it_was_told_and_forgets_nothing():
    command = load(COMPOSE, GIVEN)["services"]["valkey"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--proto-max-bulk-len"] == "32mb"
    assert options["--aclfile"] == "/run/secrets/broker-users"


def test_ports_are_open_on_this_machine_alone_until_told_otherwise():
    services = load(COMPOSE, GIVEN)["services"]
    assert {name: each["ports"] for name, each in services.items() if "ports" in each} == {
        "valkey": ["127.0.0.1:6379:6379"],
        "web": ["127.0.0.1:8000:8000"],
    }


def test_podman_waits_for_no_service():
    """Podman does not start a container that requires `setup`, which has ended."""
    changed = yaml.load((ROOT / "docker/podman.yml").read_text(), Tagged)["services"]
    services = load(COMPOSE, GIVEN)["services"]
    assert {name for name, of in changed.items() if of.get("depends_on", ...) is None} == {
        name for name, of in services.items() if "depends_on" in of
    }
    folders = [folder.partition(":")[0] for folder in changed["postgres"]["tmpfs"]]
    assert folders == services["postgres"]["tmpfs"]


def copies() -> list[tuple[str, str]]:
    return re.findall(r"^COPY (\S+) (\S+)$", DOCKERFILE.read_text(), re.MULTILINE)


def test_the_image_holds_what_is_copied_and_all_that_the_services_need():
    assert len(copies()) == DOCKERFILE.read_text().count("\nCOPY ")
    assert [source for source, _ in copies() if not (ROOT / source).exists()] == []
    assert {*APPS, "webapp", "runtime", "templates", "static", "examples", "manage.py"} <= {s for s, _ in copies()}
    assert {document.path.partition("/")[0] for document in DOCUMENTS} <= {s for s, _ in copies()}
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {source.partition("/")[0] for source, _ in copies()} & set(ignored)
    assert {".git", ".venv", ".env", ".tidepool"} <= set(ignored)


def test_one_image_is_built_for_all_services_and_never_asked_of_a_registry():
    services = load(COMPOSE, GIVEN)["services"]
    assert [name for name, each in services.items() if "build" in each] == ["setup"]
    sharing = {name: each for name, each in services.items() if each["image"] == services["setup"]["image"]}
    assert {each["pull_policy"] for each in sharing.values()} == {"never"}
    assert [name for name, each in sharing.items() if name != "setup" and "setup" not in each["depends_on"]] == []


def test_the_image_does_not_run_as_root():
    assert re.findall(r"^USER (\S+)$", DOCKERFILE.read_text(), re.MULTILINE) == ["tidepool"]


def test_what_the_services_call_exists(service):
    words = [*service.get("command", []), *service.get("healthcheck", {}).get("test", [])]
    text = " ".join(map(str, words))
    for command in re.findall(r"manage\.py (\w+)", text):
        found = [*ROOT.glob(f"*/management/commands/{command}.py")]
        assert found or command == "migrate", command
    for module in re.findall(r"-[mA] ([\w.]+)|(\w+\.\w+):application", text):
        name = "".join(module)
        assert importlib.util.find_spec(name.partition(".")[0]), name
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name
    for script in re.findall(r"docker/[\w.]+", text):
        assert (script, script) in copies()


def test_health_checks_import_the_standard_library_alone():
    tree = ast.parse((ROOT / "docker/health.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"argparse", "socket", "sys", "time", "urllib.error", "urllib.request"}


@pytest.mark.parametrize(("socket_path", "built"), [("", ""), ("/home/tidepool/pool/run/mlflow/server.sock", "1")])
def test_the_image_has_mlflow_where_the_site_does(socket_path, built):
    services = load(COMPOSE, {**GIVEN, "TIDEPOOL_MLFLOW_SOCKET": socket_path})["services"]
    assert services["setup"]["build"]["args"]["MLFLOW"] == built
    assert f'[ -z "$MLFLOW" ] || {{ python -m venv {MLFLOW_VENV} ' in DOCKERFILE.read_text()


def test_what_the_operator_is_told_starts_mlflow_beside_everything_else():
    """`--profile` would replace the profiles of .env."""
    block = re.compile(r"^```sh\nCOMPOSE_PROFILES=([\w,]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    told = block.search(MLFLOW_PAGE.read_text())
    assert told is not None
    services = load(COMPOSE, GIVEN)["services"]
    profiles = {name: set(each.get("profiles", [])) for name, each in services.items()}
    assert {name for name, of in profiles.items() if of == {"mlflow"}} == {"mlflow"}
    started = {name for name, of in profiles.items() if not of or of & set(told[1].split(","))}
    assert started == set(services) - {"executor-virtual", "autoscale"}
    set_there = {line.split("=")[0] for line in told[2].splitlines()}
    assert set_there <= variables_of(COMPOSE)


def test_what_the_operator_is_told_starts_the_autoscaler():
    told = re.search(r"^COMPOSE_PROFILES=([\w,]+)\n(TIDEPOOL_FLEETS_FILE)=(.*)$", FLEETS_PAGE.read_text(), re.MULTILINE)
    assert told is not None
    services = load(COMPOSE, {**GIVEN, told[2]: told[3]})["services"]
    assert [name for name, each in services.items() if each.get("profiles") == ["autoscale"]] == ["autoscale"]
    assert "autoscale" in told[1].split(",")
    for name in ("autoscale", "web"):  # the page Capacity and the limits of a new training read the file as well
        folders = [volume.split(":")[1:] for volume in services[name]["volumes"]]
        assert [str(Path(told[3]).parent), "ro"] in folders
        assert services[name]["environment"]["TIDEPOOL_FLEETS_FILE"] == told[3]


def test_what_commands_of_fleets_keep_reaches_the_autoscaler_alone():
    services = load(COMPOSE, GIVEN)["services"]
    home = services["autoscale"]["environment"]["HOME"]
    having = [
        name for name, of in services.items() if home in [folder.split(":")[1] for folder in of.get("volumes", [])]
    ]
    assert having == ["autoscale"]


def test_mlflow_is_healthy_while_it_listens():
    """Not while the site answers: it does so without MLflow, and to the name `web` it says 400."""
    with tempfile.TemporaryDirectory(prefix="tidepool-") as folder, socket.socket(socket.AF_UNIX) as server:
        given = {**GIVEN, "TIDEPOOL_MLFLOW_SOCKET": f"{folder}/s"}
        _, _, *check = load(COMPOSE, given)["services"]["mlflow"]["healthcheck"]["test"]

        def healthy():
            return subprocess.run([sys.executable, *check], cwd=ROOT, check=False).returncode == 0

        assert not healthy()
        server.bind(f"{folder}/s")
        server.listen()
        assert healthy()
        server.close()
        assert not healthy(), "what is left is a file"


def prepared(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "checkout/docker").mkdir(parents=True, exist_ok=True)
    script = Path(shutil.copy(ROOT / "docker/prepare", tmp_path / "checkout/docker/prepare"))
    environment = {"PATH": os.environ["PATH"], "TIDEPOOL_PREPARE_AS_ROOT": "1"}
    return subprocess.run([script, *arguments], env=environment, capture_output=True, text=True, check=False)


def dotenv(tmp_path: Path) -> dict[str, str]:
    lines = (tmp_path / "checkout/.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_prepare_makes_private_folders_and_secrets_for_every_name_in_the_files(tmp_path):
    made = prepared(tmp_path, str(tmp_path / "state"), "--address", "10.0.0.5", "--site", "gpus.example.org")
    assert made.returncode == 0, made.stderr
    given = dotenv(tmp_path)
    compose = load(COMPOSE, given)
    for secret in compose["secrets"].values():
        assert stat.S_IMODE(Path(secret["file"]).stat().st_mode) == 0o600
        assert Path(secret["file"]).read_text().strip()
    sources = {volume.split(":")[0] for each in compose["services"].values() for volume in each.get("volumes", [])}
    mounted = sources - compose["volumes"].keys()
    assert {stat.S_IMODE(Path(folder).stat().st_mode) for folder in mounted} == {0o700}
    assert compose["services"]["web"]["environment"]["TIDEPOOL_ALLOWED_HOSTS"] == "gpus.example.org,127.0.0.1"
    assert (tmp_path / "state/secrets/executor-broker-url").read_text().endswith("@10.0.0.5:6379/0\n")
    secrets = {
        (tmp_path / "state/secrets" / name).read_text().strip() for name in ("broker-password", "admin-password")
    }
    assert not any(secret in (tmp_path / "checkout/.env").read_text() for secret in secrets)


def test_prepare_again_keeps_the_secrets(tmp_path):
    prepared(tmp_path, str(tmp_path / "state"))
    before = {file.name: file.read_text() for file in (tmp_path / "state/secrets").iterdir()}
    again = prepared(tmp_path, str(tmp_path / "state"))
    assert again.returncode == 0, again.stderr
    assert {file.name: file.read_text() for file in (tmp_path / "state/secrets").iterdir()} == before


@pytest.mark.parametrize("wrong", [[], ["--pool", "/x"], ["/x", "--pool"], ["/x", "--colour", "red"]])
def test_prepare_refuses_what_it_does_not_know(tmp_path, wrong):
    refused = prepared(tmp_path, *wrong)
    assert refused.returncode == 1
    assert refused.stderr.startswith("prepare: ")
    assert not (tmp_path / "checkout/.env").exists()


def test_every_variable_of_the_files_is_explained():
    explained = "".join((ROOT / "docs/operator" / name).read_text() for name in ("install.md", "join-a-host.md"))
    written = set(re.findall(r"^(\w+)=", (ROOT / "docker/prepare").read_text(), re.MULTILINE))
    assert {name for file in FILES for name in variables_of(file) if f"`{name}`" not in explained} == set()
    assert {name for name in written if name.startswith("TIDEPOOL_") and f"`{name}`" not in explained} == set()
