"""dlicmd.py as a process of its own, against a server that answers as WMLA's REST does."""

import base64
import io
import json
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from email import message_from_bytes
from email.policy import HTTP
from pathlib import Path

import pytest

from tests.wmla.commandline import PROGRAM, RUN, TOKEN, Command, token_of
from tests.wmla.recorded import BASE, Answer, RecordedServer, recorded_server

# --- Logging on ---


def test_a_logon_is_kept_for_oneself_alone_and_says_when_it_ends(command: Command, server: RecordedServer) -> None:
    options = ["--rest-host", "127.0.0.1", "--rest-port", str(server.server_port), "--username", "alice"]
    said = command("--logon", *options, "--password", "-", stdin="secret word\n").stdout

    assert said.startswith(f"Logged on at {server.address} as alice until 20")
    assert re.search(r"\([78]\.\d h\)", said)
    assert stat.S_IMODE(command.kept.stat().st_mode) == 0o600
    assert [path.name for path in command.folder.iterdir()] == [".dlicmd"]
    [asked] = [asked for asked in server.asked if asked.path == "/auth/v1/logon"]
    assert asked.headers["Authorization"] == "Basic " + base64.b64encode(b"alice:secret word").decode()

    # The host need not be named again, and the password is nowhere.
    assert json.loads(command("--exec-get", "wmla-12").stdout) == RUN
    assert server.asked[-1].headers["X-Auth-Token"] == TOKEN
    assert "secret word" not in command.kept.read_text()


def test_credentials_are_sent_to_nobody_before_the_server_is_found(command: Command, server: RecordedServer) -> None:
    options = ["--rest-host", server.address, "--username", "alice", "--password", "secret"]
    command("--exec-get-all", *options)
    found, asked = server.asked
    assert (found.path, "Authorization" in found.headers) == (f"{BASE}/conf", False)
    assert asked.headers["Authorization"].startswith("Basic ")


def test_logging_off_forgets(logged_on: Command, server: RecordedServer) -> None:
    assert logged_on("--logoff").stdout == f"Logged off at {server.address}\n"
    assert server.calls() == [("POST", "/auth/v1/logoff")]
    assert server.asked[-1].headers["X-Auth-Token"] == TOKEN
    assert "Give the server with" in logged_on("--status", code=2).stderr


def test_a_refused_logon_says_what_to_do(command: Command, server: RecordedServer) -> None:
    server.answers["GET", "/auth/v1/logon"] = Answer("Error 401: The user name or the password is wrong.\n", 401)
    options = ["--rest-host", server.address, "--username", "alice", "--password", "no"]
    said = command("--logon", *options, code=1).stderr
    assert "--logon --rest-host" in said
    assert "Error 401: The user name or the password is wrong." in said
    assert not command.kept.exists()


def test_an_ended_logon_is_told(command: Command, server: RecordedServer) -> None:
    command.keep_logon(server, token_of(username="alice", exp=1_700_000_000))
    assert "ended at 2023-11-1" in command("--status").stderr


def test_a_token_may_be_given_or_of_another_kind(command: Command, server: RecordedServer) -> None:
    command("--exec-get-all", "--rest-host", server.address, "--jwt-token", "opaque")
    assert server.asked[-1].headers["X-Auth-Token"] == "opaque"
    said = command("--logon", "--rest-host", server.address, "--jwt-token", "opaque").stdout
    assert said == f"Logged on at {server.address} as the token's owner\n"
    assert (
        "copy the token again"
        in command("--status", "--rest-host", server.address, "--jwt-token", "a\nb", code=2).stderr
    )


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"logons": {"x": 1}, "last": 3}', "\udcff"])
def test_a_damaged_file_of_logons_is_none(command: Command, server: RecordedServer, content: str) -> None:
    command.kept.write_bytes(content.encode("utf-8", "surrogateescape"))
    options = ["--rest-host", server.address, "--username", "alice", "--password", "x"]
    command("--logon", *options)
    assert json.loads(command.kept.read_text())["last"] == server.address


# --- Finding the server ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-made, for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run([*made, *subject, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text(key.read_text() + cert.read_text())
    return both


