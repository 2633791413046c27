from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from core.errors import NotFound, UserError
from jobs.models import Job
from tests.factories import InstanceGroupFactory, JobFactory
from wmla.identifiers import executor_of, group_named, group_of, identities, job_of, submitted
from wmla.job_names import Dialect, Identities, Submitted, job_numbers_in

AT = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
IDS = Identities(UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8"))


def test_each_dialect_has_its_own_forms() -> None:
    on_prem = Submitted(7, "ann-lee@site", AT, Dialect.ON_PREM)
    cloud_pak = Submitted(7, "ann-lee@site", AT, Dialect.CLOUD_PAK)

    assert IDS.exec_id(on_prem) == "ann-lee@site-1767268800250000000-7"
    assert IDS.driver_id(on_prem).startswith("driver-20260101120000-0007-")
    assert UUID(IDS.driver_id(on_prem)[-36:]).version == 5
    assert IDS.submission_id(on_prem) == IDS.driver_id(on_prem)
    assert IDS.app_id(on_prem).startswith("app-20260101120000-0007-")
    assert {IDS.exec_id(cloud_pak), IDS.submission_id(cloud_pak), IDS.app_id(cloud_pak)} == {"wmla-7"}
    assert IDS.executor_id(7, 1, "h.0.1", 3).split("-", 1)[0] == "3"
    assert UUID(IDS.group_id(1)).version == 5


def test_big_numbers_keep_their_digits() -> None:
    assert "-123456-" in IDS.driver_id(Submitted(123456, "a", AT))


@pytest.mark.parametrize("dialect", [Dialect.OWN, Dialect.ON_PREM, Dialect.CLOUD_PAK])
def test_every_name_leads_back_to_the_number(dialect: str) -> None:
    for name in IDS.names_of(Submitted(12, "driver-1-x", AT, dialect)):
        assert 12 in job_numbers_in(name), name


@pytest.mark.parametrize(
    "text", ["", "wmla-", "wmla-0", "wmla-1x", "driver-x-0001", "١٢", "9" * 400, "wmla-" + "9" * 19]
)
def test_other_texts_lead_nowhere(text: str) -> None:
    assert list(job_numbers_in(text)) == []


@pytest.mark.django_db
@pytest.mark.parametrize("dialect", [Dialect.OWN, Dialect.ON_PREM, Dialect.CLOUD_PAK])
def test_a_job_is_found_by_each_name_by_its_owner_alone(alice: User, bob: User, carol: User, dialect: str) -> None:
    job = JobFactory(owner=alice, dialect=dialect)
    for name in identities().names_of(submitted(job)):
        assert job_of(alice, name) == job
        assert job_of(carol, name) == job
        with pytest.raises(NotFound, match="not found"):
            job_of(bob, name)


@pytest.mark.django_db
def test_a_name_of_another_moment_or_user_is_not_the_jobs(alice: User) -> None:
    job = JobFactory(owner=alice, dialect=Dialect.ON_PREM)
    user, nanos, number = identities().exec_id(submitted(job)).rsplit("-", 2)
    for wrong in (
        f"bob-{nanos}-{number}",
        f"{user}-{int(nanos) + 1000}-{number}",
        f"wmla-{number}9",
        f"wmla-0{number}",
    ):
        with pytest.raises(NotFound):
            job_of(alice, wrong)


@pytest.mark.django_db
def test_an_executor_is_found_by_its_uuid(alice: User) -> None:
    job: Job = JobFactory(owner=alice)
    rank = job.ranks.create(attempt=1, member_id="h.0.1", host="h", slot=0, pid=1, started_at=1.0)
    uuid = identities().executor_uuid(job.pk, 1, "h.0.1")

    assert executor_of(job, f"0-{uuid}") == rank
    assert executor_of(job, f"5-{uuid}") == rank
    with pytest.raises(NotFound):
        executor_of(JobFactory(owner=alice), f"0-{uuid}")


@pytest.mark.django_db
def test_a_group_is_found_by_sig_id_and_by_name(alice: User, bob: User) -> None:
    group = InstanceGroupFactory(name="sig-elastic")
    group.members.add(alice)

    assert group_of(alice, "sig-elastic") == group
    assert group_of(alice, identities().group_id(group.pk)) == group
    with pytest.raises(NotFound):
        group_of(bob, identities().group_id(group.pk))


@pytest.mark.django_db
def test_a_group_that_is_not_there_is_refused_with_those_that_are(alice: User) -> None:
    InstanceGroupFactory(name="sig-elastic")
    InstanceGroupFactory(name="dli-notebooks")
    with pytest.raises(UserError) as caught:
        group_named(alice, "sig-elastc")
    assert caught.value.message == (
        "Instance group name sig-elastc not found. Did you mean sig-elastic? You may use dli-notebooks, sig-elastic."
    )


def test_ids_are_the_installations(settings) -> None:
    before = identities()
    assert identities() == before
    settings.SECRET_KEY = "another"
    assert identities().group_id(1) != before.group_id(1)
