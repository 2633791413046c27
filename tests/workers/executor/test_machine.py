"""Tests of a host's address and its folder of sockets, and of refusals before anything is started."""

import re
from pathlib import Path

import pytest

from tests.test_architecture import ROOT
from workers.executor.config import ConfigError, executor_config
from workers.executor.machine import filesystem_of, host_address, refuse_shared_folder

KNOWN = {"lo": ["127.0.0.1"], "mgmt0": ["192.168.0.7"], "train0": ["10.0.0.7"], "idle0": []}
HERE, ELSEWHERE = "redis://192.168.0.7:6379/0", "redis://10.0.0.1:6379/0"


def address(broker: str, **said: str) -> str:
    variables = {"TIDEPOOL_HOME": "/srv/pool", "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": broker}
    return host_address(executor_config({**variables, **said}), KNOWN)


@pytest.mark.parametrize(
    ("broker", "said", "chosen"),
    [
        (ELSEWHERE, {"TIDEPOOL_ADDRESS": "10.0.0.7"}, "10.0.0.7"),
        (ELSEWHERE, {"TIDEPOOL_INTERFACE": "train0"}, "10.0.0.7"),
        (ELSEWHERE, {"TIDEPOOL_INTERFACE": "train0", "TIDEPOOL_ADDRESS": "10.0.0.7"}, "10.0.0.7"),
        (HERE, {}, "127.0.0.1"),
        (HERE, {"TIDEPOOL_ADDRESS": "127.0.0.1"}, "127.0.0.1"),
        ("redis+socket:///run/broker.sock", {}, "127.0.0.1"),
        (ELSEWHERE, {"TIDEPOOL_ADDRESS": "127.0.0.1", "TIDEPOOL_LIFELINE_FD": "9"}, "127.0.0.1"),
    ],
)
def test_the_address_that_others_reach(broker: str, said: dict[str, str], chosen: str) -> None:
    assert address(broker, **said) == chosen


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({}, "set TIDEPOOL_ADDRESS"),
        ({"TIDEPOOL_ADDRESS": "127.0.0.1"}, "no other host can reach"),
        ({"TIDEPOOL_ADDRESS": "10.0.0.8"}, "10.0.0.8, which no interface of this machine has"),
        ({"TIDEPOOL_ADDRESS": "gpu1.invalid"}, "gpu1.invalid, which no interface of this machine has"),
        ({"TIDEPOOL_INTERFACE": "ib0"}, "'ib0', which has no address"),
        ({"TIDEPOOL_INTERFACE": "idle0"}, "'idle0', which has no address"),
    ],
)
def test_what_no_other_host_could_reach_is_refused_with_the_addresses_there_are(
    said: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        address(ELSEWHERE, **said)
    assert sentence in str(refusal.value)
    assert str(refusal.value).endswith("192.168.0.7 (mgmt0) or 10.0.0.7 (train0)")


def test_an_address_of_another_interface_than_the_one_that_is_named_is_refused() -> None:
    with pytest.raises(ConfigError, match="set one of them"):
        address(ELSEWHERE, TIDEPOOL_INTERFACE="train0", TIDEPOOL_ADDRESS="192.168.0.7")


def test_a_folder_that_other_machines_share_is_refused_for_sockets_and_locks() -> None:
    mounts = {Path("/"): "ext4", Path("/mnt/pool"): "nfs4", Path("/mnt/pool/local"): "xfs"}
    assert filesystem_of(Path("/mnt/pool/run/gpu1"), mounts) == "nfs4"
    refuse_shared_folder(Path("/mnt/pool/local/run"), mounts)
    refuse_shared_folder(Path("/var/lib/tidepool/run/gpu1"), mounts)
    with pytest.raises(ConfigError, match=r"/mnt/pool/run/gpu1 is on nfs4.*set TIDEPOOL_RUN"):
        refuse_shared_folder(Path("/mnt/pool/run/gpu1"), mounts)


def test_the_documented_unit_keeps_its_sockets_at_home(tmp_path: Path) -> None:
    unit = (ROOT / "deploy/systemd/tidepool-executor.service").read_text()
    said = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))
    (tmp_path / "url").write_text(ELSEWHERE)
    run = said["TIDEPOOL_RUN"].replace("%S", "/var/lib")
    place = {"TIDEPOOL_HOME": "/mnt/pool", "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_INTERFACE": "eth0"}
    config = executor_config({**place, "TIDEPOOL_RUN": run, "TIDEPOOL_BROKER_URL_FILE": str(tmp_path / "url")})
    assert host_address(config, {"lo": ["127.0.0.1"], "eth0": ["10.0.0.7"]}) == "10.0.0.7"
    assert not config.run_folder.is_relative_to(config.home)
