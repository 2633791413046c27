import json
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from jobs.files.job_folder import job_folder
from jobs.models import InstanceGroup, Job, MetricPoint
from jobs.states import Reason
from studies import actions
from studies.control.controller import active_studies, take_turn
from studies.models import Study, Trial
from studies.topics import study_topic
from tests.studies.conftest import Create, end, turn


def running(study: Study) -> list[Trial]:
    return list(study.trials.filter(state=Trial.State.RUNNING).select_related("job__run").order_by("number"))


def test_trials_are_ordinary_trainings_with_their_values(create: Create) -> None:
    study = turn(create())
    first, second = running(study)
    assert first.values != second.values
    assert first.job is not None
    assert first.job.parameters == first.values
    assert (first.job.min_slots, first.job.max_slots, first.job.bundle) == (1, 4, study.pk)
    assert first.job.name == "widths #0"
    code = job_folder(first.job).code
    assert json.loads((code / "config.json").read_text()) == first.values
    told = json.loads((code / "tidepool-trial.json").read_text())
    assert told == {"study": study.pk, "name": "widths", "number": 0, "params": first.values}


def test_no_more_trials_are_submitted_than_at_once(create: Create) -> None:
    study = create()
    for _ in range(3):
        turn(study)
    assert study.trials.count() == 2


def test_an_end_makes_room_and_the_last_one_finishes_the_study(create: Create) -> None:
    study, losses = create(trials=3), iter([0.5, 0.2, 0.3])
    for _ in range(5):
        turn(study)
        for trial in running(study):
            end(trial, final_metrics={"loss": next(losses)})
    assert study.state == Study.State.FINISHED
    assert [trial.value for trial in study.trials.order_by("number")] == [0.5, 0.2, 0.3]
    assert study.reason.startswith("All 3 trials are over. Trial 1 is the best: its last loss, 0.2, is the lowest (lr ")
    assert not active_studies().exists()


