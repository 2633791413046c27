"""Tests of options of WMLA's command line that dlicmd.py takes, passes on and refuses."""

import json
import re
import ssl
from pathlib import Path

import pytest

from tests.wmla.commandline import Command
from tests.wmla.recorded import BASE, RecordedServer
from wmla.dlicmd import _connection


def test_help_teaches_with_examples(command: Command) -> None:
    said = command("-h").stdout
    for wanted in ("--exec-start FRAMEWORK", "--rest-host", "--cacert", "examples:", "exit codes:", "-- --epochs 10"):
        assert wanted in said
    assert "--hpo-start FILE" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give a command"),
        (["--exec-get"], "expected one argument"),
        (["--logon", "--password", "-DRH"], "Write --password=VALUE for a value that begins with a dash."),
        (["--status", "--exec-get-all"], "not allowed with"),
        (["--exec-get", "1", "--colour", "red"], "Option --colour is not known"),
        (["--exec-start", "edtPyTorch", "--rest-prot", "9243"], "Did you mean --rest-port instead of --rest-prot?"),
        (["--status"], "Give the server with --rest-host"),
        (["--status", "--rest-host", "ftp://h"], "is not a valid host"),
        (["--status", "--rest-host", "h", "--rest-port", "99999"], "invalid _port value"),
        (["--status", "--rest-host", "h", "-o", "yaml"], "give json, or custom-columns="),
        (["--status", "--rest-host", "h", "--cacert", "nowhere.pem"], "give a file of PEM certificates"),
        (["--status", "--rest-host", "h", "--rest-port", "-2"], "invalid _port value"),
        (["--status", "--rest-host", "h", "--debug-level", "loud"], "invalid choice"),
        (["--app-analyze", "-1"], "--app-analyze"),
        (["--exec-start", "PyTorch", "--user-cmd"], "--user-cmd needs a command after --"),
        (["--exec-start", "PyTorch", "--user-cmd", "--"], "--user-cmd needs a command after --"),
        (["--exec-start", "PyTorch", "--pbmodel-name", "AlexNet"], "--pbmodel-name is not supported here"),
        (["--exec-start", "PyTorch", "--pbmodel-cmd=x"], "--pbmodel-cmd is not supported here"),
    ],
)
def test_what_does_not_fit_is_said_with_code_2(command: Command, arguments: list[str], sentence: str) -> None:
    ended = command(*arguments, code=2)
    assert ended.stdout == ""
    assert ended.stderr.startswith("dlicmd.py: ")
    assert sentence in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        *((f"--{name} pod", "see --app-get-all") for name in ("k8s-obj-get-all", "k8s-obj-get")),
        ("--pj-get-all", "see --app-get-all"),
        ("--exec-deploy wmla-12 --name mnist --kernel kernel.py --runtime dlipy3", "--exec-trainresult"),
    ],
)
def test_what_is_not_here_says_what_is_and_asks_no_server(command: Command, arguments: str, instead: str) -> None:
    ended = command(*arguments.split(), code=2)
    assert ended.stdout == ""
    assert instead in ended.stderr


def test_hosts_and_ports_have_their_older_names_too(command: Command, server: RecordedServer) -> None:
    older = ["--master-host", "127.0.0.1", "--dli-rest-port", str(server.server_port), "--jwt-token", "t"]
    said = command("--status", *older, "--debug-level", "debug")
    assert json.loads(said.stdout) == {"status": "ok"}
    assert said.stderr == f"GET {server.address}{BASE}/status\n"


def test_port_minus_1_is_that_of_a_route(command: Command) -> None:
    said = command("--status", "--rest-host", "nowhere.invalid", "--rest-port", "-1", code=1).stderr
    assert re.search(r"No server answers at https://nowhere\.invalid \(.+\) or http://nowhere\.invalid \(", said)


OTHERS = [
    *("--appName", "--submit-user", "--consumer", "--data-source", "--cs-rmq-meta", "--cs-url-meta", "--cs-url-bearer"),
    *("--conda-env-name", "--conda-home", "--conda-env-yaml", "--conda-env-package", "--python-version"),
    *("--sc-runasuser", "--numWorker", "--workerDeviceType", "--workerDeviceNum", "--workerMemory", "--workerCPULimit"),
    *("--workerMemoryLimit", "--numPs", "--numDriver", "--driverDeviceType", "--driverMemory", "--driverCPULimit"),
    *("--gpuPerWorker", "--edt-options", "--accelerators", "--msd-priority", "--msd-env", "--msd-attr", "--msd-label"),
    *("--msd-image-name", "--msd-image-pull-secret", "--msd-image-pull-policy", "--msd-task0-node-selector"),
    *("--msd-task12n-node-selector", "--msd-pending-timeout", "--msd-podaffinity-rule", "--msd-pack-id"),
    "--lsf-gpu-syntax",
]


def test_wmlas_other_options_reach_the_server_as_they_are(
    logged_on: Command, server: RecordedServer, model: Path
) -> None:
    words = [word for option in OTHERS for word in (option, "x=1,y=2")]
    logged_on("--exec-start", "PyTorch", "--model-main", "mnist/train.py", *words, "--exclusive")
    [args] = server.asked[-1].query["args"]
    assert args == " ".join(["--exec-start PyTorch --model-main train.py", *words, "--exclusive"])


def test_a_command_is_sent_with_a_folder_a_script_or_nothing(
    logged_on: Command, server: RecordedServer, model: Path
) -> None:
    command = ["--numWorker", "4", "--user-cmd", "--", "bash", "run.sh", "train.py", "--lr", "0.1"]
    for sent, named in (
        (["--model-dir", "mnist"], "--model-dir mnist "),
        (["--model-main", "mnist/train.py"], "--model-main train.py "),
        ([], ""),
    ):
        logged_on("--exec-start", "distPyTorch", *sent, *command)
        request = server.asked[-1]
        words = f"--exec-start distPyTorch {named}--user-cmd --numWorker 4 -- bash run.sh train.py --lr 0.1"
        assert request.query["args"] == [words]
        assert bool(request.body) is bool(sent)


def test_words_between_marks_are_one(logged_on: Command, server: RecordedServer, model: Path) -> None:
    script = ["--note", "_QUOTE_two", "words_QUOTE_", "--x=_QUOTE_a b_QUOTE_", "_QUOTE_c_QUOTE_"]
    run = ["--exec-start", "PyTorch", "--model-main", "mnist/train.py", "--"]
    logged_on(*run, *script)
    assert server.asked[-1].query["args"][0].endswith(" -- --note 'two words' '--x=a b' c")
    assert "_QUOTE_ has no closing one" in logged_on(*run, "--note", "_QUOTE_two", "words", code=2).stderr


@pytest.mark.parametrize(
    ("address", "port"), [("http://[fd00::1]", 80), ("https://[fd00::1]", 443), ("https://[fd00::1]:8643", 8643)]
)
def test_an_ipv6_address_is_read_whole(address: str, port: int) -> None:
    to = _connection(address, ssl.create_default_context())
    assert (to.host, to.port) == ("fd00::1", port)
