"""An executor's environment."""

from pathlib import Path
from urllib.parse import quote

import pytest

from workers.executor.config import ConfigError, executor_config

COMPLETE = {"TIDEPOOL_HOME": "/srv/tide", "TIDEPOOL_HOST_NAME": "gpu-1", "TIDEPOOL_BROKER_URL": "redis://broker/0"}


def test_real_gpus_and_no_lifeline_unless_told() -> None:
    config = executor_config(COMPLETE)
    assert (config.host, config.virtual_slots, config.lifeline_fd) == ("gpu-1", None, None)
    assert config.run_folder == Path("/srv/tide/run/gpu-1")


def test_virtual_slots_and_lifeline() -> None:
    config = executor_config({**COMPLETE, "TIDEPOOL_VIRTUAL_SLOTS": "4", "TIDEPOOL_LIFELINE_FD": "9"})
    assert (config.virtual_slots, config.lifeline_fd) == (4, 9)


def test_slots_per_gpu() -> None:
    assert executor_config(COMPLETE).slots_per_gpu == 1
    assert executor_config({**COMPLETE, "TIDEPOOL_SLOTS_PER_GPU": "4"}).slots_per_gpu == 4
    for senseless in ("0", "17", "two"):
        with pytest.raises(ConfigError, match="TIDEPOOL_SLOTS_PER_GPU"):
            executor_config({**COMPLETE, "TIDEPOOL_SLOTS_PER_GPU": senseless})


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_says_which_variable_is_missing(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        executor_config({key: value for key, value in COMPLETE.items() if key != name})


def test_says_which_variable_is_no_number() -> None:
    with pytest.raises(ConfigError, match="TIDEPOOL_VIRTUAL_SLOTS"):
        executor_config({**COMPLETE, "TIDEPOOL_VIRTUAL_SLOTS": "many"})


def test_two_homes_have_two_marks() -> None:
    assert executor_config(COMPLETE).mark != executor_config({**COMPLETE, "TIDEPOOL_HOME": "/srv/other"}).mark


def test_the_brokers_address_comes_from_a_file_if_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("redis://executor:secret@broker/0\n")
    named = {**COMPLETE, "TIDEPOOL_BROKER_URL": "", "TIDEPOOL_BROKER_URL_FILE": str(tmp_path / "url")}
    assert executor_config(named).broker_url == "redis://executor:secret@broker/0"
    for file in ("/nowhere", "/dev/null"):
        with pytest.raises(ConfigError, match="TIDEPOOL_BROKER_URL_FILE"):
            executor_config({**named, "TIDEPOOL_BROKER_URL_FILE": file})


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_the_ipv6_address_of_the_broker_is_in_brackets(scheme: str) -> None:
    url = f"{scheme}://host:secret@[fd00::1]:6379/0"
    assert executor_config({**COMPLETE, "TIDEPOOL_BROKER_URL": url}).broker_url.startswith(url)
    with pytest.raises(ConfigError, match="write an IPv6 address in brackets"):
        executor_config({**COMPLETE, "TIDEPOOL_BROKER_URL": f"{scheme}://host:secret@fd00::1:6379/0"})


def test_an_engine_that_the_host_lacks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("docker", "enroot"):
        with pytest.raises(
            ConfigError, match=f"TIDEPOOL_IMAGE_ENGINE names '{name}': name podman, enroot or apptainer"
        ):
            executor_config({**COMPLETE, "TIDEPOOL_IMAGE_ENGINE": name})
    (tmp_path / "enroot").touch(0o755)
    assert executor_config({**COMPLETE, "TIDEPOOL_IMAGE_ENGINE": "enroot"}).host == "gpu-1"


def test_an_empty_number_of_virtual_slots_means_real_gpus() -> None:
    assert executor_config({**COMPLETE, "TIDEPOOL_VIRTUAL_SLOTS": ""}).virtual_slots is None


def test_a_brokers_certificate_is_checked_unless_the_url_says_otherwise(tmp_path: Path) -> None:
    def url(text: str, **further: str) -> str:
        return executor_config({**COMPLETE, "TIDEPOOL_BROKER_URL": text, **further}).broker_url

    ca_file = tmp_path / "ca.crt"
    ca_file.touch()
    assert url("redis://broker/0") == "redis://broker/0"
    required = "rediss://u:p%40@broker:6380/0?ssl_cert_reqs=required&ssl_check_hostname=true"
    assert url("rediss://u:p%40@broker:6380/0") == required
    assert f"ssl_ca_certs={quote(str(ca_file), safe='')}" in url("rediss://b/0", TIDEPOOL_BROKER_CA_FILE=str(ca_file))
    unchecked = url("rediss://broker/0?ssl_cert_reqs=none")
    assert "ssl_cert_reqs=none" in unchecked
    assert "ssl_check_hostname=false" in unchecked
    with pytest.raises(ConfigError, match="TIDEPOOL_BROKER_CA_FILE"):
        url("rediss://broker/0", TIDEPOOL_BROKER_CA_FILE="/nowhere/ca.crt")


def test_sockets_and_records_lie_on_this_machines_own_disk_if_told() -> None:
    config = executor_config({**COMPLETE, "TIDEPOOL_RUN": "/var/lib/tidepool/run"})
    assert config.run_folder == Path("/var/lib/tidepool/run/gpu-1")
    assert config.mark == executor_config(COMPLETE).mark, "processes of before are found again"


def test_what_is_reserved_is_a_number_and_a_size() -> None:
    assert (executor_config(COMPLETE).reserved_cores, executor_config(COMPLETE).reserved_memory_bytes) == (0.0, 0)
    config = executor_config({**COMPLETE, "TIDEPOOL_RESERVED_CORES": "1.5", "TIDEPOOL_RESERVED_MEMORY": "8 GiB"})
    assert (config.reserved_cores, config.reserved_memory_bytes) == (1.5, 8 * 1024**3)
    for name, text in (("TIDEPOOL_RESERVED_CORES", "-1"), ("TIDEPOOL_RESERVED_MEMORY", "much")):
        with pytest.raises(ConfigError, match=f"{name} must be .*'{text}'"):
            executor_config({**COMPLETE, name: text})


@pytest.mark.parametrize(
    ("name", "words"),
    [("TIDEPOOL_NCCL_RECOVERY", "shrink, abort, process"), ("TIDEPOOL_NCCL_STATE", "broadcast, sockets")],
)
def test_an_unknown_word_about_nccl_is_refused(name: str, words: str) -> None:
    executor_config({**COMPLETE, name: words.split(", ")[0]})
    with pytest.raises(ConfigError, match=f"{name} must be one of {words}, not 'shirnk'"):
        executor_config({**COMPLETE, name: "shirnk"})
