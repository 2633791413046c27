from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from studies.actions import StudyRequest, create_study
from studies.control.controller import take_turn
from studies.models import Study, Trial
from tests.factories import set_job
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import cluster, code, given, group

__all__ = ["cluster", "code", "given", "group"]

Create = Callable[..., Study]


@pytest.fixture
def create(alice: User, cluster: Cluster, given: dict[str, Any]) -> Create:
    """Create a study of alice's, with these changes of a request without mistakes."""

    def create(**changes: Any) -> Study:
        wanted = {
            **{name: given[name] for name in ("model", "dataset", "instance_group")},
            "name": "widths",
            "space": {"lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1}, "width": [32, 64, 128]},
            "metric": "loss",
            "goal": "minimize",
            "trials": 4,
            "at_once": 2,
            "options": {"max_slots": 4},
            **changes,
        }
        return create_study(StudyRequest(**wanted), alice)

    return create


def turn(study: Study) -> Study:
    """Give the study a turn, and read it again."""
    take_turn(study.pk, timezone.now())
    study.refresh_from_db()
    return study


def end(trial: Trial, state: str = "SUCCEEDED", **columns: Any) -> None:
    """End the trial's training, as the control plane would."""
    assert trial.job is not None
    set_job(trial.job, state=state, finished_at=timezone.now(), **columns)
