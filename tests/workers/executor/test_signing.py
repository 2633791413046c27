"""An executor with a key signs what it reports, and accepts what the control plane has signed for it, once."""

from pathlib import Path
from typing import Any

import pytest
from tidepool.protocol import Envelope, ProtocolError, Report, Sync, from_json, is_genuine, seal, to_json
from tidepool.seen_numbers import SeenNumbers

from tests.jobs.cluster import FakeHost
from workers.executor.config import ConfigError, executor_config
from workers.executor.signing import Signer, next_start

KEY, HOST, BOOT = "k" * 64, "gpu-host-1", 7


@pytest.fixture
def signer() -> Signer:
    return Signer(HOST, KEY, BOOT)


def desired(**changes: Any) -> dict[str, Any]:
    values = {"host": HOST, "boot": BOOT, "number": 1, **changes}
    return to_json(seal(values.pop("key", KEY), values.pop("kind", "sync"), Sync(HOST, 3, 0.0, []), **values))


def test_a_report_says_who_sent_it_when_and_what(signer: Signer) -> None:
    report = from_json(Report, FakeHost(HOST).report())
    first, second = (from_json(Envelope, signer.sealed(report)) for _ in range(2))
    assert (first.host, first.boot, first.number, second.number) == (HOST, BOOT, 1, 2)
    assert is_genuine(KEY, "report", first)
    assert not is_genuine(KEY, "sync", first)
    assert not is_genuine("another", "report", first)


def test_a_signed_desired_state_is_accepted_once(signer: Signer) -> None:
    assert signer.opened(desired()).revision == 3
    assert signer.opened(desired(number=5)).revision == 3
    assert signer.opened(desired(number=4)).revision == 3, "they need not come in order"
    assert signer.opened(desired(number=9, boot=0)).revision == 3, "before the control plane has heard of this start"
    with pytest.raises(ProtocolError, match="it came before"):
        signer.opened(desired())
    assert signer.refused == 1


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (to_json(Sync(HOST, 3, 0.0, [])), "Envelope"),
        (desired(key="another"), "not signed with the key of this host"),
        (desired(host="gpu-host-2"), "not signed with the key of this host"),
        (desired(kind="report"), "not signed with the key of this host"),
        ({**desired(), "number": 2}, "not signed with the key of this host"),
        ({**desired(), "boot": 8}, "not signed with the key of this host"),
        ({**desired(), "body": desired()["body"].replace("3", "4")}, "not signed with the key of this host"),
        (desired(boot=BOOT - 1), "for an earlier start"),
        ({}, "Envelope"),
    ],
)
def test_whatever_else_comes_is_refused_and_counted(signer: Signer, forged: dict[str, Any], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        signer.opened(forged)
    assert signer.refused == 1


def test_a_host_without_a_key_goes_on_as_before() -> None:
    signer = Signer(HOST, "", 0)
    report = FakeHost(HOST).report()
    assert signer.sealed(from_json(Report, report)) == report
    assert signer.opened(to_json(Sync(HOST, 3, 0.0, []))).revision == 3
    with pytest.raises(ProtocolError, match="Sync"):
        signer.opened(desired())


def test_starts_are_numbered_upwards_whatever_becomes_of_the_clock_or_the_file(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    numbers = [next_start(file, lambda at=at: at) for at in (1000.0, 1000.0, 10.0, 5000.0)]
    assert numbers == [1000, 1001, 1002, 5000]
    file.write_text("")
    assert next_start(file, lambda: 6000.0) == 6000


def test_old_numbers_stay_seen() -> None:
    seen = SeenNumbers(most=3)
    assert all(seen.is_new(number) for number in (4, 1, 3))
    assert not seen.is_new(4)
    assert seen.is_new(2)
    assert not any(seen.is_new(number) for number in (4, 1)), "4 is forgotten, and what was before it"
    assert seen.is_new(9)


def test_a_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    given = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_HOST_NAME": HOST, "TIDEPOOL_BROKER_URL": "redis://localhost"}
    key = tmp_path / "key"
    with pytest.raises(ConfigError, match="TIDEPOOL_HOST_KEY_FILE cannot be read"):
        executor_config({**given, "TIDEPOOL_HOST_KEY_FILE": str(key)})
    key.write_text("")
    with pytest.raises(ConfigError, match="which is empty"):
        executor_config({**given, "TIDEPOOL_HOST_KEY_FILE": str(key)})
    key.write_text(f"{KEY}\n")
    config = executor_config({**given, "TIDEPOOL_HOST_KEY_FILE": str(key)})
    assert config.key == KEY
    assert KEY not in repr(config)
