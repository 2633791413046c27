"""Copies of studies in a database for Optuna, opened by Optuna itself."""

import math
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import optuna
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from studies.control.changes import changed
from studies.copying import OptunaCopies, copied_study, copy_due, copy_name, copy_problem
from studies.models import OptunaCopy, Study, Trial
from tests.html import html_of
from tests.studies.conftest import Create

pytestmark = pytest.mark.django_db(transaction=True)

SPACE = {
    "lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.1},
    "drop": {"kind": "uniform", "low": 0.0, "high": 0.5, "step": 0.1},
    "layers": {"kind": "int", "low": 1, "high": 8},
    "width": [32, 64, 128],
    "fixed": 3,
}
DISTRIBUTIONS = {
    "lr": FloatDistribution(1e-4, 0.1, log=True),
    "drop": FloatDistribution(0.0, 0.5, step=0.1),
    "layers": IntDistribution(1, 8),
    "width": CategoricalDistribution((32, 64, 128)),
}


#: Storages of the test that are to be closed.
_OPENED: list[RDBStorage] = []


def close_storages() -> None:
    while _OPENED:
        storage = _OPENED.pop()
        storage.remove_session()
        storage.engine.dispose()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_storages()


@pytest.fixture
def url(tmp_path: Path, settings: Any) -> str:
    settings.TIDEPOOL_OPTUNA_URL = f"sqlite:///{tmp_path}/optuna.sqlite3"
    return str(settings.TIDEPOOL_OPTUNA_URL)


@pytest.fixture
def postgresql(settings: Any) -> Iterator[str]:
    """Return the address of a schema for Optuna in the database of the tests."""
    given = connection.settings_dict
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA optuna")
    user, password = (quote(given.get(name) or "", safe="") for name in ("USER", "PASSWORD"))
    place = f"{user}:{password}@" if password else f"{user}@"
    host = f"{given['HOST'] or '127.0.0.1'}:{given['PORT'] or 5432}"
    settings.TIDEPOOL_OPTUNA_URL = (
        f"postgresql://{place}{host}/{quote(str(given['NAME']))}?options=-csearch_path%3Doptuna"
    )
    yield settings.TIDEPOOL_OPTUNA_URL.replace("postgresql:", "postgresql+psycopg:")
    close_storages()
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA optuna CASCADE")


@pytest.fixture
def study(create: Create) -> Study:
    return create(space=SPACE, trials=20)


def values(number: int) -> dict[str, Any]:
    return {"lr": 0.01 / (number + 1), "drop": 0.3, "layers": 1 + number, "width": 64, "fixed": 3}


def add(study: Study, number: int, state: str, value: float | None = None, **columns: Any) -> Trial:
    now = timezone.now()
    is_over = state not in (Trial.State.WAITING, Trial.State.RUNNING)
    columns = {"values": values(number), "created_at": now, "finished_at": now if is_over else None, **columns}
    made = Trial.objects.create(study=study, number=number, state=state, value=value, **columns)
    changed(study.pk)
    return made


def four_trials(study: Study) -> None:
    add(study, 0, "COMPLETE", 0.5, reported=[[1 / 27, 2.0], [1 / 9, 1.0]])
    add(study, 1, "PRUNED", 3.5, reported=[[1 / 27, 3.5]])
    add(study, 2, "FAILED", reported=[[1 / 27, None]])
    add(study, 3, "COMPLETE", 0.25)


def loaded(study: Study, url: str) -> optuna.Study:
    storage = RDBStorage(url)
    _OPENED.append(storage)
    return optuna.load_study(study_name=copy_name(study), storage=storage)


def told(trial: FrozenTrial) -> tuple[Any, ...]:
    """Return the parts of a trial that must be equal, with a NaN that equals itself."""
    seen = {step: "nan" if math.isnan(value) else value for step, value in trial.intermediate_values.items()}
    return trial.number, trial.state, trial.values, trial.params, trial.distributions, seen


