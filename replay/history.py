"""Recorded history of the cluster in a period, as input of `scheduling.replay.history`.

This module reads the trainings: user commands, sizes, measurements and GPUs held. `past_pool` reads the rules of groups
and the pool.
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

from jobs.control.kind_ratios import remembered
from jobs.control.snapshots import host_shares
from jobs.models import AllocationPoint, Generation, Job, JobEvent, JobProfile, MetricPoint, SlotClaim, ThroughputPoint
from jobs.option_words import wish_of
from jobs.states import UNDOABLE, JobState, Reason
from models_registry.models import RegisteredModelVersion
from replay.past_pool import past_pool, past_rules
from replay.queries import jobs_between
from scheduling.policies.speedups import kind_of_most
from scheduling.replay.history import History, KnownMeasures, Outcome, RecordedJob, Segment
from scheduling.replay.world import Change, Costs, JobChange
from scheduling.snapshot import JobView, SlotRef

__all__ = ["read_history"]

#: Costs in seconds for which no training of the period has measurements.
_DEFAULT_COSTS = Costs(start=5.0, pause=1.0, join=3.0, release=2.0, end=1.0, free=1.0)
#: Number of equal parts of a training's steps; the gradient noise is averaged over each.
_PHASES = 32
#: Seconds after an attempt's first claim within which further claims belong to its start.
_START_SECONDS = 0.5
_ELASTIC = RegisteredModelVersion.Engine.ELASTIC
_REQUESTS = {Reason.SUSPENDED_BY_USER, Reason.RESUMED_BY_USER, Reason.TIME_LIMIT, *UNDOABLE.values()}
_JOB = (
    "pk", "name", "owner_id", "instance_group__name", "priority", "submitted_at", "min_slots", "max_slots",
    "model__engine", "max_seconds", "state", "started_at", "finished_at", "run__progress", "model_id",
    "model__model_id", "bundle", "model__digest", "cpus_per_gpu", "memory_gib_per_gpu",
)  # fmt: skip


class _Claim(NamedTuple):
    ref: SlotRef
    attempt: int
    claimed_at: float
    vacating_at: float | None
    released_at: float | None
    trains_from: float | None
    #: GPU model.
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
    """Rows of all jobs of a period, by job."""

    claims: Mapping[int, Sequence[_Claim]]
    points: Mapping[int, Sequence[_Point]]
    #: Events of user commands, in order.
    events: Mapping[int, Sequence[JobEvent]]
    #: (job, attempt, generation) -> slots of its ranks.
    members: Mapping[tuple[int, int, int], Sequence[SlotRef]]
    #: Measurements by job, by model version, and by model.
    known: tuple[Mapping[int, KnownMeasures], Mapping[int, KnownMeasures], Mapping[int, KnownMeasures]]


def read_history(start: datetime, end: datetime, now: datetime) -> History:
    """Return the history of a period. The number of queries does not depend on the data."""
    jobs = jobs_between(start, end)
    rows = _rows(jobs)
    pasts = [
        _JobHistory(rows, start.timestamp(), end.timestamp(), now.timestamp(), *row)
        for row in jobs.order_by("pk").values_list(*_JOB)
    ]
    default_costs = _costs(pasts, _DEFAULT_COSTS)
    groups, rules = past_rules(start)
    slots, pools = past_pool(start)
    changes = chain(rules, pools, *(past.changes() for past in pasts))
    return History(
        start=start.timestamp(),
        end=end.timestamp(),
        groups=groups,
        slots=slots,
        changes=tuple(sorted(changes, key=lambda change: change[0])),
        jobs=tuple(past.job(default_costs) for past in pasts),
        costs=default_costs,
        remembered=tuple(remembered({past.code for past in pasts}, start)),
        shares=host_shares() if any(past.wish for past in pasts) else {},
    )


class _JobHistory:
    """Recorded history of one job."""

    def __init__(self, rows: _Rows, start: float, end: float, now: float, *row: Any) -> None:
        (
            self.pk, self.name, self.owner, self.group, self.priority, self._submitted, self.min_slots, self.max_slots,
            engine, self.max_seconds, self.state, self._started, self._finished, self._progress, self._version,
            self._model, self.bundle, self.code, *wish,
        ) = row  # fmt: skip
        self.rows, self.start, self.end, self.now = rows, start, end, now
        self.wish, self.elastic = wish_of(*wish), engine == _ELASTIC
        self.claims = rows.claims.get(self.pk, ())
        self.points = rows.points.get(self.pk, ())
        self.events = rows.events.get(self.pk, ())
        self.spans = list(self._spans())

    @property
    def finished_at(self) -> float | None:
        return self._finished and float(self._finished.timestamp())

    def job(self, default_costs: Costs) -> RecordedJob:
        """Return the job as input of a replay. default_costs: for costs that were not measured for this job."""
        spans = list(_cut(self.spans, self.start))
        view = JobView(
            id=self.pk,
            name=self.name,
            owner=self.owner,
            group=self.group,
            state="PENDING",
            priority=self.priority,
            submitted_at=self._submitted.timestamp(),
            started_at=self._started and self._started.timestamp(),
            min_slots=self.min_slots,
            max_slots=self.max_slots,
            elastic=self.elastic,
            lasts=self.max_seconds,
            bundle=self.bundle,
            code=self.code,
            wish=self.wish,
        )
        for event in reversed(self._field_events()):
            view = replace(view, **self._fields(event, "old"))
        return RecordedJob(
            view=view,
            outcome=self._outcome(),
            segments=tuple(Segment(max(0.0, span.end - span.start), *span[2:]) for span in spans),
            before=sum(span.end <= self.start for span in spans),
            slots=tuple(sorted(claim.ref for claim in self.claims if self._was_held(claim))),
            is_held_back=self._was_held_back(),
            ended_at=self.finished_at,
            progress=1.0 if self.ended_itself else self._progress,
            known=self._known(),
            # The spans of a script that never reported training include its start.
            costs=_costs([self], default_costs if self._reports_sizes() else replace(default_costs, start=0.0)),
            held=tuple(_heights(self.claims)),
        )

    @property
    def ended_itself(self) -> bool:
        return self.state in (JobState.SUCCEEDED, JobState.FAILED) and bool(self.spans)

    def _outcome(self) -> Outcome:
        if self.finished_at is None or (self.finished_at > self.end and self.ended_itself):
            return "unfinished"
        return "over" if self.ended_itself else "withdrawn"

    def _known(self) -> KnownMeasures | None:
        """Return the measurements of the training, or of another one of its model."""
        if not self.elastic:
            return None
        for key, known in zip((self.pk, self._version, self._model), self.rows.known, strict=True):
            if key in known:
                return known[key]
        return None

    def _was_held(self, claim: _Claim) -> bool:
        vacated = claim.vacating_at or claim.released_at
        return claim.claimed_at < self.start and (vacated is None or vacated > self.start)

    def _was_held_back(self) -> bool:
        requests = [verb for at, verb in self._requests() if at < self.start]
        return bool(requests) and requests[-1] == "hold"

    def _requests(self) -> Iterator[tuple[float, str]]:
        for event in self.events:
            stops = event.reason == Reason.TIME_LIMIT and event.new == JobState.PREEMPTING
            if event.reason == Reason.RESUMED_BY_USER:
                yield event.at.timestamp(), "resume"
            elif stops or (event.reason == Reason.SUSPENDED_BY_USER and event.old != JobState.PREEMPTING):
                yield event.at.timestamp(), "hold"

    def _field_events(self) -> list[JobEvent]:
        """Return the users' changes of its request since the start."""
        return [event for event in self.events if "field" in event.detail and event.at.timestamp() >= self.start]

    def _fields(self, event: JobEvent, side: str) -> dict[str, Any]:
        """Return the "old" or "new" values of the fields of a `JobView` that a change sets. The minimum of a fixed-size
        training is its maximum."""
        changed = event.detail["field"]
        names = ["lasts" if changed == "max_seconds" else changed]
        if changed == "max_slots" and not self.elastic:
            names.append("min_slots")
        return dict.fromkeys(names, event.detail[side])

    def changes(self) -> Iterator[Change]:
        for event in self._field_events():
            yield event.at.timestamp(), JobChange(self.pk, "change", self._fields(event, "new"))
        for at, verb in self._requests():
            if at >= self.start:
                yield at, JobChange(self.pk, "resume" if verb == "resume" else "hold")
        if self.finished_at is not None and not self.ended_itself:
            yield max(self.start, self.finished_at), JobChange(self.pk, "withdraw")

    def _reports_sizes(self) -> bool:
        return any(point.slots for point in self.points)

    def _spans(self) -> Iterator[_Span]:
        """Yield the periods of constant size."""
        points = self.points
        over = self.finished_at or self.now
        if not self._reports_sizes():
            yield from self._held_spans(over)
        for point, after in pairwise([*points, _Point(over, 0, 0, 0, 0.0)]):
            if point.slots:
                refs = self.rows.members.get((self.pk, point.attempt, point.generation), ())
                placement, kind = _hosts(refs) or (point.slots,), self._kind(point.attempt, refs)
                yield _Span(point.at, max(point.at, after.at), placement, point.pause, kind)

    def _kind(self, attempt: int, refs: Collection[SlotRef]) -> str:
        """Return the most frequent GPU model of the slots; of all claims of the attempt if the slots are unknown."""
        held = [claim for claim in self.claims if claim.attempt == attempt]
        return kind_of_most(claim.kind for claim in held if not refs or claim.ref in refs)

    def _held_spans(self, over: float) -> Iterator[_Span]:
        """Yield the spans of a script that never reported training: each attempt, from first claim to last release."""
        for attempt in sorted({claim.attempt for claim in self.claims}):
            claims = [claim for claim in self.claims if claim.attempt == attempt]
            ends = [over if claim.released_at is None else min(over, claim.released_at) for claim in claims]
            refs = [claim.ref for claim in claims]
            began = min(claim.claimed_at for claim in claims)
            yield _Span(began, max(ends), _hosts(refs), 0.0, self._kind(attempt, refs))


