"""A user of the broker for each host, on a real broker with the users of docker/prepare."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from django.utils import timezone
from rest_framework.test import APIClient

from core.errors import Conflict
from tests.journey.running_stack import free_port
from tests.missing import leave_out
from tests.waiting import wait_until
from tests.workers.executor.embedded import Broker as ExecutorsBroker
from tests.workers.executor.embedded import Host as Executor
from workers.actions import remove_host, restore_host
from workers.broker_users import UserKeeper, problem, user_name
from workers.join_tokens import create_join_token, redeem
from workers.models import Host

pytestmark = pytest.mark.django_db

_PREPARE = Path(__file__).parents[2] / "docker/prepare"


@dataclass
class Broker:
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        users = self.folder / "state/secrets/broker-users"
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        command = ["redis-server", *place, "--aclfile", str(users)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        wait_until(self._answers, "the broker answers")

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def url(self, name: str) -> str:
        """Return one of the URLs that docker/prepare writes."""
        url = urlsplit((self.folder / "state/secrets" / name).read_text().strip())
        return url._replace(netloc=f"{url.username}:{url.password}@127.0.0.1:{self.port}").geturl()

    def inspector(self) -> redis.Redis:
        return redis.Redis(port=self.port, username="inspector", decode_responses=True)

    def _answers(self) -> bool:
        try:
            return bool(self.inspector().ping())
        except redis.ConnectionError:
            return False


class _Queues(ExecutorsBroker):
    """The queues of a broker with users, for an executor and for the control plane."""

    def __init__(self, control_url: str, executor_url: str) -> None:
        super().__init__(Path("/nowhere"))
        self.app.conf.broker_url = control_url
        self.url = executor_url

    def forget(self, host: Executor) -> None:
        """Leave what it has not read: the broker ends with the test."""


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    if shutil.which("redis-server") is None:
        leave_out("redis-server is missing: sudo apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="tide-") as made:
        folder = Path(made)
        (folder / "checkout/docker").mkdir(parents=True)
        script = shutil.copy(_PREPARE, folder / "checkout/docker/prepare")
        environment = {"PATH": os.environ["PATH"], "TIDEPOOL_PREPARE_AS_ROOT": "1"}
        subprocess.run([script, folder / "state"], env=environment, check=True, capture_output=True)
        with (folder / "state/secrets/broker-users").open("a") as users:
            users.write("user inspector on nopass ~* &* +@all\n")
        yield folder


@pytest.fixture
def broker(prepared: Path, settings: Any, home: Path) -> Iterator[Broker]:
    started = Broker(prepared, free_port())
    started.start()
    for name, file in (
        ("TIDEPOOL_BROKER_URL", "broker-url"),
        ("TIDEPOOL_BROKER_REGISTRAR_URL", "broker-registrar-url"),
        ("TIDEPOOL_EXECUTOR_BROKER_URL", "executor-broker-url"),
    ):
        setattr(settings, name, started.url(file))
    yield started
    started.stop()


def joined(carol: Any, *hosts: str) -> list[str]:
    """Let hosts join, and return the URL of the broker that each gets."""
    token, _ = create_join_token(carol, hosts=len(hosts))
    return [redeem(token, host, own_user=True).broker_url for host in hosts]


def connected(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def is_let_in(url: str) -> bool:
    try:
        return bool(connected(url).ping())
    except redis.AuthenticationError:
        return False


def test_a_host_reads_its_own_queue_and_writes_reports_and_nothing_else(broker: Broker, carol: Any) -> None:
    first, second = (connected(url) for url in joined(carol, "gpu-1", "gpu-2"))
    control = connected(broker.url("broker-url"))
    control.lpush("host.gpu-1", "for the first")
    control.lpush("host.gpu-2", "for the second")
    assert first.lpush("control", "a report") == 1
    assert first.brpop(["host.gpu-1"], timeout=1) == ("host.gpu-1", "for the first")
    for command in (
        ("LRANGE", "host.gpu-2", 0, -1),
        ("RPOP", "host.gpu-2"),
        ("LPUSH", "host.gpu-2", "a command"),
        ("DEL", "host.gpu-2"),
        ("HGETALL", "unacked.gpu-2"),
        ("HGETALL", "unacked"),
        ("LRANGE", "control", 0, -1),
        ("RPOP", "control"),
        ("LTRIM", "control", 1, 0),
        ("DEL", "control"),
        ("SET", "control", "x"),
        ("RENAME", "host.gpu-1", "control"),
        ("EVAL", "return redis.call('RPOP', 'control')", 0),
        ("SADD", "_kombu.binding.control", "elsewhere"),
        ("PUBLISH", "tidepool.live", "{}"),
        ("SUBSCRIBE", "tidepool.live"),
        ("FLUSHALL",),
        ("FLUSHDB",),
        ("KEYS", "*"),
        ("SCAN", 0),
        ("RANDOMKEY",),
        ("CONFIG", "GET", "*"),
        ("CLIENT", "LIST"),
        ("MONITOR",),
        ("ACL", "LIST"),
        ("ACL", "SETUSER", user_name("gpu-1"), "~*"),
        ("SHUTDOWN",),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            first.execute_command(*command)
    assert second.rpop("host.gpu-2") == "for the second"
    assert control.lrange("control", 0, -1) == ["a report"]


def test_an_executor_needs_nothing_that_its_user_may_not(broker: Broker, carol: Any, tmp_path: Path) -> None:
    [url] = joined(carol, "host-a")
    executor = Executor(_Queues(broker.url("broker-url"), url), tmp_path)
    executor.start()
    control = connected(broker.url("broker-url"))
    try:
        wait_until(lambda: control.llen("control") >= 2 or executor.has_ended, executor.log)
        assert not executor.has_ended, executor.log()
        executor.send_desired()
        executor.until_applied()
    finally:
        executor.close()
    assert control.keys("unacked*") == []
    refused = [entry for entry in broker.inspector().acl_log() if entry["username"] == user_name("host-a")]
    assert refused == []


def test_a_removed_host_is_out_at_once_and_in_again_once_restored(
    broker: Broker, carol: Any, django_capture_on_commit_callbacks: Any
) -> None:
    [url, other] = joined(carol, "gpu-1", "gpu-2")
    held = connected(url)
    assert held.ping()
    with django_capture_on_commit_callbacks(execute=True):
        remove_host("gpu-1", carol)
    with pytest.raises((redis.AuthenticationError, redis.ConnectionError)):
        held.ping()
    assert not is_let_in(url)
    assert is_let_in(other)
    with django_capture_on_commit_callbacks(execute=True):
        restore_host("gpu-1", carol)
    assert is_let_in(url)


def test_joining_again_ends_what_knows_the_former_password(broker: Broker, carol: Any) -> None:
    [before] = joined(carol, "gpu-1")
    Host.objects.update(last_report_at=timezone.now(), state=Host.State.OFFLINE)
    [after] = joined(carol, "gpu-1")
    assert (is_let_in(before), is_let_in(after)) == (False, True)


def test_a_broker_that_has_lost_its_users_gets_them_again(
    broker: Broker, carol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kept, gone = joined(carol, "gpu-1", "gpu-2")
    keeper = UserKeeper()
    keeper.keep()
    remove_host("gpu-2", carol)  # never committed: as if the broker had been away
    broker.stop()
    keeper.keep()
    keeper.keep()
    assert caplog.text.count("users of the broker cannot be kept") == 1
    broker.start()
    connected(broker.url("broker-registrar-url")).execute_command("ACL", "SETUSER", user_name("gpu-2"), "on", "nopass")
    stranger = "host.00000000.gpu-2"  # of another site
    connected(broker.url("broker-registrar-url")).execute_command("ACL", "SETUSER", stranger, "on")
    keeper.keep()
    assert (is_let_in(kept), is_let_in(gone)) == (True, False)
    assert stranger in broker.inspector().acl_users()


def test_a_removed_host_that_joins_again_stays(broker: Broker, carol: Any) -> None:
    joined(carol, "gpu-1")
    remove_host("gpu-1", carol)
    [url] = joined(carol, "gpu-1")
    UserKeeper().keep()
    assert is_let_in(url)


def test_hosts_share_a_user_where_the_broker_can_have_none_for_each(broker: Broker, carol: Any, settings: Any) -> None:
    shared = broker.url("executor-broker-url")
    settings.TIDEPOOL_BROKER_REGISTRAR_URL = broker.url("broker-url")
    assert "TIDEPOOL_BROKER_REGISTRAR_URL" in problem()
    assert joined(carol, "gpu-1") == [shared]
    settings.TIDEPOOL_BROKER_REGISTRAR_URL = broker.url("broker-registrar-url")
    assert problem() == ""
    broker.inspector().execute_command("ACL", "SETUSER", "default", "on", "nopass")
    assert "without a password" in problem()
    assert joined(carol, "gpu-2") == [shared]
    assert not Host.objects.filter(own_broker_user=True).exists()


def test_an_executor_of_a_former_release_gets_the_shared_user(broker: Broker, carol: Any) -> None:
    token, _ = create_join_token(carol, hosts=2)
    answer = APIClient().post("/api/v1/join/", {"token": token, "host": "gpu-1"}, format="json").json()
    assert answer["broker_url"] == broker.url("executor-broker-url")
    answer = APIClient().post("/api/v1/join/?broker_user=own", {"token": token, "host": "gpu-2"}, format="json").json()
    assert urlsplit(answer["broker_url"]).username == user_name("gpu-2")


def test_nobody_joins_while_the_broker_is_away_and_the_token_stays(broker: Broker, carol: Any) -> None:
    token, row = create_join_token(carol)
    broker.stop()
    with pytest.raises(Conflict, match="does not answer"):
        redeem(token, "gpu-1", own_user=True)
    row.refresh_from_db()
    assert row.hosts_left == 1
    broker.start()
    assert is_let_in(redeem(token, "gpu-1", own_user=True).broker_url)
