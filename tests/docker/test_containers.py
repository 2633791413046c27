"""docker-compose.yml in containers, by the commands of the operator's pages: it trains, survives kills of its main
processes, is upgraded, and comes back from a backup, on a new machine too.

Needs docker or podman with the base images; CONTRIBUTING.md says how to have them.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tidepool.confine.probe import RIGHTS
from tidepool.version import VERSION_HEADER

from tests.docker.containers import PROJECT, Containers, engine_or_leave_out
from tests.docker.documents import commands, settings_of
from tests.journey.training import Training
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]

CONTROL_PLANE = ("web", "scheduler", "control", "background")
SERVICES = ("postgres", "valkey", *CONTROL_PLANE, "executor-virtual")
#: Services that are killed: those whose end nobody may notice for long.
KILLED = (*CONTROL_PLANE, "valkey")
#: Version of the image that the upgrade brings.
NEXT_VERSION = "999.0.0"


@pytest.fixture(scope="module")
def site() -> Iterator[Containers]:
    engine = engine_or_leave_out()
    with tempfile.TemporaryDirectory(prefix="tide-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        site = Containers(engine, Path(folder))
        site.check_out()
        site.prepare()
        try:
            start(site)
            yield site
        finally:
            site.end()


def start(site: Containers) -> None:
    try:
        site.start()
        site.wait_until_healthy(*SERVICES)
    except AssertionError as error:
        logs = "".join(f"--- {name}\n{log[-3000:]}\n" for name, log in site.logs())
        raise AssertionError(f"{error}\n{logs}") from None


@pytest.fixture
def api(site: Containers) -> Iterator[httpx.Client]:
    with site.api() as api:
        yield api


@pytest.fixture(scope="module")
def training(site: Containers) -> Iterator[Training]:
    """A training on all four GPUs, for as long as it is let."""
    with site.api() as api:
        site.register_recorder(api)
        yield endless(site, api, "long")


def endless(site: Containers, api: httpx.Client, name: str) -> Training:
    options = {"step-seconds": 0.02, "checkpoint-every": 1}
    training = Training(api, site.pool, name, max_slots=4, epochs=100_000, **options)
    training.wait_for_size(4)
    wait_for_steps(training, 50)
    return training


def wait_for_steps(training: Training, count: int) -> None:
    goal = training.steps + count
    wait_until(lambda: training.steps >= goal, lambda: f"{count} more steps: {training.now}")


def resumed_at(training: Training) -> int:
    """Return the step from which the newest attempt resumed."""
    events = training.api.get(f"jobs/{training.id}/events/").raise_for_status().json()["results"]
    restores = [event for event in events if event["reason"]["code"] == "RESTORED"]
    return int(max(restores, key=lambda event: event["seq"])["reason"]["params"]["step"])


def newest_checkpoint(training: Training) -> int:
    return max(int(path.name.split("-")[1]) for path in training.folder.glob("attempt-*/checkpoint/step-*"))


def cancel(*trainings: Training) -> None:
    for training in trainings:
        training.api.post(f"jobs/{training.id}/cancel/").raise_for_status()
    wait_until(lambda: {each.now["state"] for each in trainings} == {"CANCELLED"}, "they have ended")


def train_digits(api: httpx.Client, name: str, slots: int = 4) -> int:
    """Train the digits on so many GPUs, to the end; return the number of the training."""
    given = {"name": name, "model": "digits-cnn", "dataset": "digits", "instance_group": "sig-elastic"}
    answer = api.post("jobs/", json={**given, "min_slots": slots, "max_slots": slots, "parameters": {"epochs": 1}})
    assert answer.status_code == 201, answer.text
    job = int(answer.json()["id"])
    wait_until(lambda: row(api, job)["state"] in ("SUCCEEDED", "FAILED"), lambda: f"{row(api, job)}", 600)
    assert row(api, job)["state"] == "SUCCEEDED", row(api, job)
    return job


def row(api: httpx.Client, job: int) -> dict[str, Any]:
    return dict(api.get(f"jobs/{job}/").raise_for_status().json())


def test_compose_starts_the_services_once_the_database_is_migrated(site: Containers) -> None:
    if not site.engine.waits:
        pytest.skip("Podman 4 waits for no service: the operator starts them in their order")
    states = {each["Config"]["Labels"]["com.docker.compose.service"]: each["State"] for each in site.containers("-a")}
    assert states["setup"]["ExitCode"] == 0
    begun = {service: states[service]["StartedAt"] for service in SERVICES if service not in ("postgres", "valkey")}
    assert [service for service, when in begun.items() if when < states["setup"]["FinishedAt"]] == []


def test_a_training_takes_all_virtual_gpus_and_succeeds(api: httpx.Client) -> None:
    job = train_digits(api, "first")
    sizes = [point["slots"] for point in api.get(f"jobs/{job}/allocation/").json()]
    assert max(sizes) == 4


def test_no_process_runs_as_root_has_a_right_that_it_does_not_need_or_may_write_its_code(site: Containers) -> None:
    for service, container in site.running().items():
        is_executor = service.startswith("executor")
        main = psutil.Process(site.inspect(container)["State"]["Pid"])
        # The first process of an executor's container is the engine's, which starts it and reaps what trainings leave.
        [process] = main.children() if is_executor else [main]
        status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        rights = sum(1 << number for number in RIGHTS.values()) if is_executor else 0
        sets = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        assert sets == dict.fromkeys(sets, rights), service
        assert status["NoNewPrivs"].strip() == "1", service
        assert {*status["Uid"].split(), *status["Gid"].split()} == {site.variables["TIDEPOOL_UID"]}, service
        if service not in ("postgres", "valkey"):
            as_owner = ["setpriv", f"--reuid={site.variables['TIDEPOOL_UID']}"] if is_executor else []
            written = site.execute(container, *as_owner, "sh", "-c", "echo x > /opt/tidepool/webapp/settings.py")
            assert written.returncode != 0, service


def test_trainings_are_users_of_their_own(site: Containers, api: httpx.Client, training: Training) -> None:
    [host] = api.get("hosts/").raise_for_status().json()["results"]
    assert (host["isolation"], host["isolation_lacks"]) == ("separate", [])
    first = psutil.Process(site.inspect(site.running()["executor-virtual"])["State"]["Pid"])
    ranks = [each for each in first.children(recursive=True) if " ".join(each.cmdline()).startswith("tidepool rank")]
    assert len(ranks) == 4
    [user] = {number for each in ranks for number in each.uids()}
    assert 2_100_000_000 <= user <= 2_100_099_999
    find = ["find", training.folder, "-ignore_readdir_race", "-printf", "%U\n"]  # the training replaces its files
    owners = set(subprocess.run(find, capture_output=True, text=True, check=True).stdout.split())
    assert owners == {site.variables["TIDEPOOL_UID"]}, "on the disk, all files are the pool's owner's"


def test_no_secret_is_in_the_environment_of_a_container_or_in_the_pool(site: Containers) -> None:
    names = ("admin-password", "database-password", "broker-password", "executor-broker-password", "metrics-token")
    secrets = [site.secret(name) for name in names]
    for service, container in site.running().items():
        told = str(site.inspect(container)["Config"])
        assert [secret for secret in secrets if secret in told] == [], service
    files = [path for path in site.pool.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)] == []


def test_main_processes_that_are_killed_come_back(site: Containers, api: httpx.Client) -> None:
    before = {service: site.inspect(site.running()[service])["State"]["Pid"] for service in KILLED}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    def replaced() -> bool:
        running = site.running()
        return all(
            service in running and site.inspect(running[service])["State"]["Pid"] not in (0, pid)
            for service, pid in before.items()
        )

    wait_until(replaced, "all five are back")
    site.wait_until_healthy(*SERVICES)
    train_digits(api, "after the kills", slots=2)  # another training may be running


def test_an_upgrade_of_the_control_plane_disturbs_no_training(
    site: Containers, api: httpx.Client, training: Training
) -> None:
    before, image, steps = site.running(), site.image, training.steps
    site.release(NEXT_VERSION)
    for line in commands("upgrade.md", "The control plane").splitlines():
        if line.startswith("git "):
            continue
        site.carry_out(line, replaced=True)
        if " stop " in line:
            wait_for_steps(training, 20)
    site.wait_until_healthy(*SERVICES)
    assert api.get("jobs/").headers[VERSION_HEADER] == NEXT_VERSION
    after = site.running()
    assert {service for service in SERVICES if after[service] != before[service]} == set(CONTROL_PLANE)
    assert site.image != image
    assert {site.image_of(after[service]) for service in CONTROL_PLANE} == {site.image}
    wait_for_steps(training, 20)
    assert training.steps > steps
    assert (training.now["state"], training.now["attempt"], training.now["slots"]) == ("RUNNING", 1, 4)


def test_an_upgrade_of_the_executor_lets_its_training_continue_from_its_checkpoint(
    site: Containers, training: Training
) -> None:
    before, saved = site.running()["executor-virtual"], newest_checkpoint(training)
    site.carry_out(commands("upgrade.md", "The first machine's executor"), replaced=True)
    site.wait_until_healthy(*SERVICES)
    after = site.running()["executor-virtual"]
    assert after != before
    assert site.image_of(after) == site.image
    wait_until(lambda: training.now["attempt"] == 2, lambda: f"it is started again: {training.now}")
    training.wait_for_size(4)
    wait_for_steps(training, 20)
    assert resumed_at(training) >= saved
    assert row(training.api, 1)["state"] == "SUCCEEDED", "the data of the earlier version are there"


def test_a_backup_is_restored_while_the_executor_trains(
    site: Containers, api: httpx.Client, training: Training, tmp_path: Path
) -> None:
    backup = {"BACKUP": str(tmp_path / "backup")}
    site.carry_out(commands("backup-and-restore.md", "Back up with PostgreSQL"), **backup)
    later = train_digits_after_suspending(training, "later")
    wait_for_steps(training, 50)
    saved, attempt = newest_checkpoint(training), training.now["attempt"]

    told = site.carry_out(commands("backup-and-restore.md", "Restore with PostgreSQL"), **backup)
    assert "1 trainings that ran wait again; 1 had newer records in their folders than the backup." in told
    site.wait_until_healthy(*SERVICES)
    assert api.get(f"jobs/{later}/").status_code == 404
    wait_until(lambda: training.now["attempt"] == attempt + 1, lambda: f"it is started again: {training.now}")
    training.wait_for_size(4)
    wait_for_steps(training, 20)
    assert resumed_at(training) >= saved, "it continues from what was saved after the backup"
    assert (site.pool / f"results/admin/batchworkdir/{later}").is_dir()


def train_digits_after_suspending(training: Training, name: str) -> int:
    """Hold the training back for another one, and let it continue in a new attempt."""
    training.api.post(f"jobs/{training.id}/suspend/").raise_for_status()
    wait_until(lambda: training.now["state"] == "SUSPENDED", lambda: f"it is held back: {training.now}")
    other = train_digits(training.api, name)
    training.api.post(f"jobs/{training.id}/resume/").raise_for_status()
    training.wait_for_size(4)
    return other


def test_a_backup_is_restored_on_a_new_machine(
    site: Containers, api: httpx.Client, training: Training, tmp_path: Path
) -> None:
    backup = {"BACKUP": str(tmp_path / "backup")}
    site.carry_out(commands("backup-and-restore.md", "Back up with PostgreSQL"), **backup)
    password, attempt = site.secret("admin-password"), training.now["attempt"]
    site.carry_out("docker compose down")
    shutil.rmtree(site.state)

    site.prepare()
    assert site.secret("admin-password") != password
    site.carry_out(commands("backup-and-restore.md", "Restore on a new machine"), **backup)
    site.wait_until_healthy("postgres", "valkey")
    lines = commands("backup-and-restore.md", "Restore with PostgreSQL").splitlines(keepends=True)
    [first] = [index for index, line in enumerate(lines) if "dropdb" in line]
    told = site.carry_out("".join(lines[first:]), **backup)
    assert "1 trainings that ran wait again" in told
    site.wait_until_healthy(*SERVICES)
    assert site.secret("admin-password") == password
    wait_until(lambda: training.now["attempt"] > attempt, lambda: f"it is started again: {training.now}")
    training.wait_for_size(4)
    wait_for_steps(training, 20)
    assert resumed_at(training) > 0
    cancel(training)
    train_digits(api, "on the new machine")


def test_another_executor_joins_by_one_command_and_is_upgraded_by_another(
    site: Containers, api: httpx.Client, tmp_path: Path
) -> None:
    if site.engine.program == "podman":
        pytest.skip("podman-compose passes no secret from the environment to a container")
    site.check_out_executor()
    project = f"{PROJECT}-second"
    joined = {"COMPOSE_PROJECT_NAME": project, "TIDEPOOL_HOST_NAME": "second"}
    joined |= {"TIDEPOOL_RUN": str(site.own_folder("run-of-second")), "TIDEPOOL_VIRTUAL_SLOTS": "2"}
    try:
        said = site.carry_out(on_site(site, commands("join-a-host.md", "Join a host")))
        token = said.split("--token ")[1].split()[0]
        command = commands("join-a-host.md", "Join a host", 2).replace("join_…", token)
        site.carry_out(on_site(site, command), **joined)
        wait_for_six_gpus(api)
        train_digits(api, "on both", slots=6)

        [first] = site.containers(project=project)
        site.release(f"{NEXT_VERSION}.1")
        upgrade = on_site(site, commands("upgrade.md", "The hosts")).replace("git pull\n", "")
        site.carry_out(upgrade, **joined)
        [second] = site.containers(project=project)
        assert second["Image"] != first["Image"]
        wait_for_six_gpus(api)
        train_digits(api, "on both again", slots=6)
    finally:
        for container in site.containers("-a", project=project):
            site.engine.call("rm", "-f", container["Id"])


def on_site(site: Containers, command: str) -> str:
    """Return the documented command with the site's address and pool."""
    return command.replace("https://gpus.example.org", site.url).replace("/mnt/pool", str(site.pool))


