"""Conductor's instances: made, configured, deployed, started and stopped as IBM's scripts do it."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from core.models import AuditEntry
from jobs.models import InstanceGroup
from tests.factories import HostFactory, InstanceGroupFactory, ResourceGroupFactory, host_with_slots
from tests.wmla.training import reads, running_job, sig_id
from wmla.base_view import csrf_token_of
from wmla.conductor import InstanceOutput
from workers.models import Host, ResourceGroup

pytestmark = pytest.mark.django_db

BASE = "/platform/rest/conductor/v1/instances"
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Body that scripts for WMLA send: many fields of Spark, and resource groups of its services.
BODY: dict[str, Any] = {
    "sparkversion": "1.6.1",
    "consumerpath": "/",
    "conductorinstancename": "sig-elastic",
    "monitoringttl": "14d",
    "parameters": {
        "sparkms_batch_rg_param": "ComputeHosts",
        "sparkms_notebook_rg_param": "ComputeHosts",
        "driver_rg_param": "ComputeHosts",
        "executor_rg_param": "ComputeHostsGPU",
        "execution_user": "egoadmin",
        "deploy_home": "/opt/SIG/sig-elastic",
        "impersonate": "Admin",
        "sparkss_rg_param": "ComputeHosts",
        "driver_consumer_param": "sparkapp",
        "executor_consumer_param": "sparkapp",
        "sparkhs_rg_param": "ComputeHosts",
    },
    "notebooks": [],
    "dependentpkgs": [],
    "sparkparameters": {
        "JAVA_HOME": "/usr/lib/jvm/java-8-openjdk-ppc64el/jre",
        "SPARK_EGO_EXECUTOR_SLOTS_MAX": "1",
        "SPARK_EGO_EXECUTOR_IDLE_TIMEOUT": 6000,
        "SPARK_EGO_ENABLE_PREEMPTION": True,
        "spark.shuffle.service.enabled": "true",
        "spark.shuffle.service.port": 7337,
        "SPARK_EGO_LOGSERVICE_PORT": 28082,
        "SPARK_EGO_CONF_DIR_EXTRA": "/dli/conf",
        "spark.ego.priority": "4000",
        "SPARK_EGO_APP_SCHEDULE_POLICY": "priority",
        "SPARK_EGO_RECLAIM_GRACE_PERIOD": "30",
    },
}


@pytest.fixture
def gpus(db: None) -> ResourceGroup:
    """A new home's resource groups, and a host."""
    ResourceGroupFactory(name="ComputeHosts", kind="service", slot_rule="ncpus")
    host_with_slots("node1", 4)
    return ResourceGroupFactory(name="ComputeHostsGPU", kind="gpu", slot_rule="ngpus")


@pytest.fixture
def carol_client(carol: User, client: Client) -> Client:
    client.force_login(carol)
    return client


def send(client: Client, method: str, path: str, body: Any = None) -> Any:
    headers = {"X-CSRFToken": csrf_token_of(client.session.session_key)}
    return getattr(client, method)(f"{BASE}{path}", data=body, content_type="application/json", headers=headers)


def state_of(client: Client, group_id: str) -> str:
    """Return the state as scripts poll it."""
    [row] = client.get(f"{BASE}?fields=state&id={group_id}").json()
    assert set(row) == {"id", "state"}
    return str(row["state"])


def test_a_script_makes_deploys_starts_and_stops_one(carol_client: Client, gpus: ResourceGroup) -> None:
    assert carol_client.get(f"{BASE}?fields=name").json() == []
    answer = send(carol_client, "post", "", BODY)
    assert answer.status_code == 201
    assert re.fullmatch(rf'"{UUID}"', answer.content.decode())
    made = answer.json()
    assert state_of(carol_client, made) == "REGISTERED"
    assert send(carol_client, "put", f"/{made}/deploy").status_code == 200
    assert state_of(carol_client, made) == "READY"
    assert send(carol_client, "put", f"/{made}/start").status_code == 200
    assert state_of(carol_client, made) == "STARTED"
    assert send(carol_client, "put", f"/{made}/stop").json()["state"] == "READY"
    assert InstanceGroup.objects.get().state == "STOPPED"
    verbs = AuditEntry.objects.filter(kind="instance group").order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["created", "deployed", "started", "stopped"]


