"""AdaptDLJobs: what they say becomes a training's, and what they cannot say here is refused or named."""

from typing import Any

import pytest

from jobs.models import Job

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/jobs/adaptdl/"
MANIFEST = """
apiVersion: adaptdl.petuum.com/v1
kind: AdaptDLJob
metadata:
  generateName: mnist-
spec:
  minReplicas: 0
  maxReplicas: 3
  template:
    spec:
      nodeSelector: {zone: a}
      containers:
      - name: main
        image: registry/mnist
        command: [python3, -u, /root/tutorial/main.py]
        args: ["--epochs", 2]
        env:
        - {name: PYTHONUNBUFFERED, value: "true"}
        resources: {limits: {nvidia.com/gpu: 1}}
"""


def post(client: Any, submission: dict[str, Any], manifest: str = MANIFEST) -> Any:
    fields = {name: submission[name] for name in ("model", "dataset", "instance_group")}
    return client.post(ADDRESS, fields | {"manifest": manifest}, format="json")


def test_a_manifest_is_a_training(alice_api, submission):
    answer = post(alice_api, submission)
    assert answer.status_code == 201, answer.json()
    job = Job.objects.get(pk=answer.json()["id"])
    assert (job.name, job.min_slots, job.max_slots) == ("mnist", 1, 3)
    assert (job.arguments, job.environment) == (["--epochs", "2"], {"PYTHONUNBUFFERED": "true"})
    told = [event.detail["options"] for event in job.events.all() if event.detail["message"] == "without_effect"]
    assert told == ["spec.template.spec.nodeSelector, container.image"]


def test_its_name_and_arguments_may_be_given_beside_it(alice_api, submission):
    given = {name: submission[name] for name in ("model", "dataset", "instance_group")} | {"manifest": MANIFEST}
    answer = alice_api.post(ADDRESS, given | {"name": "mine", "arguments": ["--lr", ""]}, format="json")
    job = Job.objects.get(pk=answer.json()["id"])
    assert (job.name, job.arguments) == ("mine", ["--lr", ""])
    for wrong in ({"arguments": "--lr"}, {"arguments": [{}]}, {"name": "x" * 300}):
        answer = alice_api.post(ADDRESS, given | wrong, format="json")
        assert (answer.status_code, answer.json()["fields"].keys()) == (400, wrong.keys())


def test_a_manifest_is_previewed(alice_api, submission):
    fields = {name: submission[name] for name in ("model", "dataset", "instance_group")}
    answer = alice_api.post(f"{ADDRESS}preview/", fields | {"manifest": MANIFEST}, format="json")
    assert (answer.status_code, answer.json()["target_slots"], Job.objects.count()) == (200, 3, 0)
    wrong = alice_api.post(f"{ADDRESS}preview/", fields | {"manifest": "kind: Pod"}, format="json")
    assert (wrong.status_code, [*wrong.json()["fields"]]) == (400, ["manifest"])


def test_the_body_may_be_the_manifest_itself(alice_api, submission):
    address = f"{ADDRESS}?model={submission['model']}&dataset={submission['dataset']}&instance_group="
    sent = MANIFEST.replace("  maxReplicas: 3\n", "")
    answer = alice_api.generic("POST", address + submission["instance_group"], sent, "application/yaml")
    assert answer.status_code == 201, answer.json()
    assert answer.json()["max_slots"] == 4, "all that its group has"
    assert alice_api.generic("POST", address, b"\xff", "application/yaml").json()["fields"].keys() == {"manifest"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MANIFEST, "a: [1"),
        (MANIFEST, "[]"),
        (MANIFEST, "{" * 5000),
        ("kind: AdaptDLJob", "kind: Pod"),
        ("maxReplicas: 3", "maxReplicas: 0"),
        ("maxReplicas: 3", "maxReplicas: many"),
        ("minReplicas: 0", "minReplicas: 4"),
        ("minReplicas: 0", "preemptible: false"),
        ("minReplicas: 0", "preemptible: perhaps"),
        ("nvidia.com/gpu: 1", "nvidia.com/gpu: 2"),
        ('value: "true"', "valueFrom: {secretKeyRef: {name: a, key: b}}"),
        ("[python3, -u, /root/tutorial/main.py]", "[bash, -c, python3 main.py]"),
        ("[python3, -u, /root/tutorial/main.py]", "python3 main.py"),
        ("/root/tutorial/main.py", "/root/tutorial/other.py"),
        ("containers:", "containers: []\n      others:"),
        ("metadata:\n  generateName: mnist-", "metadata: mnist"),
    ],
)
def test_what_cannot_be_is_refused(alice_api, submission, old, new):
    assert old in MANIFEST
    answer = post(alice_api, submission, MANIFEST.replace(old, new))
    assert (answer.status_code, set(answer.json()["fields"])) == (400, {"manifest"}), answer.json()
    assert not Job.objects.exists()


def test_a_size_that_stays(alice_api, submission):
    sent = MANIFEST.replace("minReplicas: 0", "minReplicas: 3\n  preemptible: false")
    assert post(alice_api, submission, sent).json()["min_slots"] == 3


def test_what_a_submission_refuses_is_refused_here(alice_api, submission):
    answer = post(alice_api, {**submission, "model": "nothing"}, MANIFEST.replace("maxReplicas: 3", "maxReplicas: 99"))
    assert set(answer.json()["fields"]) == {"model", "max_slots"}
