from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from datasets.models import Dataset
from tests.factories import DatasetVersionFactory, JobFactory
from tests.wmla.registry.deep_learning import ask, refusal


@pytest.fixture
def given(data: Path, sig_id: str) -> dict[str, Any]:
    return {
        "name": "cifar10EDTpytorch",
        "datasourcetype": "OTHER",
        "dbbackend": "Other",
        "sigid": sig_id,
        "trainpath": str(data / "train_db"),
        "testpath": str(data / "test_db"),
    }


def test_one_is_made_listed_and_shown(alice_api: APIClient, given: dict[str, Any]) -> None:
    made = ask(alice_api, "POST", "datasets", given)
    assert made.status_code == 201, made.content
    shown = ask(alice_api, "GET", "datasets/cifar10EDTpytorch")
    assert shown.json() == made.json()
    described = shown.json()
    assert {name: described[name] for name in given if name != "sigid"} == {
        name: value for name, value in given.items() if name != "sigid"
    }
    assert (described["status"], described["size"], described["createUser"]) == ("FINISHED", 8, "alice")
    wanted = {"runduration", "signame", "masterUrl", "driverid", "sparkappid", "trainlabels", "vallabels", "testlabels"}
    assert wanted | {"submittedtime", "valpath"} <= set(described)
    assert ask(alice_api, "GET", "datasets/").json() == [described]
    # The dataset is the same as in the native API.
    assert alice_api.get("/api/v1/datasets/cifar10EDTpytorch/").json()["latest"]["state"] == "READY"


def test_a_dataset_has_all_of_wmlas_fields(alice_api: APIClient, given: dict[str, Any]) -> None:
    ask(alice_api, "POST", "datasets", given)
    shown = ask(alice_api, "GET", "datasets/cifar10EDTpytorch").json()
    told = {
        *("name", "datasourcetype", "dbbackend", "trainpath", "valpath", "testpath", "status", "submittedtime"),
        *("createUser", "size", "trainlabels", "vallabels", "testlabels"),
    }
    # Fields of conversions, which do not exist here, and of the instance group, which a dataset does not have.
    empty = {
        *("meanfilepath", "imagedetail", "shards", "byclass", "plugin"),
        *("sigid", "signame", "masterUrl", "driverid", "sparkappid", "runduration"),
    }
    assert set(shown) == told | empty | {"message"}
    assert {name for name, value in shown.items() if value is None} == empty
    # Sent back as they came they change nothing.
    again = {**shown, "name": "again", "sigid": given["sigid"]}
    assert ask(alice_api, "POST", "datasets", again).status_code == 201


@pytest.mark.parametrize(
    ("kind", "label"),
    [("OTHER", "Any"), ("IMAGEFORCLASSIFICATION", "Images for Object Classification"), ("CSV", "CSV Files")],
)
def test_the_types_there_are_have_a_name_on_the_pages(
    alice_api: APIClient, given: dict[str, Any], kind: str, label: str
) -> None:
    made = ask(alice_api, "POST", "datasets", {**given, "datasourcetype": kind})
    assert (made.status_code, made.json()["datasourcetype"]) == (201, kind)
    assert Dataset.objects.get().get_kind_display() == label


@pytest.mark.parametrize("kind", ["LMDB", "TFRECORDS", "IMAGEFOROBJECTDETECTION", "IMGTOVECTOR"])
def test_the_others_are_refused_with_those_there_are(alice_api: APIClient, given: dict[str, Any], kind: str) -> None:
    answer = ask(alice_api, "POST", "datasets", {**given, "datasourcetype": kind})
    assert refusal(answer, 400).endswith("are not supported: use OTHER, IMAGEFORCLASSIFICATION, CSV.\n")