def wait_for_six_gpus(api: httpx.Client) -> None:
    wait_until(lambda: sum(gpus_online(api).values()) == 6, lambda: f"both hosts are online: {gpus_online(api)}")


def gpus_online(api: httpx.Client) -> dict[str, int]:
    hosts = api.get("hosts/").raise_for_status().json()["results"]
    return {host["name"]: host["ngpus"] for host in hosts if host["state"] == "ONLINE"}


def test_mlflow_gets_a_run_for_each_training(site: Containers, api: httpx.Client) -> None:
    told = settings_of("mlflow.md", "With docker compose")
    told["COMPOSE_PROFILES"] = told["COMPOSE_PROFILES"].replace("gpu", "virtual")
    told["TIDEPOOL_MLFLOW_URL"] = f"{site.url}/mlflow"
    site.set_variables(**told)
    site.carry_out("docker compose up -d --build", replaced=True)
    site.wait_until_healthy(*SERVICES, "mlflow")
    job = train_digits(api, "with MLflow")
    with site.api("mlflow/api/2.0/mlflow/") as mlflow:
        wait_until(lambda: statuses_of_runs(mlflow, job) == ["FINISHED"], lambda: f"{statuses_of_runs(mlflow, job)}")
    question = ("psql", "-U", "tidepool", "-tAc", "SELECT count(*) FROM mlflow.runs")
    asked = site.execute(site.running()["postgres"], *question)
    assert int(asked.stdout) > 0, asked.stderr


def statuses_of_runs(mlflow: httpx.Client, job: int) -> list[str]:
    found = mlflow.post("experiments/search", json={"max_results": 100}).raise_for_status().json()["experiments"]
    question = {
        "experiment_ids": [each["experiment_id"] for each in found],
        "filter": f"tags.`tidepool.job` = '{job}'",
    }
    runs = mlflow.post("runs/search", json=question).raise_for_status().json().get("runs", [])
    return [run["info"]["status"] for run in runs]
