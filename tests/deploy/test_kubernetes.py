"""The manifests for Kubernetes as kubectl renders them: by Kubernetes' schema, and against the compose file."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from capacity.fleets import read_fleets
from tests.docker.compose import COMPOSE, EXECUTOR, ROOT, load
from tests.docker.test_compose import GIVEN
from tests.missing import leave_out

#: Made from the models of Kubernetes' Python client 37.0.2 (OpenAPI release-1.37), Apache License 2.0: the kinds that
#: the manifests use, without descriptions and `status`, and with no other keys than those that the models have.
SCHEMA: Final = json.loads((Path(__file__).parent / "kubernetes.json").read_text())
TREE: Final = ROOT / "deploy/kubernetes"
PAGE: Final = ROOT / "docs/operator/kubernetes.md"
#: Services of the compose file that the manifests leave out: MLflow's, and CPU processes in place of GPUs.
ELSEWHERE: Final = {"mlflow", "executor-virtual"}
WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "Job")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with its secrets, as an operator makes it."""
    if not shutil.which("kubectl"):
        leave_out("kubectl renders the manifests, and this machine has none: install it")
    folder = tmp_path_factory.mktemp("kubernetes")
    shutil.copytree(TREE, folder / "tree")
    (folder / "docker").mkdir()
    shutil.copy(ROOT / "docker/prepare", folder / "docker/prepare")
    prepared = [folder / "docker/prepare", folder / "state", "--address", "valkey"]
    as_root = {"PATH": os.environ["PATH"], "TIDEPOOL_PREPARE_AS_ROOT": "1"}
    subprocess.run(prepared, env=as_root, check=True, capture_output=True)
    shutil.copytree(folder / "state/secrets", folder / "tree/secrets")
    (folder / "tree/secrets/join-token").touch()
    return folder / "tree"


def render(tree: Path) -> list[dict[str, Any]]:
    done = subprocess.run(["kubectl", "kustomize", tree], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module")
def without_components(tree: Path) -> list[dict[str, Any]]:
    return render(tree)


@pytest.fixture(scope="module")
def rendered(tree: Path, without_components: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tree with all of its components, added as the page says."""
    [added] = re.findall(r"^components: .*$", PAGE.read_text(), re.MULTILINE)
    with (tree / "kustomization.yaml").open("a") as file:
        file.write(f"\n{added}\n")
    return render(tree)


@pytest.fixture(scope="module")
def containers(rendered: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Name of each workload -> its container, with the volumes of its pod."""
    found = {}
    for each in rendered:
        if each["kind"] in WORKLOADS:
            pod = each["spec"]["template"]["spec"]
            [container] = pod["containers"]
            found[each["metadata"]["name"].partition("-")[0]] = {**container, "pod": pod}
    return found


def config(rendered: list[dict[str, Any]], name: str) -> dict[str, str]:
    """Return the data of the ConfigMap to whose name kubectl appends a digest."""
    maps = {each["metadata"]["name"].partition("-")[0]: each for each in rendered if each["kind"] == "ConfigMap"}
    data: dict[str, str] = maps[name]["data"]
    return data


def validate(manifest: dict[str, Any]) -> None:
    name = f"V1{manifest['kind']}"
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}).validate(manifest)


def services() -> dict[str, dict[str, Any]]:
    known = load(COMPOSE, GIVEN)["services"] | {"executor": load(EXECUTOR, GIVEN)["services"]["executor"]}
    return {name: service for name, service in known.items() if name not in ELSEWHERE}


def test_the_manifests_are_by_kubernetes_schema(rendered: list[dict[str, Any]]) -> None:
    checked = [each for each in rendered if each["kind"] not in ("Secret", "ConfigMap")]
    for manifest in checked:
        validate(manifest)
    assert {each["kind"] for each in checked} >= {*WORKLOADS, "Service", "NetworkPolicy", "PersistentVolumeClaim"}


def test_a_misspelt_key_would_be_found(rendered: list[dict[str, Any]]) -> None:
    manifest = json.loads(json.dumps(next(each for each in rendered if each["kind"] == "DaemonSet")))
    manifest["spec"]["template"]["spec"]["hostNetwrok"] = True
    with pytest.raises(jsonschema.ValidationError, match="hostNetwrok"):
        validate(manifest)


def test_each_service_is_there_and_runs_the_same_command(containers: dict[str, dict[str, Any]]) -> None:
    assert containers.keys() == services().keys()
    for name, service in services().items():
        command = containers[name]["command"] if "command" in service else None
        if name == "setup":  # its hosts join
            assert service["command"][-1].startswith(command[-1])
        elif name == "executor":
            own = {"--url": "http://web:8000", "--name": "$(NODE_NAME)", "--address": "$(NODE_ADDRESS)"}
            assert [word for word in command if word not in own.values()] == [
                word for place, word in enumerate(service["command"]) if service["command"][place - 1] not in own
            ]
        else:
            assert command == service.get("command"), name