def test_https_is_tried_first_and_then_trusted_or_not(command: Command, certificate: Path) -> None:
    with recorded_server({("GET", f"{BASE}/status"): Answer({})}, certificate=certificate) as server:
        where = ["--status", "--rest-host", "127.0.0.1", "--rest-port", str(server.server_port), "--jwt-token", "t"]
        refused = command(*where, code=1).stderr
        assert "is not trusted" in refused
        assert "--cacert FILE" in refused
        assert server.asked == []

        command(*where, "--cacert", str(certificate.with_name("cert.pem")))
        command(*where, "--insecure")
        assert server.calls() == [("GET", f"{BASE}/status")] * 2


def test_a_logon_keeps_what_it_trusted(command: Command, certificate: Path) -> None:
    answers = {("GET", "/auth/v1/logon"): Answer({"accessToken": TOKEN}), ("GET", f"{BASE}/status"): Answer({})}
    with recorded_server(answers, certificate=certificate) as server:
        where = ["--rest-host", server.address, "--username", "alice", "--password", "x"]
        shutil.copy(certificate.with_name("cert.pem"), command.folder / "ours.pem")
        command("--logon", *where, "--cacert", "ours.pem")
        command("--status")
        # A certificate that was not verified once is verified the next time.
        command("--logon", *where, "--insecure")
        assert "is not trusted" in command("--status", code=1).stderr


def test_after_a_logon_by_https_plain_http_is_not_taken(command: Command, server: RecordedServer) -> None:
    secure = server.address.replace("http:", "https:")
    command.kept.write_text(json.dumps({"logons": {secure: {"token": TOKEN}}, "last": ""}))
    said = command("--status", "--rest-host", "127.0.0.1", "--rest-port", str(server.server_port), code=1).stderr
    assert f"No server answers at {secure} (" in said
    assert server.asked == []


def test_a_silent_host_is_named_with_both_ways(command: Command) -> None:
    said = command("--status", "--rest-host", "127.0.0.1", "--rest-port", "1", code=1).stderr
    assert "https://127.0.0.1:1" in said
    assert "http://127.0.0.1:1" in said


def test_a_redirect_is_not_followed_with_a_token(logged_on: Command, server: RecordedServer) -> None:
    server.answers["GET", f"{BASE}/status"] = Answer(status=302, headers={"Location": "https://elsewhere/"})
    assert "https://elsewhere/" in logged_on("--status", code=1).stderr


# --- Trainings ---


def test_a_folder_is_packed_and_named_by_its_last_part(logged_on: Command, server: RecordedServer, model: Path) -> None:
    ended = logged_on(
        *("--exec-start", "edtPyTorch", "--ig", "sig-elastic", "--cs-datastore-meta", "type=fs,data_path=mnist"),
        *("--model-dir", str(model), "--model-main", "train.py", "--numWorker", "4"),
        *("--", "--epochs", "10", "--name", "two words"),
    )
    lines = ended.stdout.splitlines()
    assert lines[0] == "Copying files and directories ..."
    assert lines[1].startswith("Content size: ")
    assert json.loads(ended.stdout[ended.stdout.index("{") :]) == {"execId": "wmla-12", "appId": "wmla-12"}
    assert f"Skipped, because it is not a regular file: {model / 'gone.py'}" in ended.stderr

    asked = server.asked[-1]
    assert asked.query["sigName"] == ["sig-elastic"]
    assert asked.query["args"] == [
        "--exec-start edtPyTorch --model-dir mnist --model-main train.py --cs-datastore-meta type=fs,data_path=mnist "
        "--numWorker 4 -- --epochs 10 --name 'two words'"
    ]
    name, content = _uploaded(asked.headers["Content-Type"], asked.body)
    assert name == "mnist.modelDir.tar"
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == ["mnist/shared.py", "mnist/train.py", "mnist/net/layers.py"]
    assert all(member.isreg() for member in members)


def test_one_script_is_sent_as_it_is_and_json_stands_alone(
    logged_on: Command, server: RecordedServer, model: Path
) -> None:
    ended = logged_on("--exec-start", "PyTorch", "--model-main", "mnist/train.py", "-o", "json")
    assert json.loads(ended.stdout)["execId"] == "wmla-12"
    assert "Copying files and directories ..." in ended.stderr
    asked = server.asked[-1]
    assert asked.query["args"] == ["--exec-start PyTorch --model-main train.py"]
    assert _uploaded(asked.headers["Content-Type"], asked.body) == ("train.py", b"print('training')\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give the code to train"),
        (["--model-dir", "nowhere", "--model-main", "a.py"], "is not a folder"),
        (["--model-dir", "mnist"], "Give the script"),
        (["--model-dir", "mnist", "--model-main", "other.py"], "is not in mnist"),
    ],
)
def test_a_model_that_is_not_there_is_not_sent(
    logged_on: Command, server: RecordedServer, model: Path, arguments: list[str], sentence: str
) -> None:
    assert sentence in logged_on("--exec-start", "edtPyTorch", *arguments, code=2).stderr
    assert server.calls() == []


