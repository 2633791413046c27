"""Search algorithms of users in WMLA's words: the requests of WMLA-HPO-Plugin-Search-Algorithm.ipynb, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.files.job_folder import job_folder
from models_registry.models import RegisteredModel
from studies.models import SearchPlugin, Study
from tests.factories import UserFactory
from tests.search_plugins import GRID, RANDOM, packed
from tests.studies.conftest import turn
from tests.studies.test_plugins import answer, open_call
from tests.wmla.conftest import text_of
from tests.wmla.searches import RANDOM as SEARCH
from tests.wmla.searches import SEARCHES, changed, post, study_behind
from wmla.hypersearch_names import name_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("group", "data")]

INSTALL = f"{SEARCHES}/algorithm/install"
ALGORITHM = f"{SEARCHES}/algorithm/RandomSearch"
#: The notebook's description.
TOLD: dict[str, Any] = {
    "name": "RandomSearch",
    "condaHome": "/opt/anaconda3",
    "condaEnv": "dlipy3",
    "remoteExec": False,
    "logLevel": "INFO",
}


def install(
    client: Client, told: Any = TOLD, content: bytes | None = None, address: str = INSTALL, name: str = "random.tar"
) -> Any:
    """Install as cell 21 of the notebook does: the description as a text, and a tar as the part `file`."""
    data = told if isinstance(told, str) else json.dumps(told)
    upload = SimpleUploadedFile(name, packed(RANDOM) if content is None else content)
    return client.post(address, {"data": data, "file": upload})


@pytest.fixture
def installed(alice_client: Client) -> SearchPlugin:
    assert install(alice_client).status_code == 200
    return SearchPlugin.objects.get()


@pytest.fixture
def bob_client() -> Client:
    client = Client()
    client.force_login(UserFactory(username="bob"))
    return client


def search(client: Client, **changes: Any) -> Study:
    request = changed(SEARCH, "algoDef.algorithm", "randomsearch")
    for path, value in changes.items():
        request = changed(request, path.replace("__", "."), value)
    return study_behind(post(client, request))


class TestInstall:
    @pytest.mark.parametrize("address", [INSTALL, f"{SEARCHES}/algorithm"])
    def test_the_notebook_looks_it_up_lists_and_deletes_it(self, alice_client: Client, address: str) -> None:
        assert alice_client.get(ALGORITHM).json() == {}
        answer = install(alice_client, address=address)
        assert answer.status_code == 200, answer.content
        assert answer.json() == {"uid": "RandomSearch", "href": ALGORITHM}
        told = alice_client.get(ALGORITHM).json()
        assert told.pop("createtime")[:3] == "202"
        assert told == {
            "name": "RandomSearch",
            "type": "USER_PLUGIN",
            "remoteExec": True,
            "path": SearchPlugin.objects.get().code.path,
            "condaHome": "/opt/anaconda3",
            "condaEnv": "dlipy3",
            "creator": "alice",
            "logLevel": "INFO",
        }
        [listed] = alice_client.get(f"{SEARCHES}/algorithm?type=USER_PLUGIN").json()
        assert (listed["name"], len(alice_client.get(f"{SEARCHES}/algorithm").json())) == ("RandomSearch", 6)
        assert alice_client.delete(ALGORITHM).status_code == 204
        assert (alice_client.get(ALGORITHM).json(), alice_client.delete(ALGORITHM).status_code) == ({}, 404)
        assert not RegisteredModel.objects.exists()

    def test_a_folder_of_the_server_is_refused(self, alice_client: Client) -> None:
        # Cell 13: the same text is the field and the file `data`, and there is no tar.
        data = json.dumps({**TOLD, "path": "/home/optimizers/random"})
        answer = alice_client.post(INSTALL, {"data": [data, SimpleUploadedFile("data", data.encode())]})
        assert answer.status_code == 400
        assert text_of(answer).startswith("Error 400: path is a folder on the server, which is not read here: send")

    def test_a_file_without_a_name_is_a_tar(self, alice_client: Client) -> None:
        assert install(alice_client, name="plugin").status_code == 200

    @pytest.mark.parametrize(
        ("told", "status", "sentence"),
        [
            ("[]", 400, 'data must be a JSON object like {"name": "my-search", "logLevel": "INFO"}.'),
            ({}, 400, "Enter a name."),
            ({"name": 3}, 400, "name is 3: send a text."),
            ({"name": "a/b"}, 400, "The name must not contain a slash"),
            ({"name": "x" * 101}, 400, "The name has 101 characters"),
            ({"name": "x", "logLevel": "LOUD"}, 400, "The log level must be one of DEBUG, INFO"),
            ({"name": "tpe"}, 409, "Algorithm tpe is built in: choose another name."),
            ({"name": "Install"}, 409, "Algorithm Install is built in: choose another name."),
        ],
    )
    def test_a_wrong_description_is_refused(self, alice_client: Client, told: Any, status: int, sentence: str) -> None:
        answer = install(alice_client, told)
        assert (answer.status_code, text_of(answer)[11 : 11 + len(sentence)]) == (status, sentence)
        assert not RegisteredModel.objects.exists()

    def test_a_second_one_of_the_name_is_refused(self, installed: SearchPlugin, bob_client: Client) -> None:
        answer = install(bob_client, {"name": "randomsearch"}, packed(GRID))
        assert answer.status_code == 409
        assert text_of(answer).startswith("Error 409: There is a search algorithm randomsearch: delete it first")

    def test_unsafe_archives_leave_nothing(self, alice_client: Client, home: Path) -> None:
        for content in (b"", b"text", packed({"../optimizer.py": RANDOM}), packed({"a/optimizer.py": RANDOM})):
            assert install(alice_client, content=content).status_code == 400
        assert not SearchPlugin.objects.exists()
        assert not (home / "models/optimizer.py").exists()

    def test_others_use_it_and_only_its_owner_deletes_it(
        self, installed: SearchPlugin, alice_client: Client, bob_client: Client, home: Path
    ) -> None:
        assert bob_client.get(ALGORITHM).json()["creator"] == "alice"
        assert bob_client.delete(ALGORITHM).status_code == 403
        study = turn(search(bob_client))
        assert open_call(study).owner.get_username() == "bob"
        assert alice_client.delete(ALGORITHM).status_code == 409


class TestSearch:
    def test_the_plug_in_gets_what_the_client_sent(self, installed: SearchPlugin, alice_client: Client) -> None:
        study = turn(search(alice_client, algoDef__algoParams=[{"name": "random_seed", "value": 7}]))
        assert (study.sampler, study.plugin, study.trials_wanted, study.at_once) == ("plugin", installed, 4, 2)
        told = json.loads((job_folder(open_call(study)).code / "plugin-ask.json").read_text())
        assert (told["name"], told["options"], told["objective"]) == ("RandomSearch", {"random_seed": "7"}, "minimize")
        rate, optimizer, batch = told["hyper_parameters"]
        assert (rate["type"], rate["dataType"], rate["minDbVal"], rate["step"]) == ("Range", "DOUBLE", 0.001, 0.002)
        assert (optimizer["type"], optimizer["dataType"]) == ("Discrete", "STR")
        assert (optimizer["discreateStrVal"], batch["discreteIntVal"]) == (["Adam", "SGD"], [32, 64])

    def test_its_experiments_are_those_of_any_search(self, installed: SearchPlugin, alice_client: Client) -> None:
        study = turn(search(alice_client))
        address = f"{SEARCHES}/{name_of(study)}"
        told = alice_client.get(address).json()
        assert (told["state"], told["progress"], told["experiments"]) == ("SUBMITTED", "0/4", [])
        # No step binds a plug-in, as those of IBM's sample know none.
        answer(open_call(study), [{"learning_rate": 0.0125, "optimizer": "SGD", "batch": 64}])
        turn(study)
        told = alice_client.get(address).json()
        assert told["state"] == "RUNNING"
        [experiment] = told["experiments"]
        assert [each["fixedVal"] for each in experiment["hyperParams"]] == ["0.0125", "SGD", "64"]
        assert alice_client.get(f"{SEARCHES}/../execs/{experiment['appId']}".replace("hypersearch/../", "")).json()

    def test_a_failed_plug_in_is_a_failed_search(self, installed: SearchPlugin, alice_client: Client) -> None:
        study = turn(search(alice_client))
        answer(open_call(study), "no JSON")
        turn(study)
        address = f"{SEARCHES}/{name_of(study)}"
        assert alice_client.get(address).json()["state"] == "FAILED"
        assert alice_client.put(f"{address}/restart").json()["state"] == "SUBMITTED"
        assert alice_client.put(address).status_code == 204
        assert alice_client.delete(address).status_code == 204

    def test_a_range_of_powers_reaches_it_as_the_range_of_its_values(
        self, installed: SearchPlugin, alice_client: Client
    ) -> None:
        row = {"name": "rate", "type": "range", "dataType": "double", "minDbVal": "-2", "maxDbVal": 5, "power": 10}
        constant = {"name": "depth", "type": "Fix", "dataType": "INT", "fixedVal": "3"}
        study = search(alice_client, hyperParams=[row, constant])
        assert study.space == {"rate": {"kind": "uniform", "low": 0.01, "high": 100000.0}, "depth": 3}
        [told] = study.plugin_arguments["hyper_parameters"]
        assert (told["minDbVal"], told["maxDbVal"], told["power"], told["type"]) == (0.01, 100000.0, None, "Range")

    @pytest.mark.parametrize(
        ("rows", "sentence"),
        [
            ([{"name": "self", "value": "1"}], "algoParams has the name 'self': choose another one."),
            ([{"value": "1"}], "algoParams has the name None: choose another one."),
            ([{"name": "a", "value": []}], "a in algoParams has no value: send a text of at most 4096 characters."),
            ([{"name": f"a{n}", "value": "1"} for n in range(101)], "algoParams has 101 entries: send at most 100."),
        ],
    )
    def test_wrong_options_are_refused(
        self, installed: SearchPlugin, alice_client: Client, rows: Any, sentence: str
    ) -> None:
        refused = post(
            alice_client, changed(changed(SEARCH, "algoDef.algorithm", "RandomSearch"), "algoDef.algoParams", rows)
        )
        assert text_of(refused).strip() == f"Error 400: {sentence}"
