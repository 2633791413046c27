"""One worker holds a row at a time; a claim expires, and what its former holder still writes is refused."""

from datetime import datetime, timedelta

import pytest
from django.db.models import Q
from django.utils import timezone

from core.claims import Claim, ClaimLost, Claims
from datasets.models import DatasetVersion
from tests.factories import DatasetVersionFactory

pytestmark = pytest.mark.django_db

DURATION = timedelta(seconds=15)
State = DatasetVersion.State
CLAIMS = Claims(
    DatasetVersion,
    duration=DURATION,
    waiting={"state": State.WAITING},
    working={"state": State.CHECKING},
    related=("dataset",),
)


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def row() -> DatasetVersion:
    return waiting_row()


def waiting_row() -> DatasetVersion:
    row: DatasetVersion = DatasetVersionFactory(state=State.WAITING)
    return row


def claim_first(now: datetime) -> Claim[DatasetVersion] | None:
    return CLAIMS.claim_first(CLAIMS.free(now), now)


def columns(row: DatasetVersion) -> tuple[str, str, datetime | None]:
    row.refresh_from_db()
    return row.state, row.claim, row.claimed_until


def test_two_workers_never_hold_the_same_row(row: DatasetVersion, now: datetime) -> None:
    second = waiting_row()
    claims = [claim_first(now) for _ in range(3)]
    assert [claim and claim.row for claim in claims] == [row, second, None]


def test_a_claim_that_two_workers_have_seen_free_is_made_by_one(row: DatasetVersion, now: datetime) -> None:
    first, second = CLAIMS.claim(row.pk, now), CLAIMS.claim(row.pk, now)
    assert first is not None
    assert second is None
    assert columns(row) == (State.CHECKING, first.token, now + DURATION)


def test_a_claim_is_made_only_if_the_row_is_as_it_was_seen(row: DatasetVersion, now: datetime) -> None:
    assert CLAIMS.claim(row.pk, now, only=Q(number=row.number + 1)) is None
    assert columns(row) == (State.WAITING, "", None)
    assert CLAIMS.claim(row.pk, now, only=Q(number=row.number)) is not None


def test_columns_are_written_together_with_the_claim(row: DatasetVersion, now: datetime) -> None:
    claim = CLAIMS.claim(row.pk, now, progress=0.5)
    assert claim is not None
    assert claim.row.progress == 0.5


def test_a_claim_whose_worker_died_is_free_once_it_has_expired(row: DatasetVersion, now: datetime) -> None:
    dead = claim_first(now)
    assert dead is not None
    assert claim_first(now + DURATION) is None
    later = claim_first(now + DURATION + timedelta(seconds=1))
    assert later is not None
    assert later.row == row
    assert later.token != dead.token


def test_renewing_holds_the_row_for_longer(row: DatasetVersion, now: datetime) -> None:
    claim = claim_first(now)
    assert claim is not None
    CLAIMS.renew(claim, now + timedelta(seconds=10), progress=0.5)
    assert claim_first(now + timedelta(seconds=20)) is None
    assert columns(row) == (State.CHECKING, claim.token, now + timedelta(seconds=25))


def test_a_claim_that_expired_holds_until_another_worker_takes_it(row: DatasetVersion, now: datetime) -> None:
    claim = claim_first(now)
    assert claim is not None
    CLAIMS.renew(claim, now + timedelta(minutes=1))
    assert claim_first(now + timedelta(minutes=1)) is None


@pytest.mark.parametrize("write", ["renew", "release", "finish", "write"])
def test_a_stranger_writes_nothing(row: DatasetVersion, now: datetime, write: str) -> None:
    held = claim_first(now)
    assert held is not None
    stranger = Claim(held.row, "another")
    before = columns(row)
    with pytest.raises(ClaimLost):
        _write(write, stranger, now)
    assert columns(row) == before


@pytest.mark.parametrize("write", ["renew", "release", "finish", "write"])
def test_writing_to_a_removed_row_is_a_lost_claim(row: DatasetVersion, now: datetime, write: str) -> None:
    held = claim_first(now)
    assert held is not None
    row.delete()
    with pytest.raises(ClaimLost):
        _write(write, held, now)


def _write(write: str, claim: Claim[DatasetVersion], now: datetime) -> None:
    if write == "renew":
        CLAIMS.renew(claim, now, progress=1)
    else:
        getattr(CLAIMS, write)(claim, progress=1)


def test_a_released_row_is_free_at_once(row: DatasetVersion, now: datetime) -> None:
    claim = claim_first(now)
    assert claim is not None
    CLAIMS.release(claim)
    assert columns(row) == (State.WAITING, "", None)
    assert claim_first(now) is not None


def test_finished_work_is_claimed_by_nobody(row: DatasetVersion, now: datetime) -> None:
    claim = claim_first(now)
    assert claim is not None
    CLAIMS.finish(claim, state=State.INVALID, problem="no files")
    assert columns(row) == (State.INVALID, "", None)
    assert claim_first(now + timedelta(days=1)) is None
