"""Templates and models."""

from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from tests.factories import JobFactory, ModelTemplateFactory, RegisteredModelVersionFactory
from tests.wmla.registry.deep_learning import ask, refusal


@pytest.fixture
def template(alice_api: APIClient, code: Path) -> dict[str, Any]:
    given = {"name": "PytorchResnet", "path": str(code), "framework": "PyTorch", "description": "The tutorial's"}
    made = ask(alice_api, "POST", "modeltemplates", given)
    assert made.status_code == 201, made.content
    shown: dict[str, Any] = made.json()
    assert {**shown, **given} == shown
    return shown


def test_a_template_runs_the_elastic_script_where_there_is_one(
    alice_api: APIClient, template: dict[str, Any], code: Path, home: Path
) -> None:
    assert template["entryPoint"] == "elastic-main.py"
    (home / "models/plain").mkdir()
    (home / "models/plain/main.py").write_text("x = 1\n")
    given = {"name": "plain", "path": str(home / "models/plain"), "framework": "pytorch"}
    assert ask(alice_api, "POST", "modeltemplates", given).json()["entryPoint"] == "main.py"
    given = {"name": "own", "path": str(code), "framework": "PyTorch", "entryPoint": "net/layers.py"}
    assert ask(alice_api, "POST", "modeltemplates/", given).json()["entryPoint"] == "net/layers.py"