def test_the_autoscaler_and_its_fleets_are_there_where_the_site_adds_them(
    without_components: list[dict[str, Any]],
    rendered: list[dict[str, Any]],
    containers: dict[str, dict[str, Any]],
    tmp_path: Path,
) -> None:
    assert "autoscale" not in {each["metadata"]["name"] for each in without_components}
    assert config(without_components, "settings")["TIDEPOOL_FLEETS_FILE"] == ""
    place = Path(config(rendered, "settings")["TIDEPOOL_FLEETS_FILE"])
    for name in ("autoscale", "web"):
        mounted = {mount["mountPath"]: mount["name"] for mount in containers[name]["volumeMounts"]}
        [volume] = [of for of in containers[name]["pod"]["volumes"] if of["name"] == mounted[str(place.parent)]]
        assert volume["configMap"]["name"].startswith("fleets-")
    (tmp_path / place.name).write_text(config(rendered, "fleets")[place.name])
    [fleet] = read_fleets(tmp_path / place.name)
    assert fleet.most == 0, "what is not set yet starts nothing"
    assert (ROOT / fleet.command[1]).exists()


def test_each_service_is_checked_in_the_same_way(containers: dict[str, dict[str, Any]]) -> None:
    for name, service in services().items():
        if "healthcheck" in service:
            kind, *words = service["healthcheck"]["test"]
            asked = containers[name]["livenessProbe"]["exec"]["command"]
            assert asked == (["sh", "-c", *words] if kind == "CMD-SHELL" else words), name


def test_each_service_gets_its_secrets_and_settings(
    containers: dict[str, dict[str, Any]], rendered: list[dict[str, Any]]
) -> None:
    settings = config(rendered, "settings")
    for name, service in services().items():
        container, volumes = containers[name], containers[name]["pod"].get("volumes", [])
        keys = {item["key"] for volume in volumes for item in volume.get("secret", {}).get("items", [])}
        keys |= {
            mount["subPath"] for mount in container["volumeMounts"] if mount["name"] == "secrets" and "subPath" in mount
        }
        keys |= {"join-token"} & {each for volume in volumes if volume["name"] == "join" for each in ("join-token",)}
        assert {*service.get("secrets", [])} <= keys, name
        if name != "setup":
            assert "admin-password" not in keys, name
        given = {each["name"] for each in container.get("env", [])} | ({*settings} if "envFrom" in container else set())
        wanted = {each for each in service.get("environment", {}) if "MLFLOW" not in each}
        elsewhere = {"TIDEPOOL_ALIVE_FILE", "TIDEPOOL_VIRTUAL_SLOTS", "HOME", "TIDEPOOL_USER_IDS"}
        assert wanted - elsewhere <= given, name


def test_nobody_runs_as_root_or_gains_rights(containers: dict[str, dict[str, Any]]) -> None:
    for name, container in containers.items():
        pod = container["pod"]
        assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (1000, True)
        assert pod["automountServiceAccountToken"] is False
        for each in (container, *pod.get("initContainers", [])):
            closed = each["securityContext"]
            assert closed["allowPrivilegeEscalation"] is False, name
            assert closed["capabilities"]["drop"] == ["ALL"], name
            assert closed.get("runAsUser", 1000) == 1000 or closed["capabilities"]["add"] == ["CHOWN"], name
        assert container["securityContext"].get("readOnlyRootFilesystem", False) is (name != "executor")


def test_executors_get_no_database_and_nothing_of_the_pool_but_data_and_results(
    containers: dict[str, dict[str, Any]],
) -> None:
    executor = containers["executor"]
    mounts = {mount["mountPath"]: mount for mount in executor["volumeMounts"]}
    inside = {path.removeprefix("/home/tidepool/pool/") for path in mounts if path.startswith("/home/tidepool")}
    assert inside == {"data", "results", "run"}
    assert mounts["/home/tidepool/pool/data"]["readOnly"] is True
    given = {each["name"] for each in executor["env"]}
    assert given == {"NODE_NAME", "NODE_ADDRESS", "TIDEPOOL_ALIVE_FILE", "TIDEPOOL_PORTS", "TIDEPOOL_ISOLATION"}
    assert {"name": "TIDEPOOL_ISOLATION", "value": "walled"} in executor["env"], "a pod without a right has walls"
    assert "envFrom" not in executor


def test_secrets_that_docker_prepare_makes_are_all_there_is(rendered: list[dict[str, Any]]) -> None:
    given = {
        each["metadata"]["name"].partition("-")[0]: {*each["data"]} for each in rendered if each["kind"] == "Secret"
    }
    made = {*load(COMPOSE, GIVEN)["secrets"]}
    assert given == {"secrets": made, "join": {"join-token"}}
