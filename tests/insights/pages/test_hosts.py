"""The page of the hosts: who holds which GPU, and what an administrator does to a host."""

from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from core.models import AuditEntry
from jobs.models import Job, JobRun, SlotClaim
from models_registry.models import RegisteredModelVersion
from tests.factories import HostFactory
from tests.notices import levels
from tests.scene import Scene
from workers.models import GpuReading, Host, Slot


def act(client: Client, host: Host, verb: str) -> HttpResponse:
    answer: HttpResponse = client.post(f"/hosts/{host.pk}/{verb}/", follow=True)
    return answer


def ask(client: Client, host: Host, verb: str) -> dict[str, str]:
    answer: dict[str, str] = client.get(f"/hosts/{host.pk}/{verb}/question.json").json()
    return answer


@pytest.fixture
def host(scene: Scene) -> Host:
    return Host.objects.get(name="gpu-host-1")


@pytest.fixture
def idle(scene: Scene, host: Host) -> GpuReading:
    """T1's first GPU has done nothing for three minutes."""
    since = timezone.now() - timedelta(minutes=3, seconds=2)
    SlotClaim.objects.update(claimed_at=since - timedelta(minutes=9))
    GpuReading.objects.filter(slot__host=host, slot__index=0).update(idle_since=since, utilisation_percent=0)
    return GpuReading.objects.get(slot__host=host, slot__index=0)


def test_held_but_idle_gpus_are_named_to_who_may_know(
    alices: Client, bobs: Client, carols: Client, idle: GpuReading
) -> None:
    for client in (alices, carols):
        page = client.get("/hosts/").content.decode()
        assert page.count(">idle for 3 min") == 1
        assert "T1 digits-cnn" in page
    page = bobs.get("/hosts/").content.decode()
    assert page.count('<tr id="idle-') == 1
    assert "another user&#x27;s training" in page
    assert "T1 digits-cnn" not in page
    assert "alice" not in page


def test_a_gpu_is_idle_from_when_it_was_given(alices: Client, idle: GpuReading) -> None:
    SlotClaim.objects.update(claimed_at=timezone.now())
    page = alices.get("/hosts/").content.decode()
    assert '<tr id="idle-' not in page
    assert "idle for" not in page


def test_virtual_hosts_say_what_is_measured(alices: Client, scene: Scene) -> None:
    page = alices.get("/hosts/").content.decode()
    assert "in place of a GPU" in page
    assert "Temperature" not in page
    Host.objects.update(virtual=False)
    page = alices.get("/hosts/").content.decode()
    assert "in place of a GPU" not in page
    assert "Temperature" in page


def test_a_host_says_what_installs_packages_of_conda(alices: Client, host: Host) -> None:
    assert "for packages of conda" not in alices.get("/hosts/").content.decode()
    Host.objects.filter(pk=host.pk).update(conda="micromamba")
    assert alices.get("/hosts/").content.decode().count("micromamba for packages of conda") == 1


def test_a_host_says_what_it_does_not_keep_trainings_from(alices: Client, host: Host) -> None:
    assert "isolation" not in alices.get("/hosts/").content.decode()
    Host.objects.filter(pk=host.pk).update(isolation="walled", isolation_lacks=["Trainings can connect to all ports."])
    words = " ".join(alices.get("/hosts/").content.decode().split())
    assert "Each training is behind a wall, but for this: Trainings can connect to all ports." in words
    Host.objects.filter(pk=host.pk).update(isolation="shared", isolation_lacks=["Trainings are not kept apart."])
    words = " ".join(alices.get("/hosts/").content.decode().split())
    assert "isolation</span> Trainings are not kept apart." in words


def test_a_host_of_a_former_release_says_why_it_gets_no_training(alices: Client, scene: Scene, host: Host) -> None:
    sentence = "its executor is of a former release"
    JobRun.objects.filter(job__state="RUNNING").update(sealed=True)
    assert sentence not in alices.get("/hosts/").content.decode()
    Host.objects.filter(pk=host.pk).update(handshake=False)
    assert alices.get("/hosts/").content.decode().count(sentence) == 1