def test_templates_are_listed_by_framework(alice_api: APIClient, template: dict[str, Any]) -> None:
    assert ask(alice_api, "GET", "modeltemplates").json() == [template]
    assert ask(alice_api, "GET", "modeltemplates?framework=pytorch").json() == [template]
    for other in ("Caffe", "'"):
        assert ask(alice_api, "GET", f"modeltemplates?framework={other}").json() == []
    assert ask(alice_api, "GET", "modeltemplates/PytorchResnet").json() == template


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"framework": "Caffe"}, "The framework must be PyTorch."),
        ({"framework": "TensorFlow"}, "The framework must be PyTorch."),
        ({"framework": 1}, "The framework must be"),
        ({"path": "/etc"}, "Error 400"),
        ({"path": "nowhere"}, "Error 400"),
        ({"name": "a\x1bb"}, "control"),
        ({"name": "x" * 256}, "256 characters"),
        ({"entryPoint": "../../secret.py"}, "is not in the model's folder"),
        ({"entryPoint": "none.py"}, "is not in the model's folder"),
        ({"description": {}}, "description"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(
    alice_api: APIClient, code: Path, change: dict[str, Any], sentence: str
) -> None:
    given = {"name": "new", "path": str(code), "framework": "PyTorch", **change}
    assert sentence in refusal(ask(alice_api, "POST", "modeltemplates", given), 400)
    assert not ModelTemplate.objects.exists()


def test_a_folder_without_a_script_is_refused(alice_api: APIClient, home: Path) -> None:
    (home / "models/empty").mkdir()
    given = {"name": "empty", "path": str(home / "models/empty"), "framework": "PyTorch"}
    assert "main.py" in refusal(ask(alice_api, "POST", "modeltemplates", given), 400)


def test_a_template_takes_its_files_again_and_keeps_the_rest(
    alice_api: APIClient, bob_api: APIClient, template: dict[str, Any], code: Path
) -> None:
    (code / "net/layers.py").write_text("y = 3\n")
    address = "modeltemplates/PytorchResnet"
    refusal(ask(bob_api, "PUT", address), 403)
    assert ask(alice_api, "PUT", address, {"path": str(code), "description": ""}).status_code == 200
    assert b"".join(ask(alice_api, "GET", f"{address}/files/net/layers.py").streaming_content) == b"y = 3\n"
    assert "add another template" in refusal(ask(alice_api, "PUT", address, {"path": "/elsewhere"}), 400)


@pytest.mark.parametrize("of", ["modeltemplates/PytorchResnet", "models/resnet"])
def test_files_are_listed_and_sent(alice_api: APIClient, template: Any, model: Any, of: str) -> None:
    listed = ask(alice_api, "GET", f"{of}/files").json()
    assert {"name": "net/layers.py", "size": 6} in listed
    assert {file["name"] for file in listed} == {"main.py", "elastic-main.py", "net/layers.py"}
    sent = ask(alice_api, "GET", f"{of}/files/net/layers.py")
    assert (sent.status_code, b"".join(sent.streaming_content)) == (200, b"y = 2\n")
    assert sent["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("of", ["modeltemplates/PytorchResnet", "models/resnet"])
@pytest.mark.parametrize(
    "file",
    ["../../data/cifar10/train_db/batch", "%2e%2e/%2e%2e/x", "/etc/passwd", "net", "net/", "none.py", "%00", "link.py"],
)
def test_no_other_file_is_sent(alice_api: APIClient, template: Any, model: Any, code: Path, of: str, file: str) -> None:
    (code / "link.py").symlink_to("/etc/passwd")
    refusal(ask(alice_api, "GET", f"{of}/files/{file}"), 404)


def test_a_template_is_deleted_unless_a_model_was_made_of_it(alice_api: APIClient, template: dict[str, Any]) -> None:
    ask(alice_api, "POST", "models", {"name": "resnet", "templatename": "PytorchResnet"})
    assert "resnet uses it" in refusal(ask(alice_api, "DELETE", "modeltemplates/PytorchResnet"), 409)
    assert ask(alice_api, "DELETE", "models/resnet").status_code == 204
    assert ask(alice_api, "DELETE", "modeltemplates/PytorchResnet").status_code == 204
    refusal(ask(alice_api, "GET", "modeltemplates/PytorchResnet"), 404)


@pytest.fixture
def given(template: dict[str, Any], sig_id: str) -> dict[str, Any]:
    """The tutorial's form."""
    return {
        "name": "resnet",
        "templatename": "PytorchResnet",
        "accelerator": "Elastic",
        "type": "Training",
        "sig": sig_id,
        "dataset": "cifar10",
        "batchsize": 64,
        "description": "Small",
        "hyperparameter": {
            "learningrate": "0.05",
            "solvertype": "RMSProp",
            "lrpolicy": "reducelronplateau",
            "factor": 0.5,
            "epoch": 4,
            "rho": 0.9,
            "nesterov": False,
            "maxiteration": None,
        },
    }


def test_a_model_is_made_of_a_template(alice_api: APIClient, given: dict[str, Any]) -> None:
    made = ask(alice_api, "POST", "models", given)
    assert made.status_code == 201, made.content
    shown = made.json()
    for name in ("name", "templatename", "accelerator", "type", "dataset", "batchsize", "description"):
        assert shown[name] == given[name]
    chosen = {"learningrate": 0.05, "solvertype": "RMSprop", "lrpolicy": "reducelronplateau", "factor": 0.5, "epoch": 4}
    assert shown["hyperparameter"] == chosen
    assert {"path", "framework", "frameworkVersion", "signame", "user", "createTime", "wfinit"} <= set(shown)
    assert ask(alice_api, "GET", "models/resnet").json() == shown
    assert ask(alice_api, "GET", "models").json() == [shown]
    # The same model as everywhere: the script gets what it asks for.
    latest = alice_api.get("/api/v1/models/resnet/").json()["latest"]
    assert (latest["engine"], latest["template"], latest["parameters"]) == ("elastic", "PytorchResnet", {"lr": 0.05})


def test_a_model_has_all_of_wmlas_fields(alice_api: APIClient, given: dict[str, Any]) -> None:
    ask(alice_api, "POST", "models", given)
    shown = ask(alice_api, "GET", "models/resnet").json()
    told = {
        *("name", "templatename", "accelerator", "dataset", "batchsize", "type", "hyperparameter"),
        *("path", "description", "framework", "user", "createTime"),
    }
    empty = {"sig", "signame", "wtfolder", "tfmainContent", "frameworkVersion", "distributeStrategy", "wfinit"}
    assert set(shown) == told | empty | {"version"}
    assert {name for name, value in shown.items() if value is None} == empty


@pytest.mark.parametrize("of_a_template", [True, False])
def test_a_model_is_sent_back_as_it_was_shown(
    alice_api: APIClient, given: dict[str, Any], model: Any, of_a_template: bool
) -> None:
    """WMLA's pages read a model, change a field and send all of it."""
    if of_a_template:
        RegisteredModel.objects.all().delete()
        ask(alice_api, "POST", "models", given)
    shown = ask(alice_api, "GET", "models/resnet").json()
    assert (shown["templatename"] is not None) == of_a_template
    changed = ask(alice_api, "PUT", "models/resnet", {**shown, "batchsize": 16})
    assert changed.status_code == 200, changed.content
    assert {**changed.json(), "createTime": None, "path": None} == {
        **shown, "batchsize": 16, "version": 2, "createTime": None, "path": None
    }  # fmt: skip


def test_a_template_is_sent_back_as_it_was_shown(alice_api: APIClient, template: dict[str, Any]) -> None:
    assert set(template) - {"entryPoint", "user", "createTime"} == {
        *("name", "path", "framework", "description", "frameworkVersion")
    }
    assert ask(alice_api, "PUT", "modeltemplates/PytorchResnet", template).json() == template


@pytest.mark.parametrize(
    "solver", ["Adam", "RMSProp", "SGD", "ASGD", "Adadelta", "Adagrad", "SparseAdam", "Adamax", "Rprop"]
)
def test_all_solvers_are_taken(alice_api: APIClient, given: dict[str, Any], solver: str) -> None:
    answer = ask(alice_api, "POST", "models", {**given, "hyperparameter": {"solvertype": solver}})
    assert answer.status_code == 201, answer.content
    assert answer.json()["hyperparameter"]["solvertype"].lower() == solver.lower()


#: Settings that Tidepool leaves to the script -> PyTorch's default, which a form may send.
LEFT = {
    "decayrate": 0, "decaysteps": 0, "staircase": False, "maxiteration": 0, "power": 0, "rho": 0.9, "lr_decay": 0,
    "amsgrad": False, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "centered": False, "dampening": 0, "nesterov": False,
    "eta_min": 0, "mode": "min", "patience": 10, "threshold": 1e-4, "cooldown": 0, "eps": 1e-8,
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_other_hyperparameters_may_be_left_as_they_are_and_not_be_chosen(
    alice_api: APIClient, given: dict[str, Any], name: str
) -> None:
    chosen = {**given, "hyperparameter": {name: 0.125}}
    assert f"hyperparameter.{name} is not supported" in refusal(ask(alice_api, "POST", "models", chosen), 400)
    left = {**given, "hyperparameter": {"learningrate": 0.1, name: LEFT[name]}}
    assert ask(alice_api, "POST", "models", left).json()["hyperparameter"] == {"learningrate": 0.1}


@pytest.mark.parametrize(("accelerator", "engine"), [("Single", "single"), ("native", "fixed"), ("ELASTIC", "elastic")])
def test_accelerators_are_engines(alice_api: APIClient, given: dict[str, Any], accelerator: str, engine: str) -> None:
    assert ask(alice_api, "POST", "models", {**given, "accelerator": accelerator}).status_code == 201
    assert RegisteredModelVersion.objects.get().engine == engine


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"accelerator": "DDL"}, "use Single, Native, Elastic."),
        ({"type": "Inference"}, "not served here, only trained"),
        ({"templatename": "none"}, "Model template none not found"),
        ({"templatename": ["x"]}, "templatename"),
        ({"sig": "none"}, "Instance group none not found."),
        ({"wtfolder": "/weights"}, "by its wfinit"),
        ({"tfmainContent": "x"}, "TensorFlow"),
        ({"distributeStrategy": "ps"}, "distributeStrategy is not supported: it belongs to TensorFlow"),
        ({"batchsize": 0}, "Batch size"),
        ({"batchsize": "many"}, "Batch size"),
        ({"dataset": "a\x1b"}, "control"),
        ({"name": "../x"}, "slash"),
        ({"hyperparameter": [1]}, "as an object"),
        ({"hyperparameter": {"rho": 0.5}}, "hyperparameter.rho is not supported"),
        ({"hyperparameter": {"maxiteration": 500}}, "hyperparameter.maxiteration is not supported"),
        ({"hyperparameter": {"colour": 0}}, "hyperparameter.colour is not supported: use learningrate,"),
        ({"hyperparameter": {"factor": 0.5}}, "factor belongs to the policy reducelronplateau"),
        ({"hyperparameter": {"solvertype": "Magic"}}, "Optimizer type"),
        ({"hyperparameter": {"learningrate": -1}}, "Base learning rate"),
        ({"hyperparameter": {"learningrate": {"a": 1}}}, "Base learning rate"),
        ({"hyperparameter": {"learningrate": "9" * 5000}}, "Base learning rate"),
        ({"hyperparameter": {"stepvalues": [3, "x"], "lrpolicy": "multistep"}}, "Step values"),
        ({"hyperparameter": {"rho": [[]], "x" * 5000: 1}}, "is not supported"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    alice_api: APIClient, given: dict[str, Any], change: dict[str, Any], sentence: str
) -> None:
    assert sentence in refusal(ask(alice_api, "POST", "models", {**given, **change}), 400)
    assert not RegisteredModel.objects.exists()


def test_all_policies_and_their_numbers_are_taken(alice_api: APIClient, given: dict[str, Any]) -> None:
    policies = [
        {"lrpolicy": "fixed", "momentum": 0.9, "weightdecay": 0.1},
        {"lrpolicy": "step", "stepsize": 5, "gamma": 0.1},
        {"lrpolicy": "multistep", "stepvalues": "3,6", "gamma": 0.2},
        {"lrpolicy": "exponential", "gamma": 0.9},
        {"lrpolicy": "cosineannealing", "t_max": 10, "eta_min": 0},
    ]
    for number, policy in enumerate(policies):
        answer = ask(alice_api, "POST", "models", {**given, "name": f"m{number}", "hyperparameter": policy})
        assert answer.json()["hyperparameter"] == {name: value for name, value in policy.items() if name != "eta_min"}


def test_a_change_is_the_next_version(alice_api: APIClient, bob_api: APIClient, given: dict[str, Any]) -> None:
    ask(alice_api, "POST", "models", given)
    assert "use PUT to change it" in refusal(ask(alice_api, "POST", "models", given), 409)
    changed = ask(alice_api, "PUT", "models/resnet", {"hyperparameter": {"learningrate": 0.2, "epoch": 1}}).json()
    assert (changed["version"], changed["hyperparameter"]) == (2, {"learningrate": 0.2, "epoch": 1})
    assert (changed["batchsize"], changed["dataset"], changed["accelerator"]) == (64, "cifar10", "Elastic")
    assert RegisteredModelVersion.objects.get(number=2).parameters == {"lr": 0.2}
    same = ask(alice_api, "PUT", "models/resnet", {"batchsize": 32, "accelerator": "Single"}).json()
    assert (same["batchsize"], same["accelerator"], same["hyperparameter"]) == (32, "Single", changed["hyperparameter"])
    refusal(ask(bob_api, "PUT", "models/resnet", {}), 403)
    assert "cannot be renamed" in refusal(ask(alice_api, "PUT", "models/resnet", {"name": "other"}), 400)
    refusal(ask(alice_api, "PUT", "models/none", {}), 404)


def test_a_model_is_deleted_unless_it_was_trained(alice_api: APIClient, bob_api: APIClient, model: Any) -> None:
    refusal(ask(bob_api, "DELETE", "models/resnet"), 403)
    job = JobFactory(model=model)
    assert "started with this model" in refusal(ask(alice_api, "DELETE", "models/resnet"), 409)
    job.delete()
    assert ask(alice_api, "DELETE", "models/resnet").status_code == 204


def test_a_model_has_no_weights_of_its_own(alice_api: APIClient, model: Any) -> None:
    assert "trainings/<name>/weightfile" in refusal(ask(alice_api, "GET", "models/resnet/weightfile"), 404)
    refusal(ask(alice_api, "PUT", "models/resnet/weightfile"), 405)


def test_the_lists_cost_the_same_however_long_they_are(
    alice_api: APIClient, home: Path, django_assert_num_queries: Any
) -> None:
    for count in (2, 20):
        for template in ModelTemplateFactory.create_batch(count):
            RegisteredModelVersionFactory(template=template)
        with django_assert_num_queries(4):
            ask(alice_api, "GET", "models")
        with django_assert_num_queries(3):
            ask(alice_api, "GET", "modeltemplates")


@pytest.mark.parametrize("address", ["frameworks", "frameworks/all"])
def test_frameworks_are_those_of_submissions(alice_api: APIClient, address: str) -> None:
    rows = ask(alice_api, "GET", address).json()
    assert rows == ask(alice_api, "GET", "execs/frameworks").json()
    assert {row["backend"] for row in rows} == {"pytorch", "tensorflow"}
    assert ask(alice_api, "GET", "frameworks?backend=caffe").json() == []


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("inferences", "not served here"),
        ("inferences/startpredict", "not served here"),
        ("edimodels/m/instance", "not served here"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_what_is_not_here_says_what_is(alice_api: APIClient, method: str, address: str, sentence: str) -> None:
    assert sentence in refusal(ask(alice_api, method, address), 404)