def test_what_it_says_becomes_the_groups_terms(carol_client: Client, gpus: ResourceGroup) -> None:
    send(carol_client, "post", "", BODY)
    group = InstanceGroup.objects.get()
    assert (group.name, group.resource_group) == ("sig-elastic", gpus)
    assert (group.policy, group.preemption, group.default_priority) == ("priority", True, 4000)
    assert (group.reclaim_grace_seconds, group.execution_user) == (30, "egoadmin")
    assert group.deployment_directory == "/opt/SIG/sig-elastic"

    [row] = carol_client.get(BASE).json()
    assert row["parameters"] == {
        "executor_rg_param": "ComputeHostsGPU",
        "execution_user": "egoadmin",
        "deploy_home": "/opt/SIG/sig-elastic",
    }
    assert row["sparkparameters"] == {
        "SPARK_EGO_APP_SCHEDULE_POLICY": "priority",
        "SPARK_EGO_ENABLE_PREEMPTION": "true",
        "SPARK_EGO_RECLAIM_GRACE_PERIOD": "30",
        "SPARK_EGO_PRIORITY": "4000",
    }


def test_a_template_of_wmla_may_be_named(carol_client: Client, gpus: ResourceGroup) -> None:
    body = {**BODY, "template": "dli-sig-template-2-2-0", "sparkparameters": {}}
    assert send(carol_client, "post", "", body).status_code == 201
    group = InstanceGroup.objects.get()
    assert (group.template, group.policy, group.preemption) == ("elastic-fair-share", "fairshare", True)


@pytest.mark.parametrize("more", [[], ["BigGPUs"]])
def test_a_group_of_cpus_is_refused_and_never_replaced(
    carol_client: Client, gpus: ResourceGroup, more: list[str]
) -> None:
    for name in more:
        ResourceGroupFactory(name=name)
    parameters = {**BODY["parameters"], "executor_rg_param": "ComputeHosts"}
    answer = send(carol_client, "post", "", {**BODY, "parameters": parameters})
    assert answer.status_code == 400
    assert answer.content.decode() == (
        "Error 400: executor_rg_param is 'ComputeHosts', whose slots are CPUs, but trainings hold GPUs: send a "
        "resource group of GPUs as executor_rg_param, or beside it as gpu_executor_rg_param. Resource groups with "
        f"GPUs: {', '.join([*more, 'ComputeHostsGPU'])}.\n"
    )
    assert not InstanceGroup.objects.exists()
    group = InstanceGroupFactory(name="sig-elastic", resource_group=gpus)
    changed = send(carol_client, "put", f"/{sig_id(group)}/configuration", {"parameters": parameters})
    assert (changed.status_code, changed.content) == (400, answer.content)


def test_a_group_of_gpus_may_be_named_beside_that_of_cpus(carol_client: Client, gpus: ResourceGroup) -> None:
    ResourceGroupFactory(name="BigGPUs")
    parameters = {"executor_rg_param": "ComputeHosts", "gpu_executor_rg_param": "BigGPUs"}
    assert send(carol_client, "post", "", {**BODY, "parameters": parameters}).status_code == 201
    assert InstanceGroup.objects.get().resource_group.name == "BigGPUs"


