"""Content of reports about studies: a note with the best trial, and a table of the trials that the report shows."""

import re
from collections.abc import Sequence

from core.templatetags.tidepool import figure
from core.text import plural
from insights.comparison import Compared
from jobs.models import Job
from studies.models import Study, Trial
from studies.rows import best_trial
from studies.words import best_sentence

__all__ = ["studies_of", "study_note", "trial_rows"]

_OVER = {Trial.State.COMPLETE: "complete", Trial.State.PRUNED: "pruned", Trial.State.FAILED: "failed"}
#: Characters that Markdown would interpret within a sentence.
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&])")


def studies_of(jobs: Sequence[Job]) -> list[Study]:
    """Return the studies of which the jobs are trials, in the order of their numbers."""
    if all(job.bundle is None for job in jobs):
        return []
    return list(Study.objects.filter(trials__job__in=jobs).distinct().order_by("pk"))


def study_note(study: Study) -> str:
    """Return the study's best trial, its trials by state and the importance of its parameters, as Markdown."""
    goal = "lowest" if study.goal == Study.Goal.MINIMIZE else "highest"
    lines = [
        best_sentence(study, best_trial(study)),
        f"Searched for the {goal} {study.metric} with the sampler {study.sampler} and the pruner {study.pruner}.",
        f"{_counts(study)}.",
    ]
    parts = sorted(study.importance.items(), key=lambda part: -part[1])
    if parts:
        lines.append(f"Importance: {', '.join(f'{name} {100 * part:.3g} %' for name, part in parts)}.")
    return "\n\n".join(_MARKUP.sub(r"\\\1", line) for line in lines)


def trial_rows(study: Study, jobs: Sequence[Job]) -> list[Compared]:
    """Return number, state, value and parameters of the study's trials, a value for each job; "–": it is no trial."""
    trials = {trial.job_id: trial for trial in study.trials.filter(job__in=jobs)}
    of_jobs = [trials.get(job.pk) for job in jobs]
    told = [
        ("Trial", [str(trial.number) if trial else "–" for trial in of_jobs]),
        ("State", [trial.state.capitalize() if trial else "–" for trial in of_jobs]),
        (study.metric, [_value(trial.value) if trial else "–" for trial in of_jobs]),
        *((name, [_value(trial.values.get(name)) if trial else "–" for trial in of_jobs]) for name in study.space),
    ]
    return [Compared(name, values) for name, values in told]


def _counts(study: Study) -> str:
    states = list(study.trials.values_list("state", flat=True))
    over = ", ".join(f"{states.count(state)} {word}" for state, word in _OVER.items() if state in states)
    total = f"{len(states):,} {plural(len(states), 'trial', 'trials')}"
    return f"{total}: {over}" if over else f"{total}, none is over"


def _value(value: object) -> str:
    if value is None:
        return "–"
    return figure(value) if isinstance(value, float) else str(value)
