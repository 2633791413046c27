"""Figures of trainings that can be added to a report, and freezing them."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from django.utils import timezone

from core.errors import field_error
from core.live import without_nan
from core.roles import Asking
from core.time import exact_time
from insights.comparison import (
    GPUS,
    MAX_JOBS,
    Compared,
    Quantity,
    compared_metrics,
    compared_settings,
    quantities_of,
    titles_of,
)
from insights.job_numbers import job_numbers, jobs_in_order
from jobs.models import Job, Note
from reports.frozen import frozen_chart, frozen_table, gpu_hours, time_taken
from reports.models import ReportBlock
from reports.study_figures import studies_of, study_note, trial_rows
from studies.models import Study
from workers.models import Host

__all__ = ["Choice", "Frozen", "figure_choices", "freeze", "jobs_of"]

Kind = ReportBlock.Kind
_SUMMARY, _RESULTS, _SETTINGS = "table:summary", "table:results", "table:settings"
#: Maximum length of a block's title.
_MAX_TITLE = 255
_TABLES = {_SUMMARY: "Summary", _RESULTS: "Results", _SETTINGS: "Settings and parameters"}


@dataclass(frozen=True)
class Choice:
    key: Annotated[str, "Key of the figure, such as chart:Loss, table:results or note:412."]
    title: str


@dataclass(frozen=True)
class Frozen:
    """Content of a block that is not stored yet."""

    kind: ReportBlock.Kind
    title: str
    sources: Sequence[Job]
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def size_bytes(self) -> int:
        return len(json.dumps(self.data).encode()) if self.data else 0


def jobs_of(user: Asking, text: str) -> list[Job]:
    """Return the trainings of a list of ids such as `1,2,3`, in this order. Raises UserError and NotFound."""
    numbers = job_numbers(text)
    if not 1 <= len(numbers) <= MAX_JOBS:
        raise field_error("jobs", f"Give the ids of 1 to {MAX_JOBS} trainings, such as 1,2,3, not {len(numbers)}.")
    return jobs_in_order(user, numbers)


def figure_choices(jobs: Sequence[Job]) -> list[Choice]:
    """Return the figures of these trainings, in the order in which they would be added."""
    charts = [Choice(f"chart:{title}", title) for title in titles_of(jobs)]
    tables = [Choice(key, title) for key, title in _TABLES.items()]
    notes = [Choice(f"note:{note.job_id}", _note_title(note)) for note in _notes(jobs).values()]
    of_studies = [
        choice
        for study in studies_of(jobs)
        for choice in (
            Choice(f"study:{study.pk}", _study_title(study)),
            Choice(f"trials:{study.pk}", _trials_title(study)),
        )
    ]
    return [*of_studies, *charts, *tables, *notes]


def freeze(jobs: Sequence[Job], keys: Collection[str]) -> list[Frozen]:
    """Return the present content of the chosen figures. Raises UserError for no or unknown keys."""
    offered = figure_choices(jobs)
    known = [choice.key for choice in offered]
    if unknown := sorted(set(keys) - set(known)):
        raise field_error("figures", f"Figure {unknown[0][:80]!a} is not known: choose from {', '.join(known)}.")
    if not keys:
        raise field_error("figures", "Choose at least one figure.")
    is_drawn = any(key.startswith(("chart:", "table:")) for key in keys)
    drawn = {one.title: one for one in quantities_of(jobs)} if is_drawn else {}
    notes = {f"note:{number}": note for number, note in _notes(jobs).items()}
    return [
        *_of_studies(jobs, keys),
        *(_chart(jobs, drawn[key.removeprefix("chart:")]) for key in known if key in keys and key.startswith("chart:")),
        *_tables(jobs, [key for key in _TABLES if key in keys], drawn.get(GPUS)),
        *(
            Frozen(Kind.NOTE, _note_title(note), [note.job], text=note.text)
            for key, note in notes.items()
            if key in keys
        ),
    ]


def _of_studies(jobs: Sequence[Job], keys: Collection[str]) -> list[Frozen]:
    found, hosts = [], _hosts()
    for study in studies_of(jobs):
        trials = [job for job in jobs if job.bundle == study.pk]
        if f"study:{study.pk}" in keys:
            found.append(Frozen(Kind.NOTE, _study_title(study), trials, text=study_note(study)))
        if f"trials:{study.pk}" in keys:
            data = frozen_table(trial_rows(study, trials), hosts, {study.metric})
            found.append(Frozen(Kind.TABLE, _trials_title(study), trials, data))
    return found


def _study_title(study: Study) -> str:
    return f"Study {study.name}"[:_MAX_TITLE]


def _trials_title(study: Study) -> str:
    return f"Trials of {study.name}"[:_MAX_TITLE]


def _hosts() -> list[str]:
    return list(Host.objects.values_list("name", flat=True))


def _chart(jobs: Sequence[Job], quantity: Quantity) -> Frozen:
    if not any(line.points for line in quantity.lines):
        raise field_error("figures", f"{quantity.title} has no values yet: add it once it has some.")
    return Frozen(Kind.CHART, quantity.title, jobs, without_nan(frozen_chart(quantity)))


def _tables(jobs: Sequence[Job], keys: Sequence[str], gpus: Quantity | None) -> list[Frozen]:
    lines = {
        _SUMMARY: lambda: _summary(jobs, gpus),
        _RESULTS: lambda: compared_metrics(jobs),
        _SETTINGS: lambda: compared_settings(jobs),
    }
    hosts = _hosts() if keys else []
    metrics = {line.name for line in compared_metrics(jobs)} if keys else set()
    return [Frozen(Kind.TABLE, _TABLES[key], jobs, frozen_table(lines[key](), hosts, metrics)) for key in keys]


def _summary(jobs: Sequence[Job], gpus: Quantity | None) -> list[Compared]:
    now = timezone.now()
    taken = {job.pk: _seconds(job, now) for job in jobs}
    lines = {line.job: line for line in gpus.lines} if gpus else {}
    most = {job: max((point.value or 0 for point in line.points), default=0) for job, line in lines.items()}
    hours = {job: gpu_hours(line, taken[job] or 0) for job, line in lines.items()}
    rows: dict[str, Callable[[Job], str]] = {
        "State": lambda job: job.state.capitalize(),
        "Started": lambda job: f"{exact_time(job.started_at)} UTC" if job.started_at else "–",
        "Time taken": lambda job: time_taken(taken[job.pk]),
        "Steps": lambda job: str(job.run.step),
        "Epoch": lambda job: str(job.run.epoch),
        "Maximum GPUs": lambda job: f"{most.get(job.pk, 0):g}",
        "GPU-hours of training": lambda job: f"{hours.get(job.pk, 0):.2f}",
    }
    return [Compared(name, [word(job) for job in jobs]) for name, word in rows.items()]


def _seconds(job: Job, now: datetime) -> float | None:
    """Return the seconds from the first start to the end or now; None: not started."""
    return ((job.finished_at or now) - job.started_at).total_seconds() if job.started_at else None


def _notes(jobs: Sequence[Job]) -> dict[int, Note]:
    """Return the newest note of each training that has one."""
    newest: dict[int, Note] = {}
    for note in Note.objects.filter(job__in=jobs).order_by("-number").select_related("job"):
        newest.setdefault(note.job_id, note)
    return {job.pk: newest[job.pk] for job in jobs if job.pk in newest and newest[job.pk].text}


def _note_title(note: Note) -> str:
    return f"Note on {note.job.name}"