@pytest.mark.parametrize("path", ["", "/", "/sig-elastic"])
def test_its_consumer_is_the_group_itself(carol_client: Client, gpus: ResourceGroup, path: str) -> None:
    assert send(carol_client, "post", "", {**BODY, "consumerpath": path}).status_code == 201


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"conductorinstancename": None}, "Send the instance group's name"),
        ({"conductorinstancename": 7}, "Send the instance group's name"),
        ({"conductorinstancename": "../etc"}, "The name"),
        ({"template": "no-such"}, "Template 'no-such' not found"),
        ({"consumerpath": "/Sales/Team"}, "consumerpath is '/Sales/Team', but the tree of consumers has one level"),
        ({"consumerpath": 7}, "consumerpath is 7, but "),
        ({"parameters": {}}, "Send the resource group whose GPUs it uses as executor_rg_param."),
        ({"parameters": {"executor_rg_param": "NoSuch"}}, "Resource group 'NoSuch' not found."),
        ({"parameters": {"executor_rg_param": 3}}, "executor_rg_param must be a string."),
        ({"parameters": []}, "parameters must be an object"),
        ({"parameters": {**BODY["parameters"], "deploy_home": "relative"}}, "Enter an absolute path"),
        ({"sparkparameters": "x=1"}, "sparkparameters must be an object"),
        ({"sparkparameters": {"JAVA_HOME": []}}, "The values of sparkparameters must be strings, numbers or booleans."),
        ({"sparkparameters": {"SPARK_EGO_PRIORITY": "high"}}, "SPARK_EGO_PRIORITY must be a whole number"),
        ({"sparkparameters": {"SPARK_EGO_PRIORITY": 20000}}, "The default priority must be"),
        ({"sparkparameters": {"SPARK_EGO_APP_SCHEDULE_POLICY": "hierarchy"}}, "SPARK_EGO_APP_SCHEDULE_POLICY: hier"),
        (
            {"sparkparameters": {"SPARK_EGO_ENABLE_PREEMTION": "true"}},
            "Parameter 'SPARK_EGO_ENABLE_PREEMTION' is not known: did you mean SPARK_EGO_ENABLE_PREEMPTION?",
        ),
        (
            {"sparkparameters": {"spark.ego.enable.preemtion": "true"}},
            "Parameter 'spark.ego.enable.preemtion' is not known: did you mean spark.ego.enable.preemption?",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(
    carol_client: Client, gpus: ResourceGroup, change: dict[str, Any], sentence: str
) -> None:
    answer = send(carol_client, "post", "", {**BODY, **change})
    assert answer.status_code == 400
    assert answer.content.decode().startswith(f"Error 400: {sentence}")
    assert not InstanceGroup.objects.exists()


HOSTILE = ["\0", "a\0b", "\ud800", "x" * 100_000, "../../etc", "<script>", {}, [], 1e308, -1, None, True]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: ascii(value)[:20])
def test_nothing_that_is_sent_is_a_fault_of_the_server(carol_client: Client, gpus: ResourceGroup, value: Any) -> None:
    group = InstanceGroupFactory(name="sig-elastic", resource_group=gpus)
    parameters = [
        {name: value} for name in ("executor_rg_param", "gpu_executor_rg_param", "execution_user", "deploy_home")
    ]
    changes: list[dict[str, Any]] = [
        *({"parameters": {"executor_rg_param": "ComputeHostsGPU", **given}} for given in parameters),
        {"conductorinstancename": value},
        {"template": value},
        {"parameters": value},
        {"sparkparameters": value},
        {"sparkparameters": {"SPARK_EGO_PRIORITY": value}},
        {"sparkparameters": {"SPARK_EGO_APP_SCHEDULE_POLICY": value}},
        {"sparkparameters": {str(value): "1"}},
        {"sparkversion": value, "notebooks": value},
    ]
    for change in changes:
        made = send(carol_client, "post", "", {**BODY, "conductorinstancename": "another", **change})
        changed = send(carol_client, "put", f"/{sig_id(group)}/configuration", change)
        assert {made.status_code, changed.status_code} <= {200, 201, 400, 409}, change
        InstanceGroup.objects.exclude(pk=group.pk).delete()
    for body in ("[]", '"x"', "{", "\xff", ""):
        answer = send(carol_client, "post", "", body)
        assert answer.status_code == 400, body


def test_a_name_that_is_taken_is_refused(carol_client: Client, gpus: ResourceGroup) -> None:
    assert send(carol_client, "post", "", BODY).status_code == 201
    answer = send(carol_client, "post", "", BODY)
    assert (answer.status_code, answer.content[:11]) == (409, b"Error 409: ")