def test_the_servers_refusal_is_passed_on_without_what_terminals_obey(
    logged_on: Command, server: RecordedServer, model: Path
) -> None:
    server.answers["POST", f"{BASE}/execs/"] = Answer("Error 400: Instance group name x\x1b[2J not found.\n", 400)
    ended = logged_on("--exec-start", "edtPyTorch", "--model-main", "mnist/train.py", "--ig", "x", code=1)
    assert ended.stderr == "dlicmd.py: Error 400: Instance group name x?[2J not found.\n"


def test_columns_are_chosen_and_aligned(logged_on: Command, server: RecordedServer) -> None:
    said = logged_on("--exec-get-all", "-o", "custom-columns=ID:.id,STATE:.state,GROUP:.group.name").stdout
    assert said.splitlines() == [
        "ID        STATE      GROUP",
        "wmla-12   RUNNING    <none>",
        "wmla-3    FINISHED   <none>",
    ]
    assert server.asked[-1].query == {"sort_by": ["id:desc"]}
    logged_on("--exec-get-all", "--query-args", "limit=5&state=RUNNING")
    assert server.asked[-1].query == {"sort_by": ["id:desc"], "limit": ["5"], "state": ["RUNNING"]}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["--status"], "/status"),
        (["--dl-frameworks"], "/execs/frameworks"),
        (["--exec-get", "wmla-12"], "/execs/wmla-12"),
        (["--exec-get-all"], "/execs"),
        (["--rp-get-all"], "/resplans/resplantree"),
        (["--rp-get", "sig-elastic"], "/resplans/resplan/sig-elastic"),
    ],
)
def test_what_is_asked_for_is_printed_as_json(
    logged_on: Command, server: RecordedServer, arguments: list[str], path: str
) -> None:
    content = [{"name": "edtPyTorch", "nested": {"a": [1, None]}}]
    server.answers["GET", f"{BASE}{path}"] = Answer(content)
    assert json.loads(logged_on(*arguments).stdout) == content
    assert server.calls() == [("GET", f"{BASE}{path}")]


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (["--exec-stop", "wmla-12"], ("POST", f"{BASE}/execs/wmla-12/stop")),
        (["--exec-delete", "wmla-12"], ("DELETE", f"{BASE}/execs/wmla-12")),
        (["--exec-delete-all"], ("DELETE", f"{BASE}/execs")),
        (["--rp-delete", "a/b"], ("DELETE", f"{BASE}/resplans/resplan/a%2Fb")),
        (["--app-stop", "wmla-12"], ("PUT", f"{BASE}/scheduler/applications/wmla-12/stop")),
    ],
)
def test_what_is_told_is_said(
    logged_on: Command, server: RecordedServer, arguments: list[str], call: tuple[str, str]
) -> None:
    server.answers[call] = Answer(status=204)
    assert logged_on(*arguments).stdout.startswith(("Stopping ", "Deleted "))
    assert server.calls() == [call]
    server.answers[call] = Answer("Error 400: It is over already.\n", 400)
    assert logged_on(*arguments, code=1).stderr == "dlicmd.py: Error 400: It is over already.\n"


@pytest.mark.parametrize(("option", "kind"), [("", "outerrlog"), ("out", "outlog"), ("err", "errlog")])
def test_the_log_of_a_training_is_printed_as_it_is(
    logged_on: Command, server: RecordedServer, option: str, kind: str
) -> None:
    server.answers["GET", f"{BASE}/execs/wmla-12/log"] = Answer("[2026-01-01] Train,\tLoss: 0.1\nend")
    assert logged_on(f"--exec-train{option}logs", "wmla-12").stdout == "[2026-01-01] Train,\tLoss: 0.1\nend"
    assert server.asked[-1].query == {"logType": [kind]}
    assert server.asked[-1].headers["Accept"] == "text/plain"


