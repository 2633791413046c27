"""A sample of each sentence, rendered from params, with plurals in the right form."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from jobs.messages import SENTENCES, message, text_of
from tests.jobs.plan_samples import OTHER, PLAN_SAMPLES, SHARE, STRANGER, STUDY

BY = {"by": "alice"}
POSITIONS = {"unit": "step", "first": 44, "reached": 45}
END = {"host": "a", "code": 1, "signal": None, "error": "ValueError: bad"}

#: Key -> params, and the sentence.
SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    **PLAN_SAMPLES,
    "submitted": ({}, "Submitted; waiting for the scheduler."),
    "cancelled": ({}, "Cancelled; all its processes have ended."),
    "cancelled_by": (BY, "Cancelled by alice."),
    "cancelling": (BY, "Cancelled by alice; its processes are being terminated."),
    "pruned": (
        {"sentence": "0.41 after 1/9 is not among the best third of 24 (0.33)."},
        "Stopped by its study: 0.41 after 1/9 is not among the best third of 24 (0.33).",
    ),
    "suspended": (BY, "Suspended by alice."),
    "suspended_with_grace": (
        {**BY, "seconds": 10},
        "Suspended by alice. Its script gets SIGTERM and 10 s to save.",
    ),
    "resumed": (BY, "Resumed by alice."),
    "hidden": (BY, "Deleted by alice for clients of WMLA's interface. The training and its usage are kept here."),
    "changed": (
        {**BY, "field": "priority", "old": 1, "new": 2, "undoes": 3},
        "alice changed the priority from 1 back to 2.",
    ),
    "workers_beyond_group": (
        {"workers": 9, "group": "g", "capacity": 4, "max_slots": 4},
        "9 workers were requested, but g has 4 GPUs: the maximum is set to 4.",
    ),
    "workers_of_one_process": (
        {"workers": 9, "framework": "Keras", "max_slots": 1},
        "9 workers were requested, but Keras runs one process: the maximum is set to 1.",
    ),
    "no_most_workers": (
        {"max_slots": 4, "group": "g"},
        "No maximum of workers was given: it is set to 4, the GPUs of g, even if the script requests more.",
    ),
    "model_renamed": (
        {"model": "m-alice", "wanted": "m"},
        "The model is registered as m-alice, because another user has a model named m.",
    ),
    "without_effect": ({"options": "--a, --b"}, "Options without effect here: --a, --b."),
    "started": ({"slots": 1, "target": 1}, "Training runs on 1 of 1 GPU."),
    "restored": (
        {"step": 0, "from_nothing": True, "unusable": ["it is corrupt"]},
        "Training starts from the beginning, because a newer checkpoint cannot be used: it is corrupt.",
    ),
    "continued": (POSITIONS, "It continued at step 44, where the attempt before had reached step 45."),
    "began_anew": (
        POSITIONS,
        "It began at step 44 again, and the attempt before had reached step 45. A script continues if it loads at its "
        "start what it has saved in its working folder or in CHECKPOINT_DIR.",
    ),
    "rank_lost": ({}, "A rank was lost; the other ranks continue."),
    "rank_stuck": (
        {"member_id": "a.0.1", "host": "a", "why": "silent for 61 s", "seconds": 61.0},
        "Rank a.0.1 on a is killed: silent for 61 s. The other ranks continue.",
    ),
    "growth_given_up": (
        {"size": 3, "host": "a", "error": "ValueError: bad"},
        "Two new processes on a failed in the same way: ValueError: bad. The training keeps 3 GPUs and returns the "
        "others. To try again, change its maximum, or suspend and resume it.",
    ),
    "rank_failed": (
        {"member_id": "a.0.1", "host": "a", "step": None, "error": "ValueError: bad", "traceback": ""},
        "The script failed in rank a.0.1 on a before it joined the training: ValueError: bad. The other ranks "
        "continue.",
    ),
    "no_progress": ({"text": "No step for {301} s."}, "No step for {301} s."),
    "copies": (
        {"attempt": 1, "live": 4, "ended": 0, "minutes": 10.0},
        "Its 4 processes did not form a process group within a minute. They are probably 4 copies of the script, "
        "each of which does all the work. Call torch.distributed.init_process_group, or train on 1 GPU.",
    ),
    "ranks_stay": (
        {"attempt": 1, "live": 1, "ended": 3, "minutes": 10.0},
        "3 processes have ended with exit code 0, but 1 process is still running. Processes still running 10 "
        "minutes after the first end are terminated. Until then, the training holds its GPUs: stop it now if its "
        "results are complete.",
    ),
    "ranks_may_stay": (
        {"by": "alice", "attempt": 1, "seconds": 3600.0, "until": 1.0},
        "alice lets the processes that are still running continue for 1 h 0 min more. The training holds its GPUs "
        "until then.",
    ),
    "ranks_overdue": (
        {"attempt": 1, "live": 2, "ended": 1, "minutes": 0.5},
        "2 processes were still running 0.5 minutes after another process had ended with exit code 0, and will be "
        "terminated. Saved files are kept.",
    ),
    "host_lost": ({"host": "a"}, "The host a no longer reports."),
    "gang_host_lost": (
        {"host": "a", "resumable": True},
        "The host a no longer reports, so all ranks are stopped; its script continues from its CHECKPOINT_DIR, if it "
        "reads it.",
    ),
    "lead_moved": (
        {"host": "a", "lead": "b", "seconds": 30.0},
        "a has not been heard from for 30 s: b leads the training from here on.",
    ),
    "held_still": (
        {"host": "a", "gone": ["b", "c"]},
        "a reached neither b and c nor the control plane, so it made no step: either they are back before it gives up, "
        "or the training goes on where most of its hosts are.",
    ),
    "environment_building": (
        {"host": "a", "requirements": "timm\nwandb>=1"},
        "Installing the requirements on a: timm, wandb>=1.",
    ),
    "secrets_failed": ({"error": "no"}, "The training did not start because it could not get its secrets: no."),
    "environment_changed": (
        {"host": "a", "folder": "/opt/envs/vision", "changes": ["timm 1.0 -> 1.1", "more none -> 2.0"]},
        "The folder /opt/envs/vision has changed on a since the training's processes started (timm 1.0 -> 1.1, more "
        "none -> 2.0). They keep what they have loaded, and may fail where they load more. The next attempt runs with "
        "what the folder then holds.",
    ),
    "environment_differs": (
        {"host": "b", "other": "a", "changes": ["numpy 1.26.4 -> 2.1.0"]},
        "b runs the training with other packages than a (numpy 1.26.4 -> 2.1.0). Results may depend on the host, and "
        "ranks with another torch may fail: make the hosts alike.",
    ),
    "environment_failed": (
        END,
        "The training's environment could not be prepared on a: ValueError: bad. See the log for details, correct the "
        "requirements, and clone the training.",
    ),
    "checkpoint_failed": (
        {"step": 3, "error": "disk full"},
        "No checkpoint could be saved at step 3: disk full. The training continues, and older checkpoints are kept.",
    ),
    "gpu_nearly_full": (
        {"host": "gpu-1", "step": 40, "peak": "74 GiB", "limit": "80 GiB", "below": "8 %"},
        "The memory of a GPU on gpu-1 is nearly full: tensors have taken up to 74 GiB of 80 GiB, 8 % below the limit, "
        "first at the rank's step 40. Longer samples or a larger batch could end the training.",
    ),
    "gpu_is_full": (
        {"why": "a.0.1: the GPU's memory is full: make room."},
        "The training could not change its size, and trains on. Rank a.0.1: the GPU's memory is full: make room. It is "
        "tried again.",
    ),
    "profile_refused": (
        {"why": "step_seconds is nan"},
        "Step times are no longer recorded: step_seconds is nan. The training continues.",
    ),
    "report_set_aside": (
        {"host": "gpu-1", "kind": "metric", "number": 7, "error": "DataError: value too long"},
        "A report of gpu-1 cannot be stored and was skipped (metric, number 7): DataError: value too long. Its "
        "other reports are stored. Administrators see the report on Hosts.",
    ),
    "report_lost": (
        {"host": "gpu-1", "kind": "exited", "number": 7, "error": "DataError: value too long"},
        "A report of gpu-1 about the training's processes cannot be stored (exited, number 7: DataError: value too"
        " long), so their state is unknown. Files and checkpoints are kept: ask an administrator, then clone the "
        "training or continue from a checkpoint.",
    ),
    "batch_refused": (
        {"kind": "A100", "samples": 64, "limit": 32},
        "A micro-batch of 64 samples does not fit into the memory of A100. From the next start, the limit is 32 "
        "samples.",
    ),
    "size_shows": (
        {"layers": ["BatchNorm2d", "Dropout"], "before": 1, "slots": 2},
        "From now on, the curves may differ from those of an undisturbed run by more than rounding: the model has "
        "BatchNorm2d, Dropout, whose results depend on the number of GPUs (1 before, 2 now). Exactness bitwise "
        "gives the same result on any number of GPUs.",
    ),
    "batch_pinned": (
        {"batch_size": 64},
        "The loss has risen since the batch size grew. From now on, it stays at the submitted 64 samples.",
    ),
    "halted": (
        {"step": 3},
        "Stopped after step 3, with a checkpoint. No step is lost, and training will continue from there.",
    ),
    "halt_timeout": (
        {"step": None},
        "The training did not stop in time, so its processes are terminated. It will continue from the beginning, "
        "because it has no checkpoint.",
    ),
    "trained": ({"step": 1, "epoch": 2}, "Training finished after 1 step and 2 epochs. The final weights are saved."),
    "measured": ({"step": 1, "epoch": 1}, "Evaluated on the held-out samples. The result is saved."),
    "complete": ({}, "The training is complete."),
    "no_step": (
        {},
        "The script ended without an error, but it made no step, so nothing has been trained. Check that its loop "
        "has batches: with drop_last, fewer samples than one batch leave none.",
    ),
    "ended_early": (
        {"step": 3},
        "The script ended by itself on all ranks after step 3, before its last epoch.",
    ),
    "failed": (
        {**END, "tried": "same_error", "attempts": 2, "step": 7},
        "The script failed on a: ValueError: bad. Each of 2 attempts failed with the same error, and none got "
        "beyond step 7.",
    ),
    "failed_once": (
        {**END, "step": 7, "saved": 5},
        "The script failed on a: ValueError: bad. In its next attempt, it continues from its checkpoint of step 5: 2 "
        "steps are repeated.",
    ),
    "ranks_lost": (
        {"signals": [9, 15], "fruitless_starts": 1, "step": 1, "saved": None},
        "All ranks were killed (signal 9, 15). In its next attempt, it starts from the beginning, because no "
        "checkpoint was written: 1 step is repeated.",
    ),
    "ranks_lost_too_often": (
        {"signals": [], "fruitless_starts": 3},
        "All ranks were killed before the first step, 3 times in a row.",
    ),
    "gang_lost": (
        {"signals": [9], "fruitless_starts": 1, "resumable": True},
        "A rank was killed (signal 9), so all ranks are stopped; its script continues from its CHECKPOINT_DIR, if "
        "it reads it.",
    ),
    "gang_lost_too_often": (
        {"signals": [9], "memory": "enough", "fruitless_starts": 3},
        "A rank was killed (signal 9, by another process than Tidepool's; the kernel reports no lack of memory), 3 "
        "times in a row without a new file in CHECKPOINT_DIR or a new checkpoint of a library.",
    ),
    "requirements_skipped": (
        {"lines": ["line 1, 'a b': not a requirement.", "line 2, '--pre': not supported."]},
        "Skipped lines of the requirements: line 1, 'a b': not a requirement. line 2, '--pre': not supported.",
    ),
    "runs_exactly": (
        {"job": 412, "attempt": 2, "notes": ["The cluster has more packages than then: timm 1.0."]},
        "Runs what attempt 2 of training 412 ran. The cluster has more packages than then: timm 1.0.",
    ),
    "rank_lingers": (
        {"member_id": "a.0.1", "seconds": 120},
        "The script has ended in rank a.0.1, but a thread or process that it started still runs and holds the GPU. The "
        "rank ends once that has been idle for 2 min 0 s; its log names it. Make it a daemon, or end it with the "
        "script.",
    ),
    "limit_near": (
        {"max_seconds": 3600, "seconds": 300, "grace": None},
        "The training will reach its time limit of 1 h 0 min in 5 min 0 s: it stops after the current step, with a"
        " checkpoint, and is suspended.",
    ),
    "limit_reached": (
        {"max_seconds": 3600, "grace": 10},
        "The training has reached its time limit of 1 h 0 min: its script gets SIGTERM and 10 s to save, and is "
        "suspended; work that it has not saved by then is lost.",
    ),
    "idle_warned": (
        {"seconds": 900, "grace": 300, "elastic": True, "least": 1, "reclaims": True},
        "The training has made no step and used none of its GPUs for 15 min 0 s. In 5 min 0 s, it shrinks to 1 GPU.",
    ),
    "idle_shrinks": (
        {"seconds": 1200, "grace": 300, "elastic": True, "least": 2},
        "The training has used none of its GPUs for 20 min 0 s: it shrinks to its minimum of 2 GPUs. In 5 min 0 s, it"
        " is suspended with a checkpoint.",
    ),
    "idle_halts": (
        {"seconds": 1500, "grace": 300, "elastic": False, "least": 2},
        "The training has used none of its GPUs for 25 min 0 s: it stops, with a checkpoint if its script makes one,"
        " and is suspended.",
    ),
    "idle_kept": ({"by": "alice", "left": 1}, "alice keeps the idle GPUs for an hour. That is possible once more."),
    "host_leaves": (
        {"host": "spot-1", "why": "AWS", "seconds": 27, "elastic": False},
        "spot-1 will be gone soon (AWS), before the training is over: its script gets SIGTERM and 27 s to save, and"
        " waits for GPUs elsewhere.",
    ),
    "limit_held_back": (
        {"step": 8, "saved": 8},
        "Suspended at its time limit. Once resumed, it has the same time again; it continues after step 8, which its "
        "checkpoint holds.",
    ),
    "gang_limit_held_back": (
        {"resumable": True},
        "Suspended at its time limit. Once resumed, its script continues from its CHECKPOINT_DIR, if it reads it.",
    ),
    "held_back": ({"step": 0, "saved": None}, "Suspended. Once resumed, it starts from the beginning."),
    "gang_held_back": (
        {"resumable": True},
        "Suspended. Once resumed, its script continues from its CHECKPOINT_DIR, if it reads it.",
    ),
    "stopped": (
        {},
        "Stopped. When GPUs are free for it, it continues from its last checkpoint, or from the beginning.",
    ),
    "gang_stopped": (
        {"resumable": True},
        "Stopped. When GPUs are free for it, its script continues from its CHECKPOINT_DIR, if it reads it.",
    ),
    "stack_stopping": ({}, "Tidepool is shutting down. The training continues when Tidepool starts again."),
    "stack_stopped": (
        {},
        "Tidepool was shut down. The training restarts from its last checkpoint, or from the beginning.",
    ),
    "stack_stopped_gang": (
        {"resumable": False},
        "Tidepool was shut down; it starts again; what it left in its working folder stays, and many scripts "
        "continue from it.",
    ),
    "stack_stopped_held_back": ({}, "Suspended; all its processes have ended."),
}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({**OTHER, "trainings": 2}, "the study of T2 has twice your priority"),
        ({**STRANGER, "trainings": 2}, "another user's study has twice your priority"),
    ],
)
def test_a_study_is_named_by_one_of_its_trainings(other: dict[str, Any], words: str) -> None:
    assert text_of({"message": "compared", **SHARE, "others": [other]}) == f"3 of 8 GPUs: {words} (10000 to 5000)."


def test_a_study_that_has_nothing_says_so() -> None:
    params = {"message": "study_waits", "capacity": 8, **STUDY, "study_slots": 0, "study_trainings": 0}
    sentence = "Waits: its study waits for its first GPUs, and counts as one training with priority 5000."
    assert text_of(params) == sentence


def test_under_goodput_a_reason_adds_what_the_study_has() -> None:
    params = {"message": "goodput", **SHARE, **STUDY, "next": 4, "faster": 20}
    assert text_of(params) == (
        "3 of 8 GPUs: 4 would make it 20 % faster; its study has 6 GPUs for 5 trainings, and counts as one training "
        "with priority 5000."
    )


def test_every_message_has_a_sample() -> None:
    assert SAMPLES.keys() == SENTENCES.keys()


@pytest.mark.parametrize("key", SAMPLES)
def test_the_sentence_of_a_message(key: str) -> None:
    params, sentence = SAMPLES[key]
    assert text_of(message(key, **params)) == sentence


def test_a_reservation_names_a_duration_not_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    params = {"min_slots": 1, "reserved": 6, "reserved_at": timezone.now().timestamp() + 720, "first": OTHER}
    sentence = "Waits: T2 is first in the queue. 6 GPUs are reserved for T2, and become free within 12 min."
    assert text_of(message("held_back_for", **params)) == sentence


@pytest.mark.parametrize(
    ("error", "end"), [("OSError: disk full.", "full."), ("OSError: disk full...", "full...."), ("x", "x.")]
)
def test_an_error_that_ends_with_a_full_stop_adds_no_second_one(error: str, end: str) -> None:
    sentence = text_of(message("checkpoint_failed", step=3, error=error))
    assert f"{end} The training continues" in sentence


def test_without_a_reason_there_is_no_sentence() -> None:
    assert text_of({}) == ""


def test_a_name_from_right_to_left_does_not_reorder_the_sentence_around_it() -> None:
    ahead = {**OTHER, "name": "אימון (v2)"}
    text = text_of(message("behind", priority=5000, others=[ahead]))
    name = "\N{FIRST STRONG ISOLATE}אימון (v2)\N{POP DIRECTIONAL ISOLATE}"
    assert text == f"Waits behind {name}, which was submitted first and needs 1 GPU."