def test_the_same_rows_ask_for_the_same_values_after_the_controller_died(create: Create) -> None:
    first, second = create(seed=7), create(seed=7)
    for study in (first, second):
        turn(study)
    end(running(first)[0], final_metrics={"loss": 0.4})
    with patch("studies.control.controller._submit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        turn(first)
    end(running(second)[0], final_metrics={"loss": 0.4})
    for study in (first, second):
        turn(study)
    assert [trial.values for trial in first.trials.all()] == [trial.values for trial in second.trials.all()]
    assert first.trials.count() == 3


def test_a_study_that_another_controller_has_claimed_is_left_alone(create: Create) -> None:
    study = create()
    Study.objects.filter(pk=study.pk).update(claim="another", claimed_until=timezone.now() + timedelta(minutes=1))
    assert not take_turn(study.pk, timezone.now())
    assert not study.trials.exists()


def test_a_failure_keeps_the_error_and_three_pause(create: Create) -> None:
    study = create(trials=10)
    for _ in range(3):
        turn(study)
        [trial, *_] = running(study)
        error = {"kind": "KeyError", "message": "'x'", "traceback": ""}
        end(trial, "FAILED", error=error, reason_code=Reason.EXIT_NONZERO)
    turn(study)
    assert study.state == Study.State.PAUSED
    assert study.reason == "3 trials in a row failed with an error of the script: KeyError: 'x'"
    assert study.trials.filter(state=Trial.State.FAILED, is_script_error=True).count() == 3


def test_a_lost_host_repeats_the_same_values_once(create: Create) -> None:
    study = turn(create(trials=2))
    lost = running(study)[0]
    end(lost, "FAILED", reason_code=Reason.HOST_LOST)
    turn(study)
    [again] = study.trials.filter(origin=Trial.Origin.REPEAT)
    assert (again.values, again.repeats) == (lost.values, lost)
    end(again, "FAILED", reason_code=Reason.HOST_LOST)
    turn(study)
    assert study.trials.filter(origin=Trial.Origin.REPEAT).count() == 1


def test_a_metric_that_no_trial_reports_pauses_with_those_that_were(create: Create) -> None:
    study = turn(create(metric="acc"))
    end(running(study)[0], final_metrics={"loss": 0.1, "accuracy": 97.0})
    turn(study)
    assert study.state == Study.State.PAUSED
    assert study.reason == "No trial reports acc. Reported were accuracy, loss."


def test_the_file_for_wmla_gives_the_value_of_a_plain_script(create: Create) -> None:
    study = turn(create())
    trial = running(study)[0]
    assert trial.job is not None
    folder = job_folder(trial.job).attempt(trial.job.run.attempt)
    folder.mkdir(parents=True)
    (folder / "val_dict_list.json").write_text('[{"steps": 1, "loss": 0.9}, {"steps": 2, "loss": 0.4}]')
    end(trial)
    turn(study)
    trial.refresh_from_db()
    assert (trial.state, trial.value) == (Trial.State.COMPLETE, 0.4)


def test_a_refused_training_pauses_the_study(create: Create, group: InstanceGroup) -> None:
    study = create()
    InstanceGroup.objects.filter(pk=group.pk).update(state=InstanceGroup.State.REGISTERED)
    turn(study)
    assert study.state == Study.State.PAUSED
    assert study.reason.startswith("Trial 0 cannot be submitted: ")
    assert not Job.objects.exists()


def test_a_time_limit_finishes_and_stops_what_runs(create: Create) -> None:
    study = turn(create(minutes=1))
    Study.objects.filter(pk=study.pk).update(created_at=timezone.now() - timedelta(minutes=2))
    for _ in range(3):
        turn(study)
    assert study.state == Study.State.FINISHED
    assert study.reason == "Its time limit of 1 min 0 s is over. No trial has a value."
    assert set(study.trials.values_list("state", "job__state")) == {("FAILED", "CANCELLED")}


def test_asha_prunes_who_is_behind_at_a_rung(create: Create) -> None:
    study = turn(create(pruner="asha", trials=9, at_once=4))
    values = [0.1, 0.2, 0.3, 0.9]
    for trial, value in zip(running(study), values, strict=True):
        assert trial.job is not None
        MetricPoint.objects.create(job=trial.job, name="loss", step=10, epoch=0, value=value, at=timezone.now())
        Job.objects.filter(pk=trial.job.pk).update(state="RUNNING")
        trial.job.run.step, trial.job.run.progress = 10, 0.05
        trial.job.run.save()
    turn(study)
    pruned = list(study.trials.filter(state=Trial.State.PRUNED).order_by("number"))
    # The first one was the best when it was judged, and each later one is compared with those before.
    assert [trial.number for trial in pruned] == [1, 2, 3]
    assert pruned[-1].why == "0.9 after 1/27 is not among the best third of 4 (0.1)."
    assert pruned[-1].reported == [[pytest.approx(1 / 27), 0.9]]
    assert pruned[-1].job is not None
    assert (pruned[-1].job.state, pruned[-1].job.reason_code) == ("CANCELLING", Reason.PRUNED)
    assert pruned[-1].job.reason_text == f"Stopped by its study: {pruned[-1].why}"


def test_results_for_nni_are_counted_where_progress_is_unknown(create: Create) -> None:
    """Complete trials have reported ten results each, so a trial is judged after its first, its second and so on.

    The first one is complete before anybody knows how many there are.
    """
    study = turn(create(pruner="median", trials=7, at_once=7, dialect="nni", metric="default"))
    *others, last = running(study)
    for place, trial in enumerate(others):
        report(trial, *[0.5 + place] * 10)
        turn(study)  # judges it
        end(trial, final_metrics={"default": 0.5 + place})
        turn(study)
    report(last, 99.0, 99.0)
    turn(study)
    last.refresh_from_db()
    assert (last.state, last.reported) == (Trial.State.PRUNED, [[0.1, 99.0]])
    assert last.why == "99 after 1/10 is worse than the median of 5 finished trials (3.5)."


def report(trial: Trial, *values: float) -> None:
    """Store intermediate results, as those that a plain script reports to `nni`."""
    assert trial.job is not None
    now = timezone.now()
    MetricPoint.objects.bulk_create(
        MetricPoint(job=trial.job, name="default", step=step, epoch=0, value=value, at=now)
        for step, value in enumerate(values, start=1)
    )
    Job.objects.filter(pk=trial.job.pk, state="QUEUED").update(state="RUNNING")
    trial.job.run.step = len(values)
    trial.job.run.curve_sources = {"default": {"kind": "library", "where": "journal/nni.jsonl"}}
    trial.job.run.save()


def test_each_change_is_published_to_the_page(create: Create) -> None:
    from core.live import current_seqs

    study = create()
    before = study.revision
    turn(study)
    assert study.revision > before
    assert current_seqs([study_topic(study.pk)])[study_topic(study.pk)] > 0
    published = current_seqs([study_topic(study.pk)])
    turn(study)
    assert current_seqs([study_topic(study.pk)]) == published


def test_queued_trials_come_before_the_samplers(create: Create, alice: User) -> None:
    study = create(at_once=1)
    actions.enqueue(alice, study.pk, [{"lr": 0.01, "width": 64}])
    turn(study)
    [trial] = running(study)
    assert (trial.values, trial.origin) == ({"lr": 0.01, "width": 64}, Trial.Origin.USER)
    assert study.trials_wanted == 5