def test_logs_of_driver_and_executors(logged_on: Command, server: RecordedServer) -> None:
    logs = f"{BASE}/scheduler/applications/wmla-12"
    rows = [{"applicationid": "wmla-12", "executors": [{"id": "0-a"}, {"id": "1-b"}]}]
    server.answers |= {
        ("GET", f"{BASE}/scheduler/applications"): Answer(rows),
        ("GET", f"{logs}/driver/logs/stdout"): Answer("driving\n"),
        ("GET", f"{logs}/executor/1/logs/stdout"): Answer("first\n"),
        ("GET", f"{logs}/executor/2/logs/stdout"): Answer("second\n"),
        ("GET", f"{logs}/driver/logs/launcherlog"): Answer("launched\n"),
    }
    expected = "*** driver stdout\ndriving\n*** executor 1 stdout\nfirst\n*** executor 2 stdout\nsecond\n"
    assert logged_on("--exec-outlogs", "wmla-12").stdout == expected
    assert logged_on("--app-outlogs", "wmla-12").stdout == expected
    for kind in ("exec", "app"):
        assert logged_on(f"--{kind}-launcherlogs", "wmla-12").stdout == "*** driver launcherlog\nlaunched\n"
    for place, text in (("driver", "oh"), ("executor/1", "no"), ("executor/2", "")):
        server.answers["GET", f"{logs}/{place}/logs/stderr"] = Answer(f"{text}\n")
    for kind in ("exec", "app"):
        said = logged_on(f"--{kind}-errlogs", "wmla-12").stdout
        assert said == "*** driver stderr\noh\n*** executor 1 stderr\nno\n*** executor 2 stderr\n\n"
    del server.answers["GET", f"{logs}/executor/1/logs/stdout"]
    ended = logged_on("--app-outlogs", "wmla-12", code=1)
    assert ended.stdout == expected.replace("first\n", "")
    assert ended.stderr == "dlicmd.py: Error 404: no such thing.\n"
    server.answers["GET", f"{BASE}/scheduler/applications"] = Answer([])
    assert "Application wmla-12 not found" in logged_on("--app-errlogs", "wmla-12", code=1).stderr


@pytest.mark.parametrize("name", ["wmla-12.zip", "../../up.zip", ".profile", "/etc/x.zip"])
def test_a_result_is_saved_here_under_a_harmless_name(logged_on: Command, server: RecordedServer, name: str) -> None:
    told = {"Content-Disposition": f"attachment;filename={name};size=5"}
    server.answers["GET", f"{BASE}/execs/wmla-12/result"] = Answer(b"zzzzz", headers=told)
    expected = Path(name).name.lstrip(".")
    assert logged_on("--exec-trainresult", "wmla-12").stdout == f"Train result is saved to {expected}\n"
    assert (logged_on.folder / expected).read_bytes() == b"zzzzz"


def test_a_result_that_did_not_come_whole_is_not_kept(logged_on: Command, server: RecordedServer) -> None:
    told = {"Content-Disposition": "attachment;filename=wmla-12.zip;size=6"}
    server.answers["GET", f"{BASE}/execs/wmla-12/result"] = Answer(b"zzzzz", headers=told)
    assert "Only 5 of 6 bytes" in logged_on("--exec-trainresult", "wmla-12", code=1).stderr
    assert [path.name for path in logged_on.folder.iterdir()] == [".dlicmd"]


# --- Applications ---


@pytest.mark.parametrize(("state", "code"), [("FINISHED", 0), ("KILLED", 1), ("ERROR", 1)])
def test_waiting_ends_with_how_it_ended(logged_on: Command, server: RecordedServer, state: str, code: int) -> None:
    path = f"{BASE}/scheduler/engine/applications/wmla-12"
    states = ["PENDING_CRD_SCHEDULER", "RUNNING", state]
    server.answers["GET", path] = [Answer([{"id": "wmla-12", "state": word}]) for word in states]
    ended = logged_on("--app-wait", "wmla-12", code=code)
    assert ended.stderr.splitlines() == [f"wmla-12: {word}" for word in states]
    assert json.loads(ended.stdout)["state"] == state