def test_deployed_without_a_host_it_is_an_error_until_one_comes(carol_client: Client, gpus: ResourceGroup) -> None:
    Host.objects.update(state=Host.State.LOST)
    made = send(carol_client, "post", "", BODY).json()
    assert send(carol_client, "put", f"/{made}/deploy").json()["state"] == "DEPLOY_ERROR"
    refused = send(carol_client, "put", f"/{made}/start")
    assert (refused.status_code, refused.content[:11]) == (409, b"Error 409: ")
    Host.objects.update(state=Host.State.ONLINE)
    assert state_of(carol_client, made) == "READY"
    assert send(carol_client, "put", f"/{made}/deploy").status_code == 409
    assert send(carol_client, "put", f"/{made}/start").json()["state"] == "STARTED"
    assert send(carol_client, "put", f"/{made}/start").status_code == 409


def test_its_configuration_is_changed_while_it_runs(carol_client: Client, gpus: ResourceGroup) -> None:
    group = InstanceGroupFactory(name="sig-elastic", resource_group=gpus)
    body = {
        "sparkparameters": {"SPARK_EGO_APP_SCHEDULE_POLICY": "fifo", "SPARK_MASTER_PORT": "7100"},
        "parameters": {"execution_user": "spark", "driver_rg_param": "ComputeHosts"},
    }
    answer = send(carol_client, "put", f"/{sig_id(group)}/configuration", body)
    assert answer.status_code == 200
    assert answer.json()["sparkparameters"]["SPARK_EGO_APP_SCHEDULE_POLICY"] == "fifo"
    group.refresh_from_db()
    assert (group.policy, group.execution_user, group.resource_group, group.revision) == ("fifo", "spark", gpus, 2)
    wrong = send(
        carol_client, "put", f"/{sig_id(group)}/configuration", {"sparkparameters": {"SPARK_EGO_PRIORITY": "x"}}
    )
    assert (wrong.status_code, wrong.content[:11]) == (400, b"Error 400: ")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"conductorinstancename": "another"}, "An instance group keeps its name, sig-elastic: "),
        ({"consumerpath": "/Sales/Team"}, "consumerpath is '/Sales/Team', but the tree of consumers has one level"),
    ],
)
def test_a_change_of_what_it_keeps_is_refused_with_all_others(
    carol_client: Client, gpus: ResourceGroup, given: dict[str, Any], sentence: str
) -> None:
    group = InstanceGroupFactory(name="sig-elastic", resource_group=gpus, policy="fairshare")
    body = {"sparkparameters": {"SPARK_EGO_APP_SCHEDULE_POLICY": "fifo"}}
    path = f"/{sig_id(group)}/configuration"
    answer = send(carol_client, "put", path, body | given)
    assert (answer.status_code, answer.content.decode()[: len(sentence) + 11]) == (400, f"Error 400: {sentence}")
    group.refresh_from_db()
    assert group.policy == "fairshare"
    same = {"conductorinstancename": "sig-elastic", "consumerpath": "/sig-elastic"}
    assert send(carol_client, "put", path, body | same).status_code == 200


def test_its_own_administrators_change_how_it_shares_and_nothing_else(
    client: Client, alice: User, gpus: ResourceGroup
) -> None:
    group = InstanceGroupFactory(resource_group=gpus, policy="fairshare")
    group.admins.add(alice)
    client.force_login(alice)
    path = f"/{sig_id(group)}/configuration"
    assert send(client, "put", path, {"sparkparameters": {"SPARK_EGO_APP_SCHEDULE_POLICY": "fifo"}}).status_code == 200
    answer = send(client, "put", path, {"parameters": {"execution_user": "root"}})
    assert (answer.status_code, answer.content[:11]) == (403, b"Error 403: ")
    for verb in ("deploy", "start", "stop"):
        assert send(client, "put", f"/{sig_id(group)}/{verb}").status_code == 403


