"""The stacks of a training: the hosts' answers to the newest request, and those that a stall has left."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from django.utils import timezone
from tidepool.protocol import HostStacks, ProcessStacks, ProtocolError, RankStacks, from_json
from tidepool.rank_exits import CALLS_DIFFER, LAUNCH_TIMEOUT, LOOPS_DIFFER, STALLED, STUCK
from tidepool.safe_open import open_below
from tidepool.stacks import stacks_path

from core.text import plural, readable_text
from insights.stacks.folding import RankStack, StackGroup, folded, sentence_of
from insights.stacks.parsing import threads_of
from insights.stacks.places import doing_of, shown_frame
from jobs.files.job_folder import job_folder
from jobs.models import Job, Rank
from jobs.queries.rank_numbers import rank_numbers
from jobs.states import TERMINAL

__all__ = ["StackedProcess", "Stacks", "StalledStacks", "stacks_of"]

#: Kinds of ends at which a rank has written its stacks.
_WITH_STACKS = (STALLED, LOOPS_DIFFER, CALLS_DIFFER, STUCK, LAUNCH_TIMEOUT)
#: Time after which a host that has not answered is named.
_PATIENCE = timedelta(seconds=6)
_MOST_BYTES = 32 * 2**20


@dataclass(frozen=True)
class StackedProcess:
    rank: Annotated[int | None, "Rank in the newest generation; null: not a member of it."]
    member_id: str
    host: str
    pid: int
    name: str
    is_worker: Annotated[bool, "Whether the rank has forked it, such as a worker of its data loader."]
    state: Literal["answered", "stopped", "in_kernel", "unable", "silent", "ended"]
    text: Annotated[str, "Activity of the main thread, in words; empty: the process has not answered."]
    threads: Annotated[list[list[str]], "Frames of each thread, the innermost first; the main thread comes first."]


@dataclass(frozen=True)
class StalledStacks:
    attempt: Annotated[int, "The newest attempt in which ranks were ended because they made no step."]
    text: str
    groups: list[StackGroup]


@dataclass(frozen=True)
class Stacks:
    number: Annotated[int, "Number of the newest request; 0: there was none."]
    state: Annotated[Literal["none", "taking", "taken"], "taking: some hosts have not answered yet."]
    at: Annotated[datetime | None, "Time of the request."]
    requested_by: str
    text: Annotated[str, "Activity of all ranks, in one sentence."]
    missing_hosts: Annotated[list[str], "Hosts that have not answered."]
    groups: Annotated[list[StackGroup], "Ranks by equal stacks of their main threads, the largest group first."]
    processes: list[StackedProcess]
    stalled: StalledStacks | None


def stacks_of(job: Job) -> Stacks:
    """Return what is known of the newest request, without waiting for hosts."""
    run, code = job.run, str(job_folder(job).code)
    stalled = _stalled(job, code)
    if not run.stacks_number or run.stacks_at is None:
        return Stacks(0, "none", None, "", "", [], [], [], stalled)
    answers = list(_answers(job))
    # Ranks of a job that is over hold nothing: what its hosts have answered is all that there will be.
    wanted = set() if job.state in TERMINAL else _hosts(job)
    missing = sorted(wanted - {answer.host for answer in answers})
    is_late = timezone.now() - run.stacks_at > _PATIENCE
    numbers = rank_numbers(job, run.attempt)
    processes = [process for answer in answers for process in _processes(answer, numbers, code)]
    groups = folded(_main_stacks(answers, numbers), code)
    return Stacks(
        run.stacks_number,
        "taking" if missing and not is_late else "taken",
        run.stacks_at,
        run.stacks_by,
        _text(groups, missing if is_late else []),
        missing,
        groups,
        sorted(processes, key=lambda process: (process.rank is None, process.rank, process.member_id)),
        stalled,
    )


def _text(groups: Sequence[StackGroup], silent_hosts: Sequence[str]) -> str:
    sentence = sentence_of(groups) if groups else ""
    if silent_hosts:
        one = "{hosts} has not answered: it is out of reach, or its executor is of an earlier release."
        several = "{hosts} have not answered: they are out of reach, or their executors are of an earlier release."
        sentence += f" {plural(len(silent_hosts), one, several, hosts=', '.join(silent_hosts))}"
    return sentence.strip()


def _hosts(job: Job) -> set[str]:
    return set(job.claims.filter(released_at=None).values_list("slot__host__name", flat=True))


def _answers(job: Job) -> Iterator[HostStacks]:
    """Yield the answers to the newest request, as far as they are there and valid."""
    folder = job_folder(job).attempt(job.run.attempt)
    hosts = set(job.ranks.filter(attempt=job.run.attempt).values_list("host", flat=True))
    for host in sorted(hosts):
        answer = _read(folder, host)
        if answer is not None and answer.number >= job.run.stacks_number:
            yield answer


def _read(folder: Path, host: str) -> HostStacks | None:
    """Return a host's file; None: there is none, or a script has written something else there."""
    descriptor = open_below(folder, stacks_path(host).split("/"))
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        answer = from_json(HostStacks, readable_text(json.loads(content)))
    except (ValueError, ProtocolError, RecursionError):
        return None
    return answer if answer.host == host else None