def _cut(spans: Iterable[_Span], at: float) -> Iterator[_Span]:
    """Yield the spans, with the one that includes the moment split in two."""
    for span in spans:
        if span.start < at < span.end:
            yield span._replace(end=at)
            yield span._replace(start=at, pause=0.0)
        else:
            yield span


def _heights(claims: Iterable[_Claim]) -> Iterator[tuple[float, int]]:
    """Yield the number of simultaneous claims at each change."""
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
        events=_by_job(JobEvent.objects.filter(job__in=numbers, reason__in=_REQUESTS).order_by("job", "seq")),
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
    """Return the newest measurements of each job, model version and model, including jobs outside of the period."""
    models = jobs.values("model__model")
    profiles = JobProfile.objects.filter(job__model__model__in=models).order_by("at", "pk")
    points: dict[tuple[int, str], list[Point]] = defaultdict(list)
    rows = ThroughputPoint.objects.filter(job__in=jobs.values("pk")).order_by("pk")
    for point in rows:
        size = point.hosts, point.ranks
        measured = Point(*size, point.micro_batch, point.compute_seconds, point.step_seconds, point.steps)
        points[point.job_id, point.gpu_model].append(measured)
    by_job, by_version, by_model = dict[int, KnownMeasures](), dict[int, int](), dict[int, int]()
    for job, version, model, batch, parameters, batch_state, micro_batches in profiles.values_list(
        "job", "job__model_id", "job__model__model_id", "batch_size", "parameters", "adapted", "micro_batches"
    ):
        if not parameters:
            continue
        fitted = {
            kind: (tuple(points[job, kind]), ThroughputParameters(**each)) for kind, each in sorted(parameters.items())
        }
        most = max(fitted, key=lambda kind: len(fitted[kind][0]))
        adapted = from_json(AdaptedBatch, batch_state) if batch_state is not None else None
        by_job[job] = KnownMeasures(
            bounds=bounds_of(adapted) if adapted is not None else Bounds(batch),
            parameters=fitted[most][1],
            points=fitted[most][0],
            noise=noise_of(adapted) if adapted is not None else None,
            kind=most,
            others={kind: each for kind, each in fitted.items() if kind != most},
            micro_batches=micro_batches,
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
    """Return (progress, gradient noise) of jobs with an adaptive batch size, as means over equal parts of their steps.

    Progress is the sum of the steps' gains. Only the noise scale is stored, the ratio of variance and squared gradient.
    """
    rows = (
        MetricPoint.objects.filter(
            job__in=sorted(numbers), name__in=("gain", "noise_scale"), job__run__step__gt=0, is_even=True
        )
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
        measured = parts[part]
        if "noise_scale" in measured and 0.0 <= measured["noise_scale"][0] <= LARGEST:
            yield progress, NoiseScale(measured["noise_scale"][0], 1.0)
        if "gain" in measured:
            mean, _, last = measured["gain"]
            progress, done = progress + mean * (last - done), last


# --- costs of changes ----------------------------------------------------------------------------------------------


def _costs(pasts: Iterable[_JobHistory], default_costs: Costs) -> Costs:
    """Return the medians of the measured costs of these jobs, and `default_costs` for costs without measurements."""
    measured: dict[str, list[float]] = defaultdict(list)
    for past in pasts:
        for name, seconds in _measured_costs(past):
            measured[name].append(max(0.0, seconds))
    return replace(default_costs, **{name: median(values) for name, values in measured.items()})


def _measured_costs(past: _JobHistory) -> Iterator[tuple[str, float]]:
    first_claims: dict[int, float] = {}
    starts: dict[int, list[float]] = defaultdict(list)
    for claim in past.claims:
        first = first_claims.setdefault(claim.attempt, claim.claimed_at)
        if claim.trains_from is not None:
            seconds = claim.trains_from - claim.claimed_at
            if claim.claimed_at > first + _START_SECONDS:
                yield "join", seconds
            else:
                starts[claim.attempt].append(seconds)
    # The first ranks train before the others have started, so the cost of a start is the mean.
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