def test_a_cookie_without_its_token_changes_nothing(carol_client: Client, gpus: ResourceGroup) -> None:
    group = InstanceGroupFactory(resource_group=gpus)
    answer = carol_client.put(f"{BASE}/{sig_id(group)}/stop")
    assert answer.status_code == 403
    group.refresh_from_db()
    assert group.state == "STARTED"


# --- the list ---------------------------------------------------------------------------------------------------------


def test_the_list_tells_what_each_has(
    carol_client: Client, alice: User, gpus: ResourceGroup, django_assert_num_queries: Any
) -> None:
    group = InstanceGroupFactory(name="a-group", resource_group=gpus)
    InstanceGroupFactory(name="b-group", resource_group=gpus)
    slots = list(Host.objects.get(name="node1").slots.all())
    HostFactory(name="node2", state=Host.State.LOST)
    running_job(alice, group, slots[:2])
    for slot in slots[:2]:
        reads(slot, 50.0, 200)
    with django_assert_num_queries(7):  # session, user; groups, their hosts, all hosts, trainings, claims
        rows = carol_client.get(BASE).json()
    assert [row["name"] for row in rows] == ["a-group", "b-group"]
    assert set(InstanceOutput().fields) == set(rows[0])
    told = rows[0]
    assert (told["id"], told["state"], told["consumerpath"]) == (sig_id(group), "STARTED", "/a-group")
    assert (told["runningapplications"], told["waitingapplications"]) == (1, 0)
    assert (told["gpuslots"], told["totalgpuslots"]) == (2, 4)
    assert (told["gpumemused"], told["gpudevutil"]) == ({"total": 400}, {"mean": 50.0})
    assert (told["hosts"], told["blockedhosts"]) == (2, 1)
    assert (rows[1]["gpuslots"], rows[1]["gpumemused"]) == (0, {"total": None})


def test_the_list_costs_the_same_number_of_queries_however_long_it_is(
    carol_client: Client, gpus: ResourceGroup, django_assert_num_queries: Any
) -> None:
    for number in range(6):
        picked = ResourceGroupFactory(name=f"picked-{number}", selection="static")
        picked.hosts.add(Host.objects.get(name="node1"))
        InstanceGroupFactory(name=f"group-{number}", resource_group=picked)
    with django_assert_num_queries(7):
        rows = carol_client.get(BASE).json()
    assert [row["totalgpuslots"] for row in rows] == [4] * 6


def test_the_list_is_narrowed_by_id_name_and_path(carol_client: Client, gpus: ResourceGroup) -> None:
    first, _ = (InstanceGroupFactory(name=name, resource_group=gpus) for name in ("one", "two"))
    for query in (f"id={sig_id(first)}", "name=one", "consumerpath=/one"):
        assert [row["name"] for row in carol_client.get(f"{BASE}?{query}").json()] == ["one"]
    assert carol_client.get(f"{BASE}?id=nonsense").json() == []
    assert carol_client.get(f"{BASE}?name=one&fields=name,outputs").json() == [{"id": sig_id(first), "name": "one"}]


def test_groups_of_others_are_not_there(client: Client, alice: User, bob: User, gpus: ResourceGroup) -> None:
    group = InstanceGroupFactory(name="theirs", resource_group=gpus)
    group.members.add(bob)
    client.force_login(alice)
    assert client.get(BASE).json() == []
    assert client.get(f"{BASE}/{sig_id(group)}/applications").status_code == 404
    assert send(client, "put", f"/{sig_id(group)}/stop").status_code == 404
    client.force_login(bob)
    assert [row["name"] for row in client.get(BASE).json()] == ["theirs"]


def test_certificates_of_tiers_there_are_none(carol_client: Client, gpus: ResourceGroup) -> None:
    group = InstanceGroupFactory(resource_group=gpus)
    answer = carol_client.get(f"{BASE}/{sig_id(group)}/sslconf/tier1")
    assert answer.status_code == 404
    assert answer.content.startswith(
        b"Error 404: Instance groups have no certificates, because their traffic is not enc"
    )