def test_administrators_see_which_hosts_share_a_user_of_the_broker(
    carols: Client, alices: Client, host: Host, settings: Any
) -> None:
    assert "broker</span>" not in carols.get("/hosts/").content.decode(), "all is on this machine"
    settings.BROKER_IS_EMBEDDED = False
    others = Host.objects.exclude(pk=host.pk).update(key_number=1, own_broker_user=True)
    assert others
    assert carols.get("/hosts/").content.decode().count("broker</span> The host uses the broker with a password") == 1
    assert "broker</span>" not in alices.get("/hosts/").content.decode()
    by_rest = {row["name"]: row["shares_broker"] for row in carols.get("/api/v1/hosts/").json()["results"]}
    assert {name for name, shares in by_rest.items() if shares} == {host.name}
    assert carols.get(f"/api/v1/hosts/{host.name}/").json()["shares_broker"] is True
    assert alices.get(f"/api/v1/hosts/{host.name}/").json()["shares_broker"] is None
    Host.objects.filter(pk=host.pk).update(key_number=1, own_broker_user=True)
    assert "broker</span>" not in carols.get("/hosts/").content.decode()
    assert carols.get(f"/api/v1/hosts/{host.name}/").json()["shares_broker"] is False


def test_removing_a_host_with_a_user_of_the_broker_says_that_it_has_to_join_again(carols: Client, scene: Scene) -> None:
    gone = HostFactory(name="gpu-host-9", state=Host.State.LOST, key_number=1, own_broker_user=True)
    assert "joins again with a new token" in ask(carols, gone, "remove")["lost"]


def test_a_host_says_what_runs_container_images(alices: Client, host: Host) -> None:
    assert "for container images" not in alices.get("/hosts/").content.decode()
    Host.objects.filter(pk=host.pk).update(images="enroot")
    assert alices.get("/hosts/").content.decode().count("enroot for container images") == 1


def test_a_host_says_what_keeps_trainings_from_its_gpus(alices: Client, host: Host) -> None:
    assert "driver 580" not in alices.get("/hosts/").content.decode()
    Host.objects.filter(pk=host.pk).update(gpu_software="driver 580.65", gpu_problem="The driver finds no GPU.")
    page = alices.get("/hosts/").content.decode()
    assert "driver 580.65" in page
    assert "The driver finds no GPU." in page


def test_a_host_says_what_each_gpu_stands_for(alices: Client, host: Host) -> None:
    assert "share of each GPU" not in alices.get("/hosts/").content.decode()
    gib = 1024**3
    Host.objects.filter(pk=host.pk).update(
        ngpus=4, cores=17.0, usable_memory_bytes=70 * gib, reserved_cores=1.0, reserved_memory_bytes=6 * gib
    )
    words = "share of each GPU: 4 cores and 16 GiB beside 1 core and 6 GiB that are reserved"
    assert words in alices.get("/hosts/").content.decode()
    answer = alices.get(f"/api/v1/hosts/{host.name}/").json()
    assert answer["share"] == {"cores": 4.0, "memory": 16 * gib}
    assert (answer["cores"], answer["reserved_cores"]) == (17.0, 1.0)


def test_a_host_says_what_a_training_may_use_there(alices: Client, host: Host) -> None:
    assert "limit of a training" not in alices.get("/hosts/").content.decode()
    Host.objects.filter(pk=host.pk).update(slot_cores=1.5, slot_memory_bytes=16 * 1024**3, slot_processes=4096)
    assert "limit of a training for each: 1.5 cores, 16 GiB, 4,096 processes" in alices.get("/hosts/").content.decode()
    answer = alices.get(f"/api/v1/hosts/{host.name}/").json()
    assert (answer["slot_cores"], answer["slot_memory_bytes"]) == (1.5, 16 * 1024**3)


def test_a_sick_gpu_is_named_and_returned_once_a_test_has_passed(carols: Client, alices: Client, host: Host) -> None:
    slot = host.slots.all()[0]
    Slot.objects.filter(pk=slot.pk).update(fault="Xid 79", sick_why="Xid 79", sick_since=timezone.now())
    page = carols.get("/hosts/").content.decode()
    assert "Xid 79" in page
    assert "Offer it again" not in page
    Slot.objects.filter(pk=slot.pk).update(fault="")
    assert "Offer it again" in carols.get("/hosts/").content.decode()
    assert "Offer it again" not in alices.get("/hosts/").content.decode()
    carols.post(f"/hosts/slots/{slot.pk}/return/")
    slot.refresh_from_db()
    assert slot.sick_since is None


def test_a_faulty_gpu_that_the_brake_left_on_offer_is_named(alices: Client, host: Host) -> None:
    Slot.objects.filter(pk=host.slots.all()[0].pk).update(fault="Xid 48")
    assert "is still offered" in " ".join(alices.get("/hosts/").content.decode().split())