def _main_stacks(answers: Sequence[HostStacks], numbers: Mapping[str, int]) -> list[RankStack]:
    ranks = [(_label(rank, numbers), rank) for answer in answers for rank in answer.ranks]
    ranks.sort(key=lambda pair: (not pair[0].isdecimal(), int(pair[0]) if pair[0].isdecimal() else 0, pair[0]))
    return [_main_stack(label, rank) for label, rank in ranks if rank.processes]


def _label(rank: RankStacks, numbers: Mapping[str, int]) -> str:
    number = numbers.get(rank.member_id)
    return rank.member_id if number is None else str(number)


def _main_stack(label: str, rank: RankStacks) -> RankStack:
    process = rank.processes[0]
    if process.state != "answered":
        return RankStack(label, process.state, None)
    threads = threads_of(process.text)
    return RankStack(label, process.state, tuple(threads[-1]) if threads else ())


def _processes(answer: HostStacks, numbers: Mapping[str, int], code: str) -> Iterator[StackedProcess]:
    for rank in answer.ranks:
        for place, process in enumerate(rank.processes):
            yield _process(answer.host, rank, process, numbers.get(rank.member_id), code, is_worker=place > 0)


def _process(
    host: str, rank: RankStacks, process: ProcessStacks, number: int | None, code: str, *, is_worker: bool
) -> StackedProcess:
    # The main thread is the oldest one, which comes last.
    threads = threads_of(process.text)[::-1]
    text = doing_of(threads[0], code).words(plural=False, code=code) if threads else ""
    lines = [[shown_frame(frame, code) for frame in frames] for frames in threads]
    about = process.pid, process.name, is_worker, process.state
    return StackedProcess(number, rank.member_id, host, *about, text, lines)


def _stalled(job: Job, code: str) -> StalledStacks | None:
    """Return the stacks of the newest attempt whose ranks were ended for making no step, or for not beginning."""
    ended = Rank.objects.filter(job=job, exit__error__kind__in=_WITH_STACKS).order_by("-attempt")
    newest = ended.values_list("attempt", flat=True).first()
    if newest is None:
        return None
    ranks, numbers = [], rank_numbers(job, newest)
    for rank in sorted(ended.filter(attempt=newest), key=lambda rank: (numbers.get(rank.member_id, 0), rank.member_id)):
        # The main thread, which wrote the text of the end, comes first in it.
        threads = threads_of(rank.exit["error"].get("traceback", ""))
        label = str(numbers.get(rank.member_id, rank.member_id))
        ranks.append(RankStack(label, "answered" if threads else "silent", tuple(threads[0]) if threads else None))
    groups = folded(ranks, code)
    return StalledStacks(newest, sentence_of(groups), groups)