def test_several_are_stopped_one_after_the_other(logged_on: Command, server: RecordedServer) -> None:
    calls = [("PUT", f"{BASE}/scheduler/applications/wmla-{number}/stop") for number in (1, 2)]
    server.answers |= {call: Answer(status=204) for call in calls}
    assert logged_on("--app-stop", "wmla-1", "wmla-2").stdout == "Stopping wmla-1\nStopping wmla-2\n"
    assert server.calls() == calls


def test_all_that_wait_or_run_are_stopped(logged_on: Command, server: RecordedServer) -> None:
    server.answers |= {
        ("GET", f"{BASE}/scheduler/engine/applications"): Answer([{"id": "wmla-1"}, {"id": "wmla-2"}]),
        ("PUT", f"{BASE}/scheduler/applications/wmla-1/stop"): Answer(status=204),
        ("PUT", f"{BASE}/scheduler/applications/wmla-2/stop"): Answer(status=204),
    }
    assert logged_on("--app-stop-all").stdout == "Stopping wmla-1\nStopping wmla-2\n"
    [listed] = [asked for asked in server.asked if asked.path.endswith("/engine/applications")]
    assert listed.query["state"] == ["SUBMITTED,PENDING_CRD_SCHEDULER,RUNNING"]


def test_long_lists_are_read_page_by_page(logged_on: Command, server: RecordedServer) -> None:
    page = Answer([{"id": f"wmla-{number}"} for number in range(1000)])
    path = f"{BASE}/scheduler/engine/applications"
    server.answers["GET", path] = [
        page,
        page,
        Answer("Error 416: start is 2000, beyond the end of the list: send a lower start.\n", 416),
    ]
    assert len(json.loads(logged_on("--app-history-get-all").stdout)) == 2000
    assert [asked.query["start"] for asked in server.asked if asked.path == path] == [["0"], ["1000"], ["2000"]]
    assert "beyond the end of the list" in logged_on("--app-get-all", "--app-search-start", "2000", code=1).stderr
    server.answers["GET", path] = Answer([{"id": "wmla-8"}, {"id": "wmla-7"}])
    span = ["--app-search-start", "7", "--app-search-length", "2"]
    assert len(json.loads(logged_on("--app-history-get-all", *span).stdout)) == 2
    assert (server.asked[-1].query["start"], server.asked[-1].query["length"]) == (["7"], ["2"])
    assert server.asked[-1].query["state"] == ["FINISHED,KILLED,ERROR,FAILED"]


def test_one_application_is_shown_or_missed(logged_on: Command, server: RecordedServer) -> None:
    path = f"{BASE}/scheduler/engine/applications/wmla-12"
    server.answers["GET", path] = [Answer([{"id": "wmla-12"}]), Answer([])]
    assert json.loads(logged_on("--app-get", "wmla-12").stdout) == {"id": "wmla-12"}
    assert "Application wmla-12 not found" in logged_on("--app-get", "wmla-12", code=1).stderr


def test_waits_and_runs_are_summed_up(logged_on: Command, server: RecordedServer) -> None:
    now = int(time.time())
    row = {"state": "FINISHED", "submit_time": now - 60, "start_time": now - 50, "end_time": now - 20}
    rows = [row, {**row, "submit_time": now - 90}, {"state": "SUBMITTED", "submit_time": now - 5}]
    old = {**row, "submit_time": now - 4 * 3600}
    server.answers["GET", f"{BASE}/scheduler/engine/applications"] = Answer([*rows, old])
    assert json.loads(logged_on("--app-analyze", "3").stdout) == {
        "hours": 3.0,
        "applications": 3,
        "by_state": {"FINISHED": 2, "SUBMITTED": 1},
        "mean_wait_seconds": 25.0,
        "mean_run_seconds": 30.0,
    }
    assert json.loads(logged_on("--app-analyze").stdout)["hours"] == 2


def test_a_reader_that_leaves_is_no_error_to_shout_about(logged_on: Command, server: RecordedServer) -> None:
    server.answers["GET", f"{BASE}/execs/wmla-12/log"] = Answer(b"x" * 10_000_000)
    words = [sys.executable, str(PROGRAM), "--exec-trainlogs", "wmla-12"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"HOME": str(logged_on.folder)}
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    assert (process.wait(30), complaint) == (1, b"")


def _uploaded(content_type: str, body: bytes) -> tuple[str | None, bytes]:
    [part] = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body, policy=HTTP).iter_parts()
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return part.get_filename(), content
