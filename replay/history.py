"""Recorded past of the cluster in a window, from rows that are kept anyway: input of `scheduling.replay.history`.

Trainings and what was asked of them, their sizes and what was measured of them, and which GPUs they held; the rules of
groups and the pool are in `past_pool`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, pairwise
from statistics import fmean, median
from typing import Any, NamedTuple

from django.db.models import Avg, F, Max, Min, QuerySet
from tidepool.goodput.model import LARGEST, Bounds, NoiseScale, Point, ThroughputParameters
from tidepool.profile_checks import bounds_of, noise_of
from tidepool.protocol import AdaptedBatch, from_json

from jobs.models import AllocationPoint, Generation, Job, JobEvent, JobProfile, MetricPoint, SlotClaim, ThroughputPoint
from jobs.states import UNDOABLE, JobState, Reason
from models_registry.models import RegisteredModelVersion
from replay.past_pool import past_pool, past_rules
from replay.queries import jobs_between
from scheduling.policies.speedups import kind_of_most
from scheduling.replay.history import History, KnownMeasures, Outcome, RecordedJob, Segment
from scheduling.replay.world import Change, Costs, JobChange
from scheduling.snapshot import SlotRef

__all__ = ["recorded"]

#: Seconds, where no training of the window tells any.
_USUAL = Costs(start=5.0, pause=1.0, join=3.0, release=2.0, end=1.0, free=1.0)
#: Parts of a training's steps in which the noise of its gradients counts as the same.
_PHASES = 32
#: Claims within so many seconds of an attempt's first are its start.
_AT_ONCE = 0.5
_ELASTIC = RegisteredModelVersion.Engine.ELASTIC
_ASKED = {Reason.SUSPENDED_BY_USER, Reason.RESUMED_BY_USER, Reason.TIME_LIMIT, *UNDOABLE.values()}
_JOB = (
    "pk", "name", "owner_id", "instance_group__name", "priority", "submitted_at", "min_slots", "max_slots",
    "model__engine", "max_seconds", "state", "started_at", "finished_at", "run__progress", "model_id",
    "model__model_id",
)  # fmt: skip


class _Claim(NamedTuple):
    ref: SlotRef
    attempt: int
    claimed_at: float
    vacating_at: float | None
    released_at: float | None
    trains_from: float | None
    #: Of GPU.
    kind: str


class _Point(NamedTuple):
    at: float
    slots: int
    attempt: int
    generation: int
    pause: float


class _Span(NamedTuple):
    start: float
    end: float
    placement: tuple[int, ...]
    pause: float
    kind: str


@dataclass(frozen=True)
class _Rows:
    """Rows of all jobs of a window, by job."""

    claims: Mapping[int, Sequence[_Claim]]
    points: Mapping[int, Sequence[_Point]]
    #: What people asked of it, in order.
    events: Mapping[int, Sequence[JobEvent]]
    #: (job, attempt, generation) -> what its ranks have.
    members: Mapping[tuple[int, int, int], Sequence[SlotRef]]
    #: Of jobs, of versions of models, and of models.
    known: tuple[Mapping[int, KnownMeasures], Mapping[int, KnownMeasures], Mapping[int, KnownMeasures]]


def recorded(start: datetime, end: datetime, now: datetime) -> History:
    """The number of queries does not depend on what happened."""
    jobs = jobs_between(start, end)
    rows = _rows(jobs)
    pasts = [
        _Past(rows, start.timestamp(), end.timestamp(), now.timestamp(), *row)
        for row in jobs.order_by("pk").values_list(*_JOB)
    ]
    usual = _costs(pasts, _USUAL)
    groups, rules = past_rules(start)
    slots, pools = past_pool(start)
    changes = chain(rules, pools, *(past.changes() for past in pasts))
    return History(
        start=start.timestamp(),
        end=end.timestamp(),
        groups=groups,
        slots=slots,
        changes=tuple(sorted(changes, key=lambda change: change[0])),
        jobs=tuple(past.job(usual) for past in pasts),
        costs=usual,
    )


class _Past:
    """One job's rows, and what follows from them."""

    def __init__(self, rows: _Rows, start: float, end: float, now: float, *row: Any) -> None:
        (
            self.pk, self.name, self.owner, self.group, self.priority, self._submitted, self.min_slots, self.max_slots,
            engine, self.max_seconds, self.state, self._started, self._finished, self._progress, self._version,
            self._model,
        ) = row  # fmt: skip
        self.rows, self.start, self.end, self.now = rows, start, end, now
        self.elastic = engine == _ELASTIC
        self.claims = rows.claims.get(self.pk, ())
        self.points = rows.points.get(self.pk, ())
        self.events = rows.events.get(self.pk, ())
        self.spans = list(self._spans())

    @property
    def finished_at(self) -> float | None:
        return self._finished and float(self._finished.timestamp())

    def job(self, usual: Costs) -> RecordedJob:
        """`usual`: what changes cost others, where this one tells nothing."""
        asked = self._asked_before()
        spans = list(_cut(self.spans, self.start))
        return RecordedJob(
            id=self.pk,
            group=self.group,
            priority=asked.get("priority", self.priority),
            submitted_at=self._submitted.timestamp(),
            min_slots=asked.get("min_slots", self.min_slots),
            max_slots=asked.get("max_slots", self.max_slots),
            elastic=self.elastic,
            max_seconds=asked.get("max_seconds", self.max_seconds),
            outcome=self._outcome(),
            segments=tuple(Segment(max(0.0, span.end - span.start), *span[2:]) for span in spans),
            before=sum(span.end <= self.start for span in spans),
            slots=tuple(sorted(claim.ref for claim in self.claims if self._was_held(claim))),
            is_held_back=self._was_held_back(),
            started_at=self._started and self._started.timestamp(),
            ended_at=self.finished_at,
            progress=1.0 if self.ended_itself else self._progress,
            known=self._known(),
            # A script that never said that it trains: its start is part of its spans.
            costs=_costs([self], usual if self._tells_sizes() else replace(usual, start=0.0)),
            held=tuple(_heights(self.claims)),
            name=self.name,
            owner=self.owner,
        )

    @property
    def ended_itself(self) -> bool:
        return self.state in (JobState.SUCCEEDED, JobState.FAILED) and bool(self.spans)

    def _outcome(self) -> Outcome:
        if self.finished_at is None or (self.finished_at > self.end and self.ended_itself):
            return "unfinished"
        return "over" if self.ended_itself else "withdrawn"

    def _known(self) -> KnownMeasures | None:
        """Return the measures of the training; else of another one of its model."""
        if not self.elastic:
            return None
        for key, known in zip((self.pk, self._version, self._model), self.rows.known, strict=True):
            if key in known:
                return known[key]
        return None

    def _was_held(self, claim: _Claim) -> bool:
        given_up = claim.vacating_at or claim.released_at
        return claim.claimed_at < self.start and (given_up is None or given_up > self.start)

    def _was_held_back(self) -> bool:
        asked = [verb for at, verb in self._asked() if at < self.start]
        return bool(asked) and asked[-1] == "hold"

    def _asked(self) -> Iterator[tuple[float, str]]:
        for event in self.events:
            stops = event.reason == Reason.TIME_LIMIT and event.new == JobState.PREEMPTING
            if event.reason == Reason.RESUMED_BY_USER:
                yield event.at.timestamp(), "resume"
            elif stops or (event.reason == Reason.SUSPENDED_BY_USER and event.old != JobState.PREEMPTING):
                yield event.at.timestamp(), "hold"

    def _asked_before(self) -> dict[str, Any]:
        """Columns as they were at the start, where they have changed since."""
        found: dict[str, Any] = {}
        for event in self.events:
            if "field" in event.detail and event.at.timestamp() >= self.start:
                found.setdefault(event.detail["field"], event.detail["old"])
        return self._of_fixed(found)

    def _of_fixed(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Change the minimum of a fixed-size training with its maximum."""
        if not self.elastic and "max_slots" in columns:
            return {**columns, "min_slots": columns["max_slots"]}
        return columns

    def changes(self) -> Iterator[Change]:
        for event in self.events:
            if "field" in event.detail and event.at.timestamp() >= self.start:
                columns = self._of_fixed({event.detail["field"]: event.detail["new"]})
                yield event.at.timestamp(), JobChange(self.pk, "change", columns)
        for at, verb in self._asked():
            if at >= self.start:
                yield at, JobChange(self.pk, "resume" if verb == "resume" else "hold")
        if self.finished_at is not None and not self.ended_itself:
            yield max(self.start, self.finished_at), JobChange(self.pk, "withdraw")

    def _tells_sizes(self) -> bool:
        return any(point.slots for point in self.points)

    def _spans(self) -> Iterator[_Span]:
        """Return when it trained, and where."""
        points = self.points
        over = self.finished_at or self.now
        if not self._tells_sizes():
            yield from self._held_spans(over)
        for point, after in pairwise([*points, _Point(over, 0, 0, 0, 0.0)]):
            if point.slots:
                refs = self.rows.members.get((self.pk, point.attempt, point.generation), ())
                placement, kind = _hosts(refs) or (point.slots,), self._kind(point.attempt, refs)
                yield _Span(point.at, max(point.at, after.at), placement, point.pause, kind)

    def _kind(self, attempt: int, refs: Collection[SlotRef]) -> str:
        """Of what it held there; of all that it held in the attempt, where nobody knows which of them it trained on."""
        held = [claim for claim in self.claims if claim.attempt == attempt]
        return kind_of_most(claim.kind for claim in held if not refs or claim.ref in refs)

    def _held_spans(self, over: float) -> Iterator[_Span]:
        """Return the spans of a script that never said that it trains: whole attempts, from first claim to last end."""
        for attempt in sorted({claim.attempt for claim in self.claims}):
            claims = [claim for claim in self.claims if claim.attempt == attempt]
            ends = [over if claim.released_at is None else min(over, claim.released_at) for claim in claims]
            refs = [claim.ref for claim in claims]
            began = min(claim.claimed_at for claim in claims)
            yield _Span(began, max(ends), _hosts(refs), 0.0, self._kind(attempt, refs))


def _cut(spans: Iterable[_Span], at: float) -> Iterator[_Span]:
    """The same, in two where one goes on over that moment."""
    for span in spans:
        if span.start < at < span.end:
            yield span._replace(end=at)
            yield span._replace(start=at, pause=0.0)
        else:
            yield span


def _heights(claims: Iterable[_Claim]) -> Iterator[tuple[float, int]]:
    """Return the number of spans at once, wherever that changes."""
    moves: dict[float, int] = defaultdict(int)
    for claim in claims:
        moves[claim.claimed_at] += 1
        if claim.released_at is not None:
            moves[claim.released_at] -= 1
    height = 0
    for at in sorted(moves):
        height += moves[at]
        yield at, height


def _hosts(refs: Iterable[SlotRef]) -> tuple[int, ...]:
    counts: dict[str, int] = defaultdict(int)
    for ref in refs:
        counts[ref.host] += 1
    return tuple(counts[host] for host in sorted(counts))


# --- rows ---------------------------------------------------------------------------------------------------------


def _rows(jobs: QuerySet[Job]) -> _Rows:
    numbers = jobs.values("pk")
    return _Rows(
        claims=_claims(numbers),
        points=_points(numbers),
        events=_by_job(JobEvent.objects.filter(job__in=numbers, reason__in=_ASKED).order_by("job", "seq")),
        members={
            (job, attempt, number): [SlotRef(member["host"], member["slot"]) for member in members]
            for job, attempt, number, members in Generation.objects.filter(job__in=numbers)
            .order_by()
            .values_list("job", "attempt", "number", "members")
            if members
        },
        known=_all_known(jobs),
    )


def _by_job(events: QuerySet[JobEvent]) -> dict[int, list[JobEvent]]:
    found: dict[int, list[JobEvent]] = defaultdict(list)
    for event in events.iterator(chunk_size=2000):
        found[event.job_id].append(event)
    return found


def _claims(numbers: Any) -> dict[int, list[_Claim]]:
    found: dict[int, list[_Claim]] = defaultdict(list)
    names = ("job", "slot__host__name", "slot__index", "attempt")
    times = ("claimed_at", "vacating_at", "released_at", "trains_from")
    rows = SlotClaim.objects.filter(job__in=numbers).order_by("pk").values_list("gpu_model", *names, *times)
    for kind, job, host, index, attempt, claimed, *others in rows.iterator(chunk_size=5000):
        vacating, released, trains = (at and at.timestamp() for at in others)
        found[job].append(_Claim(SlotRef(host, index), attempt, claimed.timestamp(), vacating, released, trains, kind))
    return found


def _points(numbers: Any) -> dict[int, list[_Point]]:
    found: dict[int, list[_Point]] = defaultdict(list)
    rows = AllocationPoint.objects.filter(job__in=numbers).order_by("job", "at", "id")
    columns = rows.values_list("job", "at", "slots", "attempt", "generation", "pause_ms")
    for job, at, slots, attempt, generation, pause_ms in columns.iterator(chunk_size=5000):
        found[job].append(_Point(at.timestamp(), slots, attempt, generation, (pause_ms or 0.0) / 1000))
    return found


def _all_known(
    jobs: QuerySet[Job],
) -> tuple[dict[int, KnownMeasures], dict[int, KnownMeasures], dict[int, KnownMeasures]]:
    """The newest of each version and model; those of other windows too."""
    models = jobs.values("model__model")
    profiles = JobProfile.objects.filter(job__model__model__in=models).order_by("at", "pk")
    points: dict[tuple[int, str], list[Point]] = defaultdict(list)
    rows = ThroughputPoint.objects.filter(job__in=jobs.values("pk")).order_by("pk")
    for point in rows:
        size = point.hosts, point.ranks
        measured = Point(*size, point.micro_batch, point.compute_seconds, point.step_seconds, point.steps)
        points[point.job_id, point.gpu_model].append(measured)
    by_job, by_version, by_model = dict[int, KnownMeasures](), dict[int, int](), dict[int, int]()
    for job, version, model, batch, parameters, told in profiles.values_list(
        "job", "job__model_id", "job__model__model_id", "batch_size", "parameters", "adapted"
    ):
        if not parameters:
            continue
        fitted = {
            kind: (tuple(points[job, kind]), ThroughputParameters(**each)) for kind, each in sorted(parameters.items())
        }
        most = max(fitted, key=lambda kind: len(fitted[kind][0]))
        adapted = from_json(AdaptedBatch, told) if told is not None else None
        by_job[job] = KnownMeasures(
            bounds=bounds_of(adapted) if adapted is not None else Bounds(batch),
            parameters=fitted[most][1],
            points=fitted[most][0],
            noise=noise_of(adapted) if adapted is not None else None,
            kind=most,
            others={kind: each for kind, each in fitted.items() if kind != most},
        )
        by_version[version] = by_model[model] = job
    wanted = {*by_version.values(), *by_model.values(), *jobs.filter(pk__in=by_job).values_list("pk", flat=True)}
    phases = _phases(pk for pk in wanted if by_job[pk].bounds.is_adaptive)
    by_job = {pk: replace(by_job[pk], phases=phases.get(pk, ())) for pk in wanted}
    return (
        by_job,
        {version: by_job[pk] for version, pk in by_version.items()},
        {model: by_job[pk] for model, pk in by_model.items()},
    )


def _phases(numbers: Iterable[int]) -> dict[int, tuple[tuple[float, NoiseScale], ...]]:
    """The noise of gradients by progress, of trainings that adapt their batch: means over equal parts of their steps.

    Progress is the sum of the steps' gains. Only the ratio of the two lengths is stored, and only it counts.
    """
    rows = (
        MetricPoint.objects.filter(job__in=sorted(numbers), name__in=("gain", "noise_scale"), job__run__step__gt=0)
        .order_by()
        .values_list("job", (F("step") - 1) * _PHASES / F("job__run__step"), "name")
        .annotate(mean=Avg("value"), first=Min("step"), last=Max("step"))
    )
    parts: dict[int, dict[int, dict[str, tuple[float, int, int]]]] = defaultdict(lambda: defaultdict(dict))
    for job, part, name, mean, first, last in rows:
        if mean is not None:
            parts[job][part][name] = mean, first, last
    return {job: tuple(_by_progress(by_part)) for job, by_part in parts.items()}


def _by_progress(parts: Mapping[int, Mapping[str, tuple[float, int, int]]]) -> Iterator[tuple[float, NoiseScale]]:
    progress, done = 0.0, 0
    for part in sorted(parts):
        told = parts[part]
        if "noise_scale" in told and 0.0 <= told["noise_scale"][0] <= LARGEST:
            yield progress, NoiseScale(told["noise_scale"][0], 1.0)
        if "gain" in told:
            mean, _, last = told["gain"]
            progress, done = progress + mean * (last - done), last


# --- what changes cost ----------------------------------------------------------------------------------------------


def _costs(pasts: Iterable[_Past], usual: Costs) -> Costs:
    """Medians of what these jobs tell, and `usual` of what they do not."""
    told: dict[str, list[float]] = defaultdict(list)
    for past in pasts:
        for name, seconds in _told(past):
            told[name].append(max(0.0, seconds))
    return replace(usual, **{name: median(values) for name, values in told.items()})


def _told(past: _Past) -> Iterator[tuple[str, float]]:
    first_claims: dict[int, float] = {}
    starts: dict[int, list[float]] = defaultdict(list)
    for claim in past.claims:
        first = first_claims.setdefault(claim.attempt, claim.claimed_at)
        if claim.trains_from is not None:
            seconds = claim.trains_from - claim.claimed_at
            if claim.claimed_at > first + _AT_ONCE:
                yield "join", seconds
            else:
                starts[claim.attempt].append(seconds)
    # The first ranks train before the others are there.
    yield from (("start", fmean(seconds)) for seconds in starts.values())
    yield from (("pause", point.pause) for before, point in pairwise(past.points) if before.slots and point.slots)
    if past.spans:
        last = past.spans[-1].end
        over = past.finished_at if past.ended_itself else None
        for claim in past.claims:
            if claim.released_at is None:
                continue
            if claim.vacating_at is not None and claim.vacating_at < last:
                yield "release", claim.released_at - claim.vacating_at
            elif over is not None and claim.attempt == past.claims[-1].attempt:
                yield "free", claim.released_at - over
        if over is not None:
            yield "end", over - last
