"""Tests of dlicmd.py's commands for hyperparameter searches, with the words of IBM's program."""

import io
import json
import tarfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from tests.wmla.commandline import Command
from tests.wmla.recorded import BASE, Answer, RecordedServer

SEARCH = {"modelSpec": {"args": "--exec-start PyTorch"}, "algoDef": {"algorithm": "Random"}, "hyperParams": []}
NAME = "alice-hpo-0000000000000012"
FOUND = {"hpoName": NAME, "state": "RUNNING", "progress": "1/8", "experiments": []}


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    file = tmp_path / "search.json"
    file.write_text(json.dumps(SEARCH, indent=2))
    return file


def parts_of(server: RecordedServer) -> dict[str, tuple[str | None, Any]]:
    """Return name -> (file name, content) of the parts of the last form."""
    asked = server.asked[-1]
    form = message_from_bytes(b"Content-Type: " + asked.headers["Content-Type"].encode() + b"\r\n\r\n" + asked.body)
    parts: Any = form.get_payload()
    return {
        part.get_param("name", header="content-disposition"): (part.get_filename(), part.get_payload(decode=True))
        for part in parts
    }


@pytest.mark.parametrize("told", [NAME, {"uid": NAME, "href": f"{BASE}/hypersearch/{NAME}"}])
def test_a_search_is_started_with_a_folder(
    logged_on: Command, server: RecordedServer, model: Path, definition: Path, told: Any
) -> None:
    server.answers["POST", f"{BASE}/hypersearch"] = Answer(json.dumps(told))
    lines = logged_on("--hpo-start", definition.name, "--model-dir", "mnist").stdout.splitlines()
    assert lines[0] == "Copying files and directories ..."
    assert lines[1].startswith("Content size: ")
    assert lines[2] == f"Start hypersearch with id: {json.dumps(told)}"
    parts = parts_of(server)
    assert json.loads(parts["data"][1]) == SEARCH
    name, content = parts["file"]
    assert name == "mnist.modelDir.tar"
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        assert "mnist/train.py" in archive.getnames()


def test_it_may_be_one_script_and_print_json_alone(
    logged_on: Command, server: RecordedServer, model: Path, definition: Path
) -> None:
    server.answers["POST", f"{BASE}/hypersearch"] = Answer(json.dumps(NAME))
    said = logged_on("--hpo-start", definition.name, "--model-main", "mnist/train.py", "-o", "json")
    assert json.loads(said.stdout) == NAME
    assert parts_of(server)["file"] == ("train.py", b"print('training')\n")


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        ("{", ["--model-dir", "mnist"], "cannot be read"),
        ("[]", ["--model-dir", "mnist"], "has no JSON object"),
        (None, ["--model-dir", "mnist"], "cannot be read"),
        ("{}", [], "Give the code of the experiments: --model-dir FOLDER"),
        ("{}", ["--model-dir", "nowhere"], "is not a folder"),
    ],
)
def test_what_cannot_be_sent_is_said_with_code_2(
    logged_on: Command,
    server: RecordedServer,
    model: Path,
    content: str | None,
    arguments: list[str],
    sentence: str,
) -> None:
    if content is not None:
        (logged_on.folder / "bad.json").write_text(content)
    assert sentence in logged_on("--hpo-start", "bad.json", *arguments, code=2).stderr
    assert server.calls() == []


def test_searches_are_listed(logged_on: Command, server: RecordedServer) -> None:
    server.answers["GET", f"{BASE}/hypersearch"] = Answer([FOUND])
    assert json.loads(logged_on("--hpo-get-all", "--query-args", "limit=5&state=RUNNING").stdout) == [FOUND]
    assert server.asked[-1].query == {"limit": ["5"], "state": ["RUNNING"]}
    said = logged_on("--hpo-get-all", "-o", "custom-columns=name,state,progress").stdout.splitlines()
    assert [line.split() for line in said] == [["name", "state", "progress"], [NAME, "RUNNING", "1/8"]]
    server.answers["GET", f"{BASE}/hypersearch"] = Answer([])
    assert logged_on("--hpo-get-all").stdout == "No result found\n"
    assert json.loads(logged_on("--hpo-get-all", "-o", "json").stdout) == []


def test_one_is_shown_and_restarted(logged_on: Command, server: RecordedServer) -> None:
    server.answers["GET", f"{BASE}/hypersearch/{NAME}"] = Answer(FOUND)
    server.answers["PUT", f"{BASE}/hypersearch/{NAME}/restart"] = Answer(FOUND)
    assert json.loads(logged_on("--hpo-get", NAME).stdout) == FOUND
    assert json.loads(logged_on("--hpo-restart", NAME).stdout) == FOUND
    assert "no such thing" in logged_on("--hpo-get", "other", code=1).stderr


@pytest.mark.parametrize(("option", "method", "verb"), [("stop", "PUT", "Stop"), ("delete", "DELETE", "Delete")])
def test_each_is_stopped_or_deleted_with_ibms_words(
    logged_on: Command, server: RecordedServer, option: str, method: str, verb: str
) -> None:
    server.answers[method, f"{BASE}/hypersearch/{NAME}"] = Answer(status=204)
    server.answers[method, f"{BASE}/hypersearch/first"] = Answer("Error 400: It is over.\n", 400)
    said = logged_on(f"--hpo-{option}", "first", NAME, code=1)
    assert said.stdout == f"{verb} hpo {NAME} succeed. HTTP:204 \n"
    assert said.stderr == f"{verb} hpo first failed. HTTP:400 Error 400: It is over.\n"
    assert logged_on(f"--hpo-{option}", NAME).stderr == ""


def test_all_are_deleted(logged_on: Command, server: RecordedServer) -> None:
    server.answers["DELETE", f"{BASE}/hypersearch"] = Answer(status=204)
    assert logged_on("--hpo-delete-all").stdout == "Deleted all yours\n"


def test_algorithms_are_listed_shown_and_deleted(logged_on: Command, server: RecordedServer) -> None:
    algorithm = {"name": "Random", "type": "BUILD_IN", "remoteExec": False}
    own = {"name": "mine", "type": "USER_PLUGIN", "remoteExec": True, "creator": "alice"}
    server.answers["GET", f"{BASE}/hypersearch/algorithm"] = Answer([algorithm, own])
    server.answers["GET", f"{BASE}/hypersearch/algorithm/mine"] = Answer(own)
    server.answers["GET", f"{BASE}/hypersearch/algorithm/Random"] = Answer(algorithm)
    server.answers["DELETE", f"{BASE}/hypersearch/algorithm/mine"] = Answer(status=204)
    assert json.loads(logged_on("--hpo-algorithm-get-all").stdout) == [algorithm, own]
    assert json.loads(logged_on("--hpo-algorithm-get", "mine").stdout) == own
    table = logged_on("--hpo-algorithm-get-all", "-o", "custom-columns=name,type").stdout
    assert [line.split() for line in table.splitlines()] == [
        ["name", "type"],
        ["Random", "BUILD_IN"],
        ["mine", "USER_PLUGIN"],
    ]
    assert json.loads(logged_on("--hpo-algorithm-get", "Random").stdout) == algorithm
    assert logged_on("--hpo-algorithm-delete", "mine").stdout == "Deleted mine\n"