def made_by_optuna() -> list[FrozenTrial]:
    """Return the trials of `four_trials` as a study of Optuna's own has them."""
    study = optuna.create_study()
    for number, (state, value, seen) in enumerate(
        [
            (TrialState.COMPLETE, 0.5, {37037: 2.0, 111111: 1.0}),
            (TrialState.PRUNED, 3.5, {37037: 3.5}),
            (TrialState.FAIL, None, {37037: math.nan}),
            (TrialState.COMPLETE, 0.25, {}),
        ]
    ):
        params = {name: each for name, each in values(number).items() if name != "fixed"}
        given = {"params": params, "distributions": DISTRIBUTIONS, "intermediate_values": seen}
        study.add_trial(create_trial(state=state, value=value, **given))
    return study.trials


def equal_trials(study: Study, url: str) -> None:
    four_trials(study)
    assert copied_study(study.pk, timezone.now()), copy_problem()
    copy = loaded(study, url)
    assert [told(trial) for trial in copy.trials] == [told(trial) for trial in made_by_optuna()]
    assert (copy.best_trial.number, copy.best_value, copy.direction.name) == (3, 0.25, "MINIMIZE")
    assert copy.trials[0].user_attrs["tidepool:values"] == values(0)


def test_optuna_opens_a_copy_with_equal_trials(study: Study, url: str) -> None:
    equal_trials(study, url)


@pytest.mark.services
def test_so_it_does_on_postgresql(study: Study, postgresql: str) -> None:
    assert connection.vendor == "postgresql"
    equal_trials(study, postgresql)
    copied_study(study.pk, timezone.now())
    assert len(loaded(study, postgresql).trials) == 4


def test_a_repeated_copy_and_one_after_a_restart_add_nothing(study: Study, url: str) -> None:
    four_trials(study)
    for _ in range(2):
        copied_study(study.pk, timezone.now())
    OptunaCopy.objects.all().delete()  # nothing is known of the former copy
    copied_study(study.pk, timezone.now())
    assert [trial.number for trial in loaded(study, url).trials] == [0, 1, 2, 3]


def test_a_copy_that_died_between_two_trials_is_completed(study: Study, url: str) -> None:
    four_trials(study)
    make, count = RDBStorage.create_new_trial, []

    def dies(*args: Any, **given: Any) -> int:
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt
        return make(*args, **given)

    with patch.object(RDBStorage, "create_new_trial", dies), pytest.raises(KeyboardInterrupt):
        copied_study(study.pk, timezone.now())
    assert len(loaded(study, url).trials) == 2
    assert not copied_study(study.pk, timezone.now()), "its claim lasts a while"
    assert copied_study(study.pk, timezone.now() + timedelta(minutes=6))
    assert [told(trial) for trial in loaded(study, url).trials] == [told(trial) for trial in made_by_optuna()]


def test_a_trial_that_trains_has_its_place_and_is_finished_in_its_turn(study: Study, url: str) -> None:
    slow = add(study, 0, "RUNNING", reported=[[1 / 27, 2.0]])
    add(study, 1, "COMPLETE", 0.5)
    add(study, 2, "RUNNING")
    copied_study(study.pk, timezone.now())
    assert [trial.state.name for trial in loaded(study, url).trials] == ["RUNNING", "COMPLETE"]
    Trial.objects.filter(pk=slow.pk).update(
        state="COMPLETE", value=0.1, finished_at=timezone.now(), reported=[[1 / 27, 2.0], [1 / 9, 1.0]]
    )
    changed(study.pk)
    copied_study(study.pk, timezone.now())
    first, second = loaded(study, url).trials
    assert (first.value, second.value) == (0.1, 0.5)
    assert first.intermediate_values == {37037: 2.0, 111111: 1.0}


def test_a_trial_that_was_tried_again_is_copied_anew(study: Study, url: str) -> None:
    add(study, 0, "COMPLETE", 0.5)
    stopped = add(study, 1, "FAILED")
    copied_study(study.pk, timezone.now())
    Trial.objects.filter(pk=stopped.pk).update(state="COMPLETE", value=0.2)
    changed(study.pk)
    copied_study(study.pk, timezone.now())
    assert [trial.value for trial in loaded(study, url).trials] == [0.5, 0.2]


