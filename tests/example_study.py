"""A study of the scene: four trials that are over, one of which has a training, and one that is queued."""

from datetime import datetime, timedelta
from typing import Any

from jobs.models import Job
from studies.models import Study, Trial

__all__ = ["example_study", "finished_study"]

_SPACE = {"learning_rate": {"kind": "log_uniform", "low": 0.001, "high": 0.1}, "width": [32, 64]}


def finished_study(done: Job, now: datetime) -> Study:
    """Add a study of the owner of `done` that is over, and has no trials."""
    return _study(done, now, name="Widths", state=Study.State.STOPPED, reason="Stopped by alice.", finished_at=now)


def _study(done: Job, now: datetime, **columns: Any) -> Study:
    given = {
        "options": {"max_slots": 4, "priority": 5000, "seed": 0},
        "space": _SPACE,
        "metric": "test_accuracy",
        "goal": Study.Goal.MAXIMIZE,
        "pruner": "asha",
        "importance": {"learning_rate": 0.83, "width": 0.17},
        "importance_trials": 12,
        "created_at": done.submitted_at,
        **{name: getattr(done, name) for name in ("owner", "model", "dataset", "instance_group")},
    }
    return Study.objects.create(**given, **columns)


def example_study(done: Job, now: datetime) -> Study:
    """Add a study of the owner of `done`, whose best trial is that training."""
    study = _study(
        done, now, name="Learning rates", reason="Trials are submitted as GPUs become free.", trials_wanted=20
    )
    over = Trial.State
    for number, (state, value, why) in enumerate(
        [
            (over.COMPLETE, 91.5, ""),
            (over.COMPLETE, 96.4, ""),
            (over.PRUNED, 41.0, "41 after 1/9 is not among the best third of 4 (90.2)."),
            (over.FAILED, None, "KeyError: 'x'"),
        ]
    ):
        Trial.objects.create(
            study=study,
            number=number,
            job=done if number == 1 else None,
            values={"learning_rate": 0.003 * 3**number, "width": 32 if number % 2 else 64},
            state=state,
            value=value,
            why=why,
            reported=[[1 / 27, 30.0 + number]],
            rung=1,
            created_at=now - timedelta(minutes=30 - number),
            finished_at=now - timedelta(minutes=20 - number),
        )
    Trial.objects.create(
        study=study,
        number=4,
        values={"learning_rate": 0.01, "width": 32},
        origin=Trial.Origin.USER,
        created_at=now - timedelta(minutes=1),
    )
    return study
