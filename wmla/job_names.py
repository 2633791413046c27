"""WMLA's identifiers and state names of jobs.

Identifiers are computed from rows, and parsed back, so no second table can disagree with the first.

    exec       on-prem `<user>-<nanoseconds of submission>-<job>`, Cloud Pak `wmla-<job>`
    driver     `driver-<YYYYMMDDHHMMSS>-<job, 4 digits or more>-<uuid>`, also called submission id
    app        `app-<YYYYMMDDHHMMSS>-<job, 4 digits or more>-<uuid>`
    executor   `<number>-<uuid>`: one rank
    sigId      `<uuid>`: an instance group

The UUIDs have version 5, in a namespace of the installation, so they reveal nothing and never change.

Notebooks stop polling at the first unknown state. So an unfinished job only has states that all notebooks know:
SUBMITTED (in Cloud Pak PENDING_CRD_SCHEDULER) while it waits for GPUs, SUBMITTED while it starts, then RUNNING as long
as it holds GPUs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

from jobs.states import WAITING, JobState

__all__ = [
    "EXEC_WORDS",
    "FINAL_WORDS",
    "KNOWN_WORDS",
    "LIVING_WORDS",
    "MAX_LENGTH",
    "Dialect",
    "Identities",
    "Submitted",
    "job_numbers_in",
    "state_word",
    "states_behind",
]

MAX_LENGTH = 300

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Patterns of identifiers, with the job's id as a group. User names may contain any character except spaces.
_FORMS = (
    re.compile(r"wmla-(?P<job>[0-9]{1,19})"),
    re.compile(rf"(?:driver|app)-[0-9]{{14}}-(?P<job>[0-9]{{4,19}})-{_UUID}"),
    re.compile(r".+-[0-9]{1,25}-(?P<job>[0-9]{1,19})", re.DOTALL),
    re.compile(r"(?P<job>[0-9]{1,19})"),
)
_BIGGEST_ID = 2**63 - 1

_SUBMITTED, _PENDING, _RUNNING = "SUBMITTED", "PENDING_CRD_SCHEDULER", "RUNNING"
LIVING_WORDS = (_PENDING, _SUBMITTED, _RUNNING)
FINAL_WORDS = ("FINISHED", "KILLED", "ERROR", "FAILED")
#: All states of an exec.
EXEC_WORDS = (*LIVING_WORDS, *FINAL_WORDS)
#: States that clients filter by; trainings here never have some of them.
KNOWN_WORDS = (
    "NEW", "SUBMITTED", "PENDING_JOB_SCHEDULER", "PENDING_CRD_SCHEDULER", "WAITING", "LAUNCHING", "RUNNING",
    "RECOVERING", "UNKNOWN", *FINAL_WORDS,
)  # fmt: skip

_WORDS = {
    JobState.STARTING: _SUBMITTED,
    JobState.RUNNING: _RUNNING,
    JobState.PREEMPTING: _RUNNING,
    JobState.CANCELLING: _RUNNING,
    JobState.SUCCEEDED: "FINISHED",
    JobState.CANCELLED: "KILLED",
}


class Dialect:
    """Interface by which a job was submitted, which decides about its identifiers and state names."""

    #: A page or `/api/v1/`. WMLA's clients see such jobs as in Cloud Pak.
    OWN = ""
    #: WMLA 1.x, whose submissions name an instance group.
    ON_PREM = "on-prem"
    CLOUD_PAK = "cloud-pak"


@dataclass(frozen=True)
class Submitted:
    """Parts of a job's identifiers."""

    job: int
    user: str
    at: datetime
    dialect: str = Dialect.OWN


@dataclass(frozen=True)
class Identities:
    #: Namespace of the installation.
    namespace: UUID

    def exec_id(self, of: Submitted) -> str:
        if of.dialect == Dialect.ON_PREM:
            return f"{of.user}-{(of.at - _EPOCH) // timedelta(microseconds=1) * 1000}-{of.job}"
        return f"wmla-{of.job}"

    def driver_id(self, of: Submitted) -> str:
        return f"driver-{_stamp(of)}-{uuid5(self.namespace, f'driver/{of.job}')}"

    def submission_id(self, of: Submitted) -> str:
        """Identifier of the driver; in Cloud Pak, of the exec."""
        return self.driver_id(of) if of.dialect == Dialect.ON_PREM else self.exec_id(of)

    def app_id(self, of: Submitted) -> str:
        """Identifier among the scheduler's applications; in Cloud Pak, of the exec."""
        return self.full_app_id(of) if of.dialect == Dialect.ON_PREM else self.exec_id(of)

    def full_app_id(self, of: Submitted) -> str:
        return f"app-{_stamp(of)}-{uuid5(self.namespace, f'app/{of.job}')}"

    def executor_id(self, job: int, attempt: int, member_id: str, number: int) -> str:
        """Return the identifier of an executor. number: the rank's, or another that helps people to tell ranks
        apart."""
        return f"{number}-{self.executor_uuid(job, attempt, member_id)}"

    def executor_uuid(self, job: int, attempt: int, member_id: str) -> UUID:
        return uuid5(self.namespace, f"executor/{job}/{attempt}/{member_id}")

    def group_id(self, group: int) -> str:
        """Return the sigId of the instance group with this key."""
        return str(uuid5(self.namespace, f"instance-group/{group}"))

    def names_of(self, of: Submitted) -> frozenset[str]:
        """Return every identifier of this job: those of both dialects, and its number."""
        on_prem = Submitted(of.job, of.user, of.at, Dialect.ON_PREM)
        cloud_pak = Submitted(of.job, of.user, of.at, Dialect.CLOUD_PAK)
        ids = {self.exec_id(on_prem), self.exec_id(cloud_pak), self.driver_id(of), self.full_app_id(of)}
        return frozenset({*ids, str(of.job)})


def job_numbers_in(identifier: str) -> Iterator[int]:
    """Yield the jobs that an identifier may name, judging by its format; `Identities.names_of` confirms them."""
    if len(identifier) > MAX_LENGTH:
        return
    for form in _FORMS:
        found = form.fullmatch(identifier)
        if found and found["job"].isascii() and 0 < int(found["job"]) <= _BIGGEST_ID:
            yield int(found["job"])


def _stamp(of: Submitted) -> str:
    return f"{of.at.astimezone(UTC):%Y%m%d%H%M%S}-{of.job:04}"


def state_word(state: JobState | str, dialect: str) -> str:
    """Return the state's name in this dialect. Scripts for Cloud Pak wait for ERROR, on-prem scripts for FAILED."""
    state = JobState(state)
    is_on_prem = dialect == Dialect.ON_PREM
    if state in WAITING:
        return _SUBMITTED if is_on_prem else _PENDING
    if state == JobState.FAILED:
        return "FAILED" if is_on_prem else "ERROR"
    return _WORDS[state]


def states_behind(word: str) -> frozenset[JobState]:
    """Return the states with this name in any dialect; empty for an unknown name."""
    dialects = (Dialect.ON_PREM, Dialect.CLOUD_PAK)
    return frozenset(state for state in JobState for dialect in dialects if state_word(state, dialect) == word)