def test_values_outside_the_space_are_attributes(study: Study, url: str) -> None:
    add(study, 0, "COMPLETE", 0.5, values={**values(0), "width": 33, "more": "x"})
    copied_study(study.pk, timezone.now())
    [trial] = loaded(study, url).trials
    assert set(trial.params) == {"lr", "drop", "layers"}
    assert trial.user_attrs["tidepool:values"]["width"] == 33


def test_only_changed_studies_are_due_and_not_too_often(study: Study, url: str) -> None:
    add(study, 0, "COMPLETE", 0.5)
    now = timezone.now()
    assert OptunaCopies().has_work()
    copied_study(study.pk, now)
    assert not OptunaCopies().has_work()
    add(study, 1, "COMPLETE", 0.4)
    assert not copy_due(now).exists()
    assert copy_due(now + timedelta(minutes=5)).exists()


def test_an_error_is_told_and_tried_again(study: Study, settings: Any, tmp_path: Path, admin_client: Client) -> None:
    settings.TIDEPOOL_OPTUNA_URL = f"sqlite:///{tmp_path}/missing/optuna.sqlite3"
    add(study, 0, "COMPLETE", 0.5)
    now = timezone.now()
    assert not copied_study(study.pk, now)
    failing = copy_problem()
    assert failing is not None
    assert (failing.problem, failing.failing_since) == ("unable to open database file", now)
    assert "unable to open database file" in html_of(admin_client.get("/"))
    assert "unable to open database file" in html_of(admin_client.get(f"/studies/{study.pk}/"))
    assert not copy_due(now + timedelta(seconds=29)).exists()
    assert copy_due(now + timedelta(seconds=30)).exists()
    (tmp_path / "missing").mkdir()
    assert copied_study(study.pk, now + timedelta(seconds=30))
    assert copy_problem() is None
    assert len(loaded(study, settings.TIDEPOOL_OPTUNA_URL).trials) == 1


def test_a_study_of_somebody_else_is_left_alone(study: Study, url: str, alice: User) -> None:
    add(study, 0, "COMPLETE", 0.5)
    optuna.create_study(study_name=copy_name(study), storage=url)
    loaded(study, url).add_trial(create_trial(value=7.0))
    copied_study(study.pk, timezone.now())
    problem = copy_problem()
    assert problem is not None
    assert problem.problem == f"Optuna's database has another study named {copy_name(study)}."
    assert [trial.value for trial in loaded(study, url).trials] == [7.0]


def test_trials_that_others_add_to_the_copy_stop_it(study: Study, url: str) -> None:
    add(study, 0, "COMPLETE", 0.5)
    copied_study(study.pk, timezone.now())
    loaded(study, url).add_trial(create_trial(value=7.0))
    add(study, 1, "COMPLETE", 0.4)
    assert not copied_study(study.pk, timezone.now())
    problem = copy_problem()
    assert problem is not None
    assert "trials that are not from here" in problem.problem


def test_a_copy_that_was_deleted_is_made_again(study: Study, url: str) -> None:
    add(study, 0, "COMPLETE", 0.5)
    copied_study(study.pk, timezone.now())
    optuna.delete_study(study_name=copy_name(study), storage=url)
    add(study, 1, "COMPLETE", 0.4)
    copied_study(study.pk, timezone.now())
    assert len(loaded(study, url).trials) == 2


def test_a_locked_database_costs_no_turn_of_the_controller(study: Study, url: str) -> None:
    """The copy fails after its time limit; the study's rows are not locked meanwhile."""
    add(study, 0, "COMPLETE", 0.5)
    copied_study(study.pk, timezone.now())
    add(study, 1, "COMPLETE", 0.4)
    with patch("studies.optuna_storage._CONNECT_SECONDS", 0.1), sqlite3.connect(url.removeprefix("sqlite:///")) as held:
        held.execute("BEGIN EXCLUSIVE")
        assert not copied_study(study.pk, timezone.now())
        held.rollback()
    problem = copy_problem()
    assert problem is not None
    assert problem.problem == "database is locked"
