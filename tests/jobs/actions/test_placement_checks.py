"""Processes and hosts of a submission: what the code shows, what overrules it, and what is refused."""

import pytest
from django.utils import timezone

from jobs import actions
from jobs.actions import InvalidSubmission
from jobs.control.dispatch import launch_spec
from jobs.control.snapshots import snapshot
from models_registry.models import RegisteredModelVersion
from models_registry.script_declarations import Declared
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def single(code: RegisteredModelVersion) -> RegisteredModelVersion:
    code.engine = RegisteredModelVersion.Engine.SINGLE
    code.save(update_fields=["engine"])
    return code


def test_a_refused_single_process_is_told_how_to_have_more_gpus(submit: Submit, single: RegisteredModelVersion) -> None:
    with pytest.raises(InvalidSubmission) as caught:
        submit(max_slots=2)
    for way in ("--option gpus_per_process=one", "--option engine=fixed", "--one-process", "'GPUs per process'"):
        assert way in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "chosen", "launched", "placement"),
    [
        ("single", "one", "fixed", "any"),
        ("single", "all", "single", "one_host"),
        ("fixed", "all", "single", "one_host"),
        ("fixed", "one", "fixed", "any"),
        ("fixed", "script", "fixed", "any"),
    ],
)
def test_gpus_per_process_overrule_the_code(
    submit: Submit, code: RegisteredModelVersion, engine: str, chosen: str, launched: str, placement: str
) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=engine)
    job = submit(max_slots=4, gpus_per_process=chosen)
    assert (launch_spec(job).engine, job.placement, job.min_slots) == (launched, placement, 4)


def test_a_program_that_starts_its_own_processes_has_several_gpus_of_one_host(
    submit: Submit, single: RegisteredModelVersion
) -> None:
    single.script = Declared(uses_several_gpus=True).to_json()
    single.save(update_fields=["script"])
    assert (submit(max_slots=4).placement, submit(max_slots=1).placement) == ("one_host", "any")
    with pytest.raises(InvalidSubmission, match="at most 4: request fewer, because one process") as caught:
        submit(max_slots=5)
    assert list(caught.value.fields) == ["max_slots"]


def test_more_gpus_of_a_waiting_process_are_on_one_host(submit: Submit, single: RegisteredModelVersion) -> None:
    job = submit(max_slots=1, gpus_per_process="all")
    actions.change_job(job.pk, actions.JobChange(max_slots=4), "alice")
    job.refresh_from_db()
    assert (job.max_slots, job.placement) == (4, "one_host")


@pytest.fixture
def equal(code: RegisteredModelVersion) -> None:
    """Make the code's processes as many on each host, as Lightning's are."""
    code.engine = RegisteredModelVersion.Engine.FIXED
    code.script = Declared(needs_equal_hosts=True).to_json()
    code.save(update_fields=["engine", "script"])


@pytest.mark.parametrize(
    ("count", "placement"), [(1, "any"), (3, "one_host"), (4, "one_host"), (6, "equal"), (8, "equal")]
)
def test_code_with_equal_hosts_is_placed_so(submit: Submit, equal: None, count: int, placement: str) -> None:
    assert submit(max_slots=count).placement == placement
    assert submit(max_slots=count, placement="any").placement == "any"


def test_gpus_that_hosts_cannot_divide_are_refused(submit: Submit, equal: None) -> None:
    with pytest.raises(InvalidSubmission, match=r"7 GPUs cannot be divided .* request 6 or 8, or") as caught:
        submit(max_slots=7)
    assert list(caught.value.fields) == ["max_slots"]
    assert submit(max_slots=7, placement="any").max_slots == 7


def test_as_many_ranks_start_on_each_host(cluster: Cluster, submit: Submit, equal: None) -> None:
    job = submit(max_slots=6)
    assert [view.equal_hosts for view in snapshot(timezone.now()).jobs] == [True]
    cluster.turn()
    assert sorted(rank.member_id.split(".")[0] for rank in cluster.ranks(job)) == [
        *["gpu-host-1"] * 3,
        *["gpu-host-2"] * 3,
    ]


def test_an_elastic_script_has_one_gpu_per_process(submit: Submit) -> None:
    with pytest.raises(InvalidSubmission, match="is elastic and has one GPU per process") as caught:
        submit(gpus_per_process="all")
    assert list(caught.value.fields) == ["gpus_per_process"]
