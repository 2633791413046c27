"""Tests of TIDEPOOL_PORTS: the range that is read, and the kernel's ports that it must contain."""

from pathlib import Path

import pytest

from workers.executor.config import ConfigError, executor_config
from workers.executor.ports import FEWEST, check_ports, given_ports

PLACE = {"TIDEPOOL_HOME": "/srv/pool", "TIDEPOOL_HOST_NAME": "gpu1", "TIDEPOOL_BROKER_URL": "redis://10.0.0.1/0"}


def kernel(folder: Path, ports: str, reserved: str = "") -> frozenset[int]:
    (folder / "ip_local_port_range").write_text(f"{ports}\n")
    (folder / "ip_local_reserved_ports").write_text(f"{reserved}\n")
    return given_ports(folder)


def test_the_range_is_none_unless_it_is_set() -> None:
    assert executor_config(PLACE).ports is None
    assert executor_config({**PLACE, "TIDEPOOL_PORTS": ""}).ports is None
    assert executor_config({**PLACE, "TIDEPOOL_PORTS": "20000-29999"}).ports == (20000, 29999)


@pytest.mark.parametrize("text", ["20000", "29999-20000", "80-20000", "20000-65536", "a-b", "20000-20010,20020-20030"])
def test_what_is_no_range_of_ports_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="TIDEPOOL_PORTS must be the first and the last port"):
        executor_config({**PLACE, "TIDEPOOL_PORTS": text})


def test_ports_that_the_kernel_gives_are_those_of_its_range_that_are_not_reserved(tmp_path: Path) -> None:
    assert kernel(tmp_path, "20000\t20009", "20002,20005-20007,8000") == {20000, 20001, 20003, 20004, 20008, 20009}


def test_a_range_that_contains_what_the_kernel_gives_is_taken(tmp_path: Path) -> None:
    check_ports((20000, 29999), kernel(tmp_path, "20000 29999"))
    check_ports((20000, 29999), kernel(tmp_path, "20000 60999", "30000-60999"))


def test_a_kernel_that_gives_other_ports_is_refused_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        check_ports((20000, 29999), kernel(tmp_path, "32768 60999"))
    assert "gives programs ports from 32768 to 60999" in str(refusal.value)
    assert "sysctl -w net.ipv4.ip_local_port_range='20000 29999'" in str(refusal.value)


def test_too_few_ports_are_refused(tmp_path: Path) -> None:
    check_ports((20000, 20255), kernel(tmp_path, "20000 20255"))
    with pytest.raises(ConfigError, match=rf"gives programs 255 ports of it: trainings need at least {FEWEST}"):
        check_ports((20000, 20255), kernel(tmp_path, "20000 20255", "20100"))