def test_the_group_may_be_given_by_name_and_types_in_any_case(alice_api: APIClient, given: dict[str, Any]) -> None:
    body = {**given, "sigid": "sig-elastic", "datasourcetype": "other", "shards": 0, "byclass": False}
    assert ask(alice_api, "POST", "datasets", body).status_code == 201


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"datasourcetype": "LMDB"}, "LMDB files) are not supported: use OTHER, IMAGEFORCLASSIFICATION, CSV."),
        ({"datasourcetype": "TFRECORDS"}, "are not supported"),
        ({"datasourcetype": "IMGTOVECTOR"}, "are not supported"),
        ({"datasourcetype": "x\n"}, "are not supported"),
        ({"dbbackend": "LMDB"}, "not converted to LMDB: use Other."),
        ({"meanfilepath": "/mean"}, "meanfilepath configures a conversion"),
        ({"imagedetail": {"height": 32}}, "imagedetail configures a conversion"),
        ({"sigid": "nothing"}, "Instance group nothing not found."),
        ({"sigid": None}, "sigid"),
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "must not contain a slash"),
        ({"name": "a\x00b"}, "name"),
        ({"name": "x" * 300}, "300 characters"),
        ({"name": ["x"]}, "name"),
        ({"trainpath": "/etc"}, "Error 400"),
        ({"trainpath": "../../etc"}, "Error 400"),
        ({"trainpath": ""}, "trainpath"),
        ({"valpath": {"a": 1}}, "valpath"),
    ],
)
def test_what_does_not_fit_is_refused(
    alice_api: APIClient, given: dict[str, Any], change: dict[str, Any], sentence: str
) -> None:
    assert sentence in refusal(ask(alice_api, "POST", "datasets", {**given, **change}), 400)
    assert not Dataset.objects.exists()


@pytest.mark.parametrize("missing", ["name", "datasourcetype", "dbbackend", "sigid", "trainpath"])
def test_what_is_required_is_named(alice_api: APIClient, given: dict[str, Any], missing: str) -> None:
    del given[missing]
    assert missing in refusal(ask(alice_api, "POST", "datasets", given), 400)


def test_a_name_is_given_once(alice_api: APIClient, given: dict[str, Any]) -> None:
    ask(alice_api, "POST", "datasets", given)
    assert "choose another name" in refusal(ask(alice_api, "POST", "datasets", given), 409)
    assert Dataset.objects.get().versions.count() == 1


def test_it_is_deleted_unless_it_was_used(alice_api: APIClient, bob_api: APIClient, alice: User, home: Path) -> None:
    dataset = DatasetVersionFactory(dataset__name="digits", dataset__owner=alice)
    refusal(ask(bob_api, "DELETE", "datasets/digits"), 403)
    job = JobFactory(dataset=dataset)
    assert "training has used this data" in refusal(ask(alice_api, "DELETE", "datasets/digits"), 409)
    job.delete()
    assert ask(alice_api, "DELETE", "datasets/digits/").status_code == 204
    refusal(ask(alice_api, "GET", "datasets/digits"), 404)


def test_nothing_is_imported_that_could_be_stopped(
    alice_api: APIClient, bob_api: APIClient, alice: User, home: Path
) -> None:
    DatasetVersionFactory(dataset__name="digits", dataset__owner=alice)
    assert "has no import to stop" in refusal(ask(alice_api, "PUT", "datasets/digits/stop"), 400)
    refusal(ask(bob_api, "PUT", "datasets/digits/stop"), 403)
    refusal(ask(bob_api, "PUT", "datasets/none/stop"), 404)


def test_the_list_costs_the_same_however_long_it_is(
    alice_api: APIClient, home: Path, django_assert_num_queries: Any
) -> None:
    DatasetVersionFactory.create_batch(3)
    with django_assert_num_queries(4):
        assert len(ask(alice_api, "GET", "datasets").json()) == 3
    DatasetVersionFactory.create_batch(20)
    with django_assert_num_queries(4):
        assert len(ask(alice_api, "GET", "datasets?length=1000").json()) == 23
    assert len(ask(alice_api, "GET", "datasets?start=20&length=2").json()) == 2


@pytest.mark.parametrize(
    "query", ["start=-1", "start=x", "length=0", "length=1001", "length=" + "9" * 5000, "start=%00"]
)
def test_odd_parts_are_refused(alice_api: APIClient, query: str) -> None:
    refusal(ask(alice_api, "GET", f"datasets?{query}"), 400)


@pytest.mark.parametrize("name", ["%00", "%ff", "%2e%2e", "x" * 5000, "%0d%0aX-A:b", "9" * 40])
def test_odd_names_are_not_found(alice_api: APIClient, name: str) -> None:
    refusal(ask(alice_api, "GET", f"datasets/{name}"), 404)