def test_only_administrators_may_change_a_host(alices: Client, host: Host) -> None:
    assert "/drain/" not in alices.get("/hosts/").content.decode()
    for verb in ("drain", "resume", "remove", "restore"):
        assert alices.post(f"/hosts/{host.pk}/{verb}/").status_code == 403
    assert alices.get(f"/hosts/{host.pk}/drain/question.json").status_code == 403
    assert Host.objects.get(pk=host.pk).state == "ONLINE"


def test_draining_is_undone_by_resuming(carols: Client, host: Host) -> None:
    page = act(carols, host, "drain")
    assert levels(page) == ["success"]
    assert f'action="/hosts/{host.pk}/resume/"' in page.content.decode().split("Undo")[0]
    assert Host.objects.get(pk=host.pk).state == "DRAINING"
    assert levels(act(carols, host, "resume")) == ["success"]
    assert Host.objects.get(pk=host.pk).state == "ONLINE"
    assert list(AuditEntry.objects.order_by("pk").values_list("actor", "verb")) == [
        ("carol", "drained"),
        ("carol", "resumed"),
    ]


def test_the_question_says_which_trainings_move_off_and_which_finish(carols: Client, scene: Scene, host: Host) -> None:
    asked = ask(carols, host, "drain")
    assert asked["title"] == "Drain gpu-host-1?"
    assert "“T1 digits-cnn” leaves 3 GPUs after a step, and continues with 1." in asked["lost"]
    assert "“T2 digits-cnn” leaves 1 GPU after a step, and continues with 2." in asked["lost"]

    RegisteredModelVersion.objects.update(engine="fixed")
    Job.objects.filter(pk=scene.first.pk).update(max_slots=3)
    assert "“T1 digits-cnn” finishes on its 3 GPUs, because its size is fixed." in ask(carols, host, "drain")["lost"]


def test_a_host_whose_gpus_are_held_is_not_removed_and_says_what_to_do(carols: Client, host: Host) -> None:
    Host.objects.filter(pk=host.pk).update(state="DRAINING")
    answer = carols.get(f"/hosts/{host.pk}/remove/question.json")
    assert answer.status_code == 409
    assert "wait until they have moved off" in answer.json()["error"]
    assert levels(act(carols, host, "remove")) == ["error"]
    assert Host.objects.get(pk=host.pk).removed_at is None


def test_a_removed_host_can_be_restored_from_the_page(carols: Client, alices: Client, scene: Scene) -> None:
    gone = HostFactory(name="gpu-host-9", state=Host.State.LOST)
    assert ask(carols, gone, "remove")["title"] == "Remove gpu-host-9?"
    assert levels(act(carols, gone, "remove")) == ["success"]
    assert "gpu-host-9" not in alices.get("/hosts/").content.decode()
    assert "gpu-host-9" not in alices.get("/cluster/").content.decode()
    assert 'id="removed-title"' in carols.get("/hosts/").content.decode()
    assert levels(act(carols, gone, "restore")) == ["success"]
    assert 'data-host="gpu-host-9"' in alices.get("/hosts/").content.decode()


def test_what_came_too_late_is_said(carols: Client, host: Host) -> None:
    act(carols, host, "drain")
    assert levels(act(carols, host, "drain")) == ["error"]
    assert carols.post("/hosts/999/drain/").status_code == 404
    assert carols.get(f"/hosts/{host.pk}/drain/").status_code == 405


def test_a_page_that_is_fetched_behind_the_scenes_leaves_notices_to_be_seen(carols: Client, host: Host) -> None:
    carols.post(f"/hosts/{host.pk}/drain/")

    assert "data-notice" not in carols.get("/hosts/", headers={"HX-Request": "true"}).content.decode()
    assert "data-notice" in carols.get("/hosts/").content.decode()


def test_a_clock_that_is_wrong_is_named_with_what_to_do(alices: Client, host: Host) -> None:
    Host.objects.filter(pk=host.pk).update(clock_behind_seconds=-40.2)
    page = alices.get("/hosts/").content.decode()
    assert page.count("Its clock is 40 s ahead: set up NTP there.") == 1


def test_the_environments_that_a_host_has_are_named_with_their_memory(alices: Client, scene: Scene) -> None:
    page = alices.get("/hosts/").content.decode()
    assert page.count("1 environment ready, whose process takes 240 MiB") == 1, "the other host is still at it"
