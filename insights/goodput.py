"""Goodput of a training by number of GPUs: measured steps, the curve fitted to them, and its knee.

Policy goodput divides GPUs by these curves (`scheduling.policies.speedups`); other groups' trainings have one as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import plotly.graph_objects as go
from django.utils import timezone
from tidepool.goodput.model import ThroughputParameters, gain

from core.charts import figure, gpu_ticks
from core.text import plural
from insights.batch import BatchNow, batch_now
from jobs.control.goodput_inputs import profile_of
from jobs.control.kind_ratios import remembered
from jobs.control.snapshots import snapshot
from jobs.files.validation_runs import validation_of
from jobs.models import Job, ThroughputPoint
from jobs.states import ACTIVE
from jobs.words import NO_KIND, gpus, speed_source
from scheduling.policies.kind_ratios import Ratios, Source, medians
from scheduling.policies.speedups import (
    BEYOND_MEASURED,
    KNEE,
    NO_RATIOS,
    JobScaling,
    Limit,
    Shape,
    batch_of,
    goodput_at_one,
    kind_of_most,
    kind_speed,
    scaling_of,
)
from scheduling.sharing.pool import shapes_of
from scheduling.snapshot import JobView, ProfileView

__all__ = [
    "KindOutlook",
    "MeasuredSize",
    "Outlook",
    "OutlookSize",
    "batch_in_words",
    "goodput_figure",
    "goodput_outlook",
    "outlook_of",
    "with_kinds",
]

#: Highest number of sizes through which a curve is drawn.
_MOST_SIZES = 64
#: Number of measured sizes that a sentence names.
_NAMED_SIZES = 3
#: Number of other kinds of GPU that a sentence names.
_NAMED_KINDS = 4


@dataclass(frozen=True)
class OutlookSize:
    """Forecast for one number of GPUs."""

    gpus: int
    goodput: Annotated[float, "Steps of the job's own batch size per second."]
    speedup: Annotated[float, "Speed relative to one GPU, as the scheduler computes it."]
    batch: Annotated[int, "Samples per step that the job would choose."]
    micro_batch: Annotated[int, "Samples of a rank's micro-batch."]
    accumulation: Annotated[int, "Micro-batches of a step before the last one."]
    assumed: Annotated[bool, "Whether these are more GPUs or hosts than were measured."]


@dataclass(frozen=True)
class MeasuredSize:
    """Medians over steps with equal numbers of GPUs and hosts and an equal micro-batch."""

    gpus: int
    hosts: int
    micro_batch: int
    steps: Annotated[int, "Number of measured steps."]
    compute_seconds: Annotated[float, "Seconds for a micro-batch without the sum over ranks."]
    step_seconds: Annotated[float, "Seconds for the micro-batch that ends with the sum over ranks."]
    goodput: float


@dataclass(frozen=True)
class KindOutlook:
    """Speed of one GPU of a kind."""

    gpu_model: str
    speed: Annotated[float, "Goodput on one GPU, relative to one of the kind that the other figures hold for."]
    source: Annotated[
        Source,
        "Origin: measured by the job itself; median over trainings of its code; median over others; two such medians "
        "by way of a third kind; unknown, taken to be equal.",
    ]
    trainings: Annotated[int, "Number of trainings that the median is taken over; 0: none."]
    by_way_of: Annotated[str, "The third kind; empty if there is none."] = ""

    @property
    def text(self) -> str:
        return f"{self.gpu_model or NO_KIND}: {self.speed:.3g} times as fast ({self.source_text})"

    @property
    def source_text(self) -> str:
        return speed_source(self.source, self.trainings, self.by_way_of)


@dataclass(frozen=True)
class Outlook:
    text: Annotated[str, "Summary of the figures, or why there are none."]
    gpu_model: Annotated[str, "Kind of GPU that the figures hold for; empty if there are none."] = ""
    batch_size: Annotated[int | None, "Samples per step as submitted."] = None
    gpus: Annotated[int, "Number of GPUs that the job has now."] = 0
    knee: Annotated[int | None, "Fewest GPUs with nearly the best speed-up; null: beyond what the job is offered."] = (
        None
    )
    #: Batch that rank 0 chose; None: the job has no GPU, its batch does not adapt, or it has reported none yet.
    batch_now: BatchNow | None = None
    sizes: Sequence[OutlookSize] = ()
    measured: Sequence[MeasuredSize] = ()
    #: The other kinds of GPU that its resource group has.
    kinds: Sequence[KindOutlook] = ()

    @property
    def now(self) -> OutlookSize | None:
        return next((size for size in self.sizes if size.gpus == self.gpus), None)


def goodput_outlook(job: Job) -> Outlook:
    """Return the outlook of a job; of a finished one as if it ran on the present hosts."""
    if why := _why_never(job):
        return Outlook(why)
    profile = profile_of(job.pk)
    if profile is None:
        return Outlook(_why_not_yet(job))
    now = snapshot(timezone.now())
    holding = [slot.device for slot in now.slots if slot.held_by == job.pk and not slot.vacating]
    held, kind = len(holding), kind_of_most(holding)
    shapes = shapes_of(now, job.instance_group.resource_group.name)
    shape = next((shape for shape in shapes if shape.kind == kind), shapes[0])
    view = JobView(
        id=job.pk,
        name=job.name,
        group=job.instance_group.name,
        state="RUNNING",
        priority=job.priority,
        submitted_at=job.submitted_at.timestamp(),
        min_slots=job.min_slots,
        max_slots=job.max_slots,
        profile=profile,
        code=job.model.digest,
    )
    found = outlook_of(view, shape, held, job.throughput.all())
    found = with_kinds(found, view, shapes, _ratios(view, shapes))
    return replace(found, batch_now=batch_now(job) if held else None)


def _ratios(view: JobView, shapes: Sequence[Shape]) -> Ratios:
    assert view.profile is not None
    if len({*view.profile.parameters, *(shape.kind for shape in shapes)}) < 2:
        return NO_RATIOS
    return Ratios(medians(remembered([view.code], timezone.now()), {view.code}))


def with_kinds(outlook: Outlook, view: JobView, shapes: Sequence[Shape], ratios: Ratios) -> Outlook:
    """Return the outlook with the speed of each other kind of GPU, and sentences about them."""
    known, base, kinds = goodput_at_one(view.profile), outlook.gpu_model, []
    if base not in known:
        return outlook
    for kind in sorted({shape.kind for shape in shapes} - {base}):
        speed = kind_speed(view, kind, known, ratios)
        relative = known[speed.base] * speed.ratio / known[base]
        kinds.append(KindOutlook(kind, round(relative, 6), speed.source, speed.trainings, speed.by_way_of))
    if not kinds:
        return outlook
    named = ", ".join(kind.text for kind in kinds[:_NAMED_KINDS])
    more = len(kinds) - _NAMED_KINDS
    rest = plural(more, "; and {count} more kind", "; and {count} more kinds") if more > 0 else ""
    sentence = f"One GPU of other kinds, against one {base or NO_KIND}: {named}{rest}."
    return replace(outlook, kinds=kinds, text=f"{outlook.text} {sentence}")


def _why_never(job: Job) -> str:
    if validation_of(job) is not None:
        return "A validation trains no model, so its steps are not measured."
    if not job.elastic:
        return "The script trains on a fixed number of GPUs, so the speed on other numbers is unknown."
    return ""


def _why_not_yet(job: Job) -> str:
    if job.state not in ACTIVE:
        return "The training ended before its steps were measured."
    if not job.run.slots:
        return "The training has no GPU yet. The duration of its steps is measured during the training."
    return "The duration of the steps is not known yet: the ranks report it after the first steps."


def outlook_of(view: JobView, shape: Shape, held: int, points: Iterable[ThroughputPoint]) -> Outlook:
    """Return the outlook on hosts of a shape.

    held: number of GPUs that the job has now.
    points: measurements on all kinds of GPU.
    """
    profile = view.profile
    assert profile is not None
    kind = kind_speed(view, shape.kind, profile.parameters, NO_RATIOS).base if profile.parameters else None
    measured = _whole_steps(_measured(point, profile) for point in points if kind is None or point.gpu_model == kind)
    if kind is None:
        text = _why_no_curve(measured)
        return Outlook(text, shape.kind, profile.bounds.batch_size, held, measured=measured)
    # On a kind without measurements, the figures are those of a kind that has some.
    shape = replace(shape, kind=kind)
    scaling = scaling_of(view, shape, held)
    counts = _thinned(len(scaling.speedups), {held, scaling.most, scaling.measured})
    several_hosts = any(point.hosts > 1 for point in measured)
    sizes = [_size(view, shape, scaling, count, several_hosts=several_hosts) for count in counts]
    found = Outlook(
        text="",
        gpu_model=kind,
        batch_size=profile.bounds.batch_size,
        gpus=held,
        knee=scaling.most if scaling.limit == "knee" else None,
        sizes=sizes,
        measured=measured,
    )
    sentences = [*_sentences(found, scaling.limit, scaling.most), *_work_beside(profile.parameters[kind], measured)]
    return replace(found, text=" ".join(sentences))


def _why_no_curve(measured: Sequence[MeasuredSize]) -> str:
    """Return what was measured, in words, where no parameters describe it."""
    if not measured:
        return "No steps were measured on a kind of GPU that the training can have here."
    sizes = [
        f"{point.step_seconds:.3g} s on {gpus(point.gpus)} with "
        f"{plural(point.micro_batch, '{count} sample', '{count} samples')} on each"
        for point in measured[:_NAMED_SIZES]
    ]
    return (
        f"No curve fits the measured durations of the steps ({', '.join(sizes)}) : each would be off by more than "
        "65 %. So nothing is known of other numbers of GPUs, and a batch that may change stays."
    )


def _work_beside(parameters: ThroughputParameters, measured: Sequence[MeasuredSize]) -> Iterator[str]:
    """Yield the part of a step that passes beside the gradients, on the fewest measured GPUs, if it counts."""
    if not measured or not (beside := float(parameters.beside_seconds(float(measured[0].micro_batch)))):
        return
    part = round(100 * min(1.0, beside / measured[0].step_seconds))
    yield (
        f"{part} % of a step on {gpus(measured[0].gpus)} passes beside the gradients: in the optimizer's step, in "
        "logging, or in other work of the script."
    )


def _size(view: JobView, shape: Shape, scaling: JobScaling, count: int, *, several_hosts: bool) -> OutlookSize:
    """Return the forecast for `count` GPUs. several_hosts: whether the job was measured on more than one host."""
    batch = batch_of(view, shape, count)
    assert batch is not None
    assumed = count > scaling.measured or (shape.size_of(count).hosts > 1 and not several_hosts)
    speedup = scaling.speedup(count)
    return OutlookSize(count, batch.goodput, speedup, batch.batch, batch.micro_batch, batch.accumulation, assumed)


def _measured(point: ThroughputPoint, profile: ProfileView) -> MeasuredSize:
    """Return the goodput of a measurement: a step has as many micro-batches as the job's own batch size needs."""
    own = profile.bounds.batch_size
    each = point.ranks * point.micro_batch
    further = max(0, -(-own // each) - 1)
    batch = each * (further + 1) if profile.bounds.is_adaptive else own
    parameters = profile.parameters.get(point.gpu_model)
    beside = float(parameters.beside_seconds(float(point.micro_batch))) if parameters else 0.0
    seconds = further * (point.compute_seconds + beside) + point.step_seconds
    worth = float(gain(profile.noise, own, float(batch)))
    return MeasuredSize(
        gpus=point.ranks,
        hosts=point.hosts,
        micro_batch=point.micro_batch,
        steps=point.steps,
        compute_seconds=point.compute_seconds,
        step_seconds=point.step_seconds,
        goodput=worth / seconds,
    )


def _whole_steps(points: Iterable[MeasuredSize]) -> list[MeasuredSize]:
    """Keep the largest micro-batch of each size: smaller ones are remainders in an epoch's last step."""
    largest: dict[tuple[int, int], MeasuredSize] = {}
    for point in sorted(points, key=lambda point: (point.gpus, point.hosts, point.micro_batch)):
        largest[point.gpus, point.hosts] = point
    return list(largest.values())


def _thinned(most: int, needed: Iterable[int]) -> list[int]:
    """Return at most about _MOST_SIZES numbers from 1 to `most`, and all of `needed`."""
    every = -(-most // _MOST_SIZES)
    return sorted({*range(1, most + 1, every), most, *(count for count in needed if 1 <= count <= most)})


def _sentences(outlook: Outlook, limit: Limit, most: int) -> Iterator[str]:
    largest = max((point.gpus for point in outlook.measured), default=0)
    on = gpus(largest) if largest < 2 else f"up to {gpus(largest)}"
    rest = "; dashed lines are extrapolated" if _has_assumed(outlook) else ""
    yield f"The training was measured on {on}{rest}."
    now = outlook.now
    at_most = next((size for size in outlook.sizes if size.gpus == most), None)
    if now is not None and at_most is not None and now.goodput and most > now.gpus:
        faster = round(100 * (at_most.goodput / now.goodput - 1))
        yield f"{gpus(most)} instead of {now.gpus} would make it {faster} % faster."
    if limit == "knee":
        yield f"More than {gpus(most)} would make it at most {round(100 / KNEE - 100)} % faster."
    elif limit == "profile":
        yield f"It gets at most {gpus(most)} for now, {BEYOND_MEASURED} times as many as were measured."
    elif limit == "hosts":
        yield f"It gets at most {gpus(most)}: beyond one host, it only gets whole hosts."
    else:
        yield f"Each GPU up to its maximum, {gpus(most)}, makes it faster."


def _has_assumed(outlook: Outlook) -> bool:
    return any(size.assumed for size in outlook.sizes)


def batch_in_words(size: OutlookSize) -> str:
    """Return a step's GPUs × samples × micro-batches in words."""
    parts = [gpus(size.gpus), plural(size.micro_batch, "{count} sample", "{count} samples")]
    if size.accumulation:
        parts.append(f"{size.accumulation + 1} micro-batches")
    product = size.gpus * size.micro_batch * (size.accumulation + 1)
    return " × ".join(parts) + (", one less on some GPUs" if product > size.batch else "")


def goodput_figure(outlook: Outlook) -> dict[str, Any]:
    """Return the figure of goodput over GPUs: measured points, curve (dashed where assumed), present size and knee."""
    sizes = outlook.sizes
    known = [size for size in sizes if not size.assumed]
    # The dashed part begins where the solid one ends.
    assumed = [*known[-1:], *(size for size in sizes if size.assumed)] if _has_assumed(outlook) else []
    knee = f"{KNEE:.0%} of the best speed".replace("%", " %")
    marks = [(outlook.now, "Now", "now", "circle"), (_at(sizes, outlook.knee), knee, "knee", "diamond")]
    traces = [
        *(_line(part, name, kind, dash) for part, name, kind, dash in _lines(known, assumed)),
        *([_dots(outlook.measured)] if outlook.measured else []),
        *(_mark(size, name, kind, symbol) for size, name, kind, symbol in marks if size is not None),
    ]
    return figure(
        traces,
        xaxis={
            "title": {"text": "GPUs"},
            "rangemode": "tozero",
            "zeroline": False,
            "tick0": 0,
            "dtick": gpu_ticks(max((size.gpus for size in sizes), default=1)),
        },
        yaxis={"title": {"text": "Goodput (steps / s)"}, "rangemode": "tozero", "zeroline": False, "nticks": 6},
        hovermode="closest",
        meta={"kind": "goodput"},
    )


def _lines(
    known: Sequence[OutlookSize], assumed: Sequence[OutlookSize]
) -> Iterator[tuple[Sequence[OutlookSize], str, str, str]]:
    if known:
        yield known, "Fitted", "fitted", "solid"
    if assumed:
        yield assumed, "Assumed", "assumed", "dash"


def _at(sizes: Iterable[OutlookSize], count: int | None) -> OutlookSize | None:
    return next((size for size in sizes if size.gpus == count), None)


def _line(sizes: Sequence[OutlookSize], name: str, kind: str, dash: str) -> go.Scatter:
    return go.Scatter(
        x=[size.gpus for size in sizes],
        y=[size.goodput for size in sizes],
        customdata=[[batch_in_words(size), size.speedup] for size in sizes],
        name=name,
        meta={"kind": kind},
        mode="lines",
        line={"width": 2, "dash": dash},
        hovertemplate="%{x} GPUs: %{y:.3g} steps/s<br>%{customdata[0]}<extra>" + name + "</extra>",
    )


def _dots(points: Sequence[MeasuredSize]) -> go.Scatter:
    words = [
        f"{gpus(point.gpus)} on {plural(point.hosts, '{count} host', '{count} hosts')}, "
        f"{plural(point.micro_batch, '{count} sample', '{count} samples')} each, {point.steps} steps"
        for point in points
    ]
    return go.Scatter(
        x=[point.gpus for point in points],
        y=[point.goodput for point in points],
        customdata=[[text] for text in words],
        name="Measured",
        meta={"kind": "measured"},
        mode="markers",
        marker={"size": 7},
        hovertemplate="%{customdata[0]}<br>%{y:.3g} steps/s<extra>Measured</extra>",
    )


def _mark(size: OutlookSize, name: str, kind: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=[size.gpus],
        y=[size.goodput],
        name=f"{name}: {size.gpus}",
        meta={"kind": kind},
        mode="markers",
        marker={"size": 13, "symbol": f"{symbol}-open", "line": {"width": 2}},
        hovertemplate=f"{name}: {gpus(size.gpus)}, %{{y:.3g}} steps/s<extra></extra>",
    )
