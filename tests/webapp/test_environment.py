"""Settings come from the environment; what does not fit is refused in one sentence."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.environment import Environment, secret_key, with_secrets


@pytest.mark.parametrize(
    ("variables", "read"),
    [
        ({"X": "soon"}, lambda e: e.number("X", 30, least=1)),
        ({"X": "0"}, lambda e: e.number("X", 30, least=1)),
        ({"X": "nan"}, lambda e: e.number("X", 30, least=1)),
        ({"X": "inf"}, lambda e: e.number("X", 30, least=1)),
        ({"X": "perhaps"}, lambda e: e.flag("X")),
        ({"X": "relative/path"}, lambda e: e.folder("X", Path("/"))),
        ({"X": "/good:bad"}, lambda e: e.folders("X", Path("/"))),
        ({"X": "amqp://here"}, lambda e: e.broker_url("X", "")),
        ({"X": "fd00::1"}, lambda e: e.host_names("X", "")),
        ({"X": "gpus.example.org,fd00::1"}, lambda e: e.host_names("X", "")),
        ({"X": "mysql://here/db"}, lambda e: e.database("X", Path("/db"))),
        ({"X": "mlflow.example.org"}, lambda e: e.origin("X")),
        ({"X": "https://mlflow.example.org/mlflow"}, lambda e: e.origin("X")),
        ({"X": "10.0.0.1,proxy.example"}, lambda e: e.networks("X")),
        ({"X": "*"}, lambda e: e.networks("X")),
        ({"X": "postgres://here"}, lambda e: e.database("X", Path("/db"))),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(variables, read):
    with pytest.raises(ImproperlyConfigured, match=r"^X is .*\.$"):
        read(Environment(variables))


@pytest.mark.parametrize("read", ["broker_url", "readable_url"])
def test_the_ipv6_address_of_a_broker_is_in_brackets(read: str) -> None:
    url = "redis://:secret@[fd00::1]:6379/0"
    assert getattr(Environment({"X": url}), read)("X", "") == url
    with pytest.raises(ImproperlyConfigured, match=r"^X .*: write an IPv6 address in brackets.*\.$"):
        getattr(Environment({"X": "redis://:secret@fd00::1:6379/0"}), read)("X", "")


def test_names_and_addresses_of_the_site() -> None:
    assert Environment({}).host_names("X", "127.0.0.1,[::1]") == ["127.0.0.1", "[::1]"]
    assert Environment({"X": ".example.org, *, [fd00::1]"}).host_names("X", "") == [".example.org", "*", "[fd00::1]"]


def test_an_empty_variable_counts_as_absent():
    assert Environment({"X": " "}).number("X", 30, least=1) == 30


def test_sqlite_waits_for_the_lock_instead_of_failing():
    options = Environment({}).database("X", Path("/home/db"))["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert options["timeout"] == 20
    assert "journal_mode=WAL" in options["init_command"]
    assert "synchronous=FULL" in options["init_command"]


def test_postgres_by_url():
    database = Environment({"X": "postgres://pool:s%40fe@db.example:5433/tide"}).database("X", Path("/db"))
    assert database["ENGINE"] == "django.db.backends.postgresql"
    assert (database["USER"], database["PASSWORD"], database["HOST"], database["PORT"], database["NAME"]) == (
        "pool",
        "s@fe",
        "db.example",
        "5433",
        "tide",
    )


def test_the_secret_key_is_made_once_and_private(tmp_path):
    file = tmp_path / "home" / "secret-key"
    key = secret_key(file)
    assert len(key) >= 50
    assert secret_key(file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["secret-key"]


def test_a_home_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ImproperlyConfigured, match=r"TIDEPOOL_HOME|make this user its owner"):
        secret_key(tmp_path / "file" / "secret-key")


@pytest.mark.parametrize("url", ["", "sqlite:////srv/optuna.sqlite3", "postgresql://me:pass@db.example.org/optuna"])
def test_a_database_for_optuna(url):
    assert Environment({"X": url}).optuna_url("X") == url


@pytest.mark.parametrize("url", ["optuna.sqlite3", "sqlite:///here.sqlite3", "postgres://db/x", "redis://db"])
def test_a_database_that_optuna_does_not_take_is_refused(url):
    with pytest.raises(ImproperlyConfigured, match=r"^X is not understood: use postgresql://"):
        Environment({"X": url}).optuna_url("X")


def test_secrets_come_from_files(tmp_path):
    (tmp_path / "url").write_text("postgres://pool:safe@db/tide\n")
    given = {"URL_FILE": str(tmp_path / "url"), "OTHER_FILE": "", "HOME": "/"}
    assert with_secrets(given, ["URL_FILE", "OTHER_FILE"]) == {"URL": "postgres://pool:safe@db/tide", "HOME": "/"}


@pytest.mark.parametrize(
    "given", [{"X_FILE": "/nowhere"}, {"X_FILE": "/dev/null"}, {"X_FILE": "/etc/hosts", "X": "here"}]
)
def test_a_secret_that_cannot_be_had_is_refused_by_name(given):
    with pytest.raises(ImproperlyConfigured, match=r"^X_FILE .*\.$"):
        with_secrets(given, ["X_FILE"])


@pytest.mark.parametrize("is_embedded", [True, False])
def test_the_processes_of_up_know_that_its_broker_is_theirs(tmp_path: Path, is_embedded: bool) -> None:
    embedded, own = tmp_path / "run" / "broker-url", tmp_path / "own-broker-url"
    embedded.parent.mkdir()
    embedded.write_text("redis+socket://:secret@/somewhere/broker.sock?virtual_host=0")
    own.write_text("redis://:secret@broker.example.org:6379/0")
    names = {"TIDEPOOL_HOME": str(tmp_path), "TIDEPOOL_BROKER_URL_FILE": str(embedded if is_embedded else own)}
    words = "from webapp import settings; print(settings.BROKER_IS_EMBEDDED)"
    ran = subprocess.run([sys.executable, "-c", words], env={**os.environ, **names}, capture_output=True, text=True)
    assert ran.stdout.strip() == str(is_embedded), ran.stderr
