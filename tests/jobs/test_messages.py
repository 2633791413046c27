"""Each sentence is rendered from params of a row; who reads it sees numbers in the right form."""

from typing import Any

import pytest

from jobs.messages import SENTENCES, message, text_of, tried

OTHER = {"job": 2, "name": "T2", "slots": 2, "priority": 10000, "min_slots": 1, "max_slots": 4}
STRANGER = {**OTHER, "who": "stranger"}
del STRANGER["name"]
SHARE = {"target": 3, "capacity": 8, "missing": 0, "priority": 5000, "min_slots": 1, "max_slots": 8}
GROUP = {"group_room": 2, "group_total": 8, "group_weight": 1, "group_quota": 2, "group_deserved": 2.5}
KIND = {"kind": "A100", "other_kind": "T4", "moves_to_kind": False, "kind_assumed": False}
GIVERS = {"givers": [{"job": 2, "name": "T2", "slots": 1}], "givers_count": 1, "givers_slots": 1}
BY = {"by": "alice"}
END = {"host": "a", "code": 1, "signal": None, "error": "ValueError: bad"}

#: Key -> params, and the sentence.
SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "fixed": ({**SHARE, "max_slots": 3}, "3 of 8 GPUs: it runs on exactly 3."),
    "maximum": ({**SHARE, "capacity": 1}, "3 of 1 GPU: the most it asks for is 8."),
    "alone": (
        {**SHARE, **GROUP, **GIVERS, "missing": 1, "moving_off": ["h1"], "leaving": ["h2", "h3"]},
        "3 of 8 GPUs: all there are; its group has 2 of 8 GPUs, by its quota of 2 and its weight of 1; moves off h1; "
        "leaves h2 and h3 once other GPUs are free; 1 of them is being given back by T2.",
    ),
    "by_priority": (
        {**SHARE, "others_count": 2, "sharing_count": 1, "shared": 5, "total_priority": 10000},
        "3 of 8 GPUs: 5 of them are shared by priority with 1 other training (5000 of 10000 in all); the rest have the "
        "least or the most that they can have.",
    ),
    "compared": (
        {**SHARE, "others": [STRANGER]},
        "3 of 8 GPUs: another user's training has twice your priority (10000 to 5000).",
    ),
    "others_maximum": (
        {**SHARE, "others_count": 2, "others_slots": 5},
        "3 of 8 GPUs: the most the 2 other trainings can use is 5.",
    ),
    "others_limits": (
        {**SHARE, "others_count": 2, "others_slots": 5},
        "3 of 8 GPUs: 2 other trainings have 5, each the least or the most that it can have.",
    ),
    "limited": (
        {**SHARE, "floor": 3, "before": 5},
        "3 of 8 GPUs: it keeps 3 of the 5 that it had, as its group gives GPUs back.",
    ),
    "below_minimum": ({**SHARE, "min_slots": 4}, "3 of 8 GPUs: it keeps what it has, though it needs 4."),
    "others_have": ({**SHARE, "others_count": 1, "others_slots": 5, "others": [OTHER]}, "3 of 8 GPUs: T2 has 5."),
    "floor": ({**SHARE, "floor": 3}, "3 of 8 GPUs: the least it needs is 3."),
    "floor_of_other": ({**SHARE, "floor": 5, "others": [OTHER]}, "3 of 8 GPUs: the least T2 needs is 5."),
    "kept": ({**SHARE, "floor": 3}, "3 of 8 GPUs: it keeps 3, as preemption is off."),
    "protected": (
        {**SHARE, "minimum_run_seconds": 60},
        "3 of 8 GPUs: kept, as its group stops no training in its first 60 s.",
    ),
    "kept_of_other": ({**SHARE, "floor": 5, "others": [OTHER]}, "3 of 8 GPUs: T2 keeps 5, as preemption is off."),
    "goodput": (
        {
            **SHARE,
            **KIND,
            "kind_faster": -20,
            "moves_to_kind": True,
            "kind_assumed": True,
            "next": 4,
            "faster": 12,
            "other_more": 1,
            "other_faster": 41,
            "others": [OTHER],
        },
        "3 of 8 GPUs: 4 would make it 12 % faster, and the last 1 GPU of T2 make that one 41 % faster; "
        "it moves to A100, where it is 20 % slower than on as many T4, as is assumed.",
    ),
    "knee": (
        {**SHARE, **KIND, "kind_faster": 0, "least_gain": 5},
        "3 of 8 GPUs: more would make it at most 5 % faster; it is on A100, where it is as fast as on as many T4.",
    ),
    "whole_hosts": ({**SHARE, "host": 4}, "3 of 8 GPUs: beyond the 4 of a host it is offered whole hosts."),
    "measured_on": (
        {**SHARE, "measured": 2},
        "3 of 8 GPUs: it was measured on 2 at most, and is offered four times as many.",
    ),
    "unmeasured": (SHARE, "3 of 8 GPUs: nothing was measured yet of how fast it is on more."),
    "ahead": ({**SHARE, "others": [OTHER]}, "3 of 8 GPUs: T2 waits before it for 1 GPU."),
    "pinned": (
        {"target": 2, "hosts": ["h1", "h2", "h3"], "min_slots": 2, "elastic": True},
        "2 GPUs: stays, though 3 hosts take nothing new, because its minimum of 2 fits nowhere else.",
    ),
    "reclaimed": (
        {"before": 1, "continues": False, "loses_minutes": 9},
        "Stops for now and gives back 1 GPU: other groups are entitled to it; others of its group's GPUs are free "
        "for it; it will begin again from nothing, unless its script saves now.",
    ),
    "stopped_by_priority": (
        {"before": 2, "priority": 7000, "others": [OTHER], "continues": True, "loses_minutes": 9},
        "Stops for now and gives back 2 GPUs: T2 has a higher priority than yours (10000 to 7000); at most 9 "
        "GPU-minutes of work since its last checkpoint are lost.",
    ),
    "gave_way": (
        {"before": 2, "priority": 7000, "others": [OTHER]},
        "Stops for now and gives back 2 GPUs: they are reserved for T2, which comes first and needs "
        f"{OTHER['min_slots']} GPU{'s' * (OTHER['min_slots'] > 1)}.",
    ),
    "held_back_for": (
        {"min_slots": 1, "reserved": 6, "reserved_at": 0, "first": OTHER},
        "Waits: T2 comes first and needs 6 GPUs at once, which are kept for it from 01 Jan 00:00 UTC at the latest.",
    ),
    "closed": (
        {"group": "vision"},
        "Waits: its instance group vision is stopped, and nothing starts there until it is started.",
    ),
    "given_back": (
        {"one_host": True, "missing": 3, "target": 4, **GIVERS, "givers_count": 9, "givers_slots": 2},
        "Waits: 2 of 4 GPUs are being given back by 9 trainings; 1 of 4 GPUs is not free yet, on one host.",
    ),
    "one_host": (
        {"min_slots": 4, "most": 3},
        "Waits for 4 GPUs on one host: the most for it on any is 3.",
    ),
    "too_large": ({"min_slots": 5, "capacity": 4}, "Needs 5 GPUs at once: its group has 4 to share now."),
    "behind": ({"priority": 5000, "others": [OTHER]}, "Waits behind T2, which came first and needs 1 GPU."),
    "behind_priority": (
        {"priority": 5000, "others": [OTHER]},
        "Waits behind T2, which has a higher priority (10000 to 5000) and needs 1 GPU.",
    ),
    "in_line": (
        {"missing": 1, "min_slots": 3, "taken": 6, "capacity": 8},
        "Waits for 1 more GPU: it needs 3, and 6 of 8 are taken.",
    ),
    "in_line_for_minimums": (
        {"missing": 2, "min_slots": 4, "taken": 6, "capacity": 8},
        "Waits for 2 more GPUs: it needs 4, and 6 of 8 are the least that other trainings need.",
    ),
    "submitted": ({}, "Submitted; the scheduler looks for GPUs."),
    "cancelled": ({}, "Cancelled; all its processes have ended."),
    "cancelled_by": (BY, "Cancelled by alice."),
    "cancelling": (BY, "alice cancels it; its processes are told to end."),
    "suspended": (BY, "alice holds it back."),
    "suspended_with_grace": (
        {**BY, "seconds": 10},
        "alice holds it back. Its script gets SIGTERM and 10 s to save.",
    ),
    "resumed": (BY, "alice lets it continue."),
    "hidden": (BY, "alice deletes it for clients of WMLA's interface. It stays here, with what it used."),
    "changed": (
        {**BY, "field": "priority", "old": 1, "new": 2, "undoes": 3},
        "alice undoes a change: the priority goes from 1 back to 2.",
    ),
    "workers_beyond_group": (
        {"workers": 9, "group": "g", "capacity": 4, "max_slots": 4},
        "9 workers were asked for, but g has 4 GPUs: at most 4.",
    ),
    "workers_of_one_process": (
        {"workers": 9, "framework": "Keras", "max_slots": 1},
        "9 workers were asked for, but Keras runs one process: at most 1.",
    ),
    "no_most_workers": (
        {"max_slots": 4, "group": "g"},
        "No maximum of workers was given: at most 4, the GPUs of g, whatever larger number the script asks for.",
    ),
    "without_effect": ({"options": "--a, --b"}, "Without effect here: --a, --b."),
    "started": ({"slots": 1, "target": 1}, "Training runs on 1 of 1 GPU."),
    "restored": (
        {"step": 0, "from_nothing": True, "unusable": ["it is corrupt"]},
        "Training starts from the beginning, because a newer checkpoint cannot be used: it is corrupt.",
    ),
    "rank_lost": ({}, "A rank was lost; the others train on."),
    "rank_stuck": (
        {"member_id": "a.0.1", "host": "a", "why": "silent for 61 s", "seconds": 61.0},
        "The rank a.0.1 on a is killed: silent for 61 s. The others train on.",
    ),
    "rank_failed": (
        {"member_id": "a.0.1", "host": "a", "step": None, "error": "ValueError: bad", "traceback": ""},
        "The script failed in the rank a.0.1 on a before it took part: ValueError: bad. The others train on.",
    ),
    "no_progress": ({"text": "No step for {301} s."}, "No step for {301} s."),
    "copies": (
        {"attempt": 1, "live": 4, "ended": 0, "minutes": 10.0},
        "Its 4 processes have formed no process group within a minute: as far as can be seen they are 4 copies of the "
        "script, each of which does all the work. Call torch.distributed.init_process_group, or train it on 1 GPU.",
    ),
    "ranks_stay": (
        {"attempt": 1, "live": 1, "ended": 3, "minutes": 10.0},
        "3 processes have ended with exit code 0, and 1 process stays. What is left 10 minutes after the first end is "
        "told to end, and killed. Are its results complete? Then stop it now: until then it holds its GPUs.",
    ),
    "ranks_may_stay": (
        {"by": "alice", "attempt": 1, "seconds": 3600.0, "until": 1.0},
        "alice lets the processes that stay after others have ended go on for 1 h 0 min more, and the training with "
        "them: it holds its GPUs until then.",
    ),
    "ranks_overdue": (
        {"attempt": 1, "live": 2, "ended": 1, "minutes": 0.5},
        "2 processes were still there 0.5 minutes after another one of the group had ended with exit code 0: what is "
        "left is told to end. What was written stays.",
    ),
    "host_lost": ({"host": "a"}, "The host a does not report any more."),
    "environment_building": (
        {"host": "a", "requirements": "timm\nwandb>=1"},
        "What it requires is installed on a: timm, wandb>=1.",
    ),
    "environment_failed": (
        END,
        "What it requires could not be installed on a: ValueError: bad. Its log says all; correct its requirements and "
        "clone it.",
    ),
    "checkpoint_failed": (
        {"step": 3, "error": "disk full"},
        "No checkpoint could be written at step 3: disk full. The training goes on, and older checkpoints stay.",
    ),
    "profile_refused": (
        {"why": "step_seconds is nan"},
        "How long its steps take is not recorded any more: step_seconds is nan. The training goes on.",
    ),
    "report_set_aside": (
        {"host": "gpu-1", "kind": "metric", "number": 7, "error": "DataError: value too long"},
        "Something that gpu-1 reported cannot be stored and is set aside (metric, number 7): DataError: value "
        "too long. What it reports besides is stored. Administrators see all of it on Hosts.",
    ),
    "report_lost": (
        {"host": "gpu-1", "kind": "exited", "number": 7, "error": "DataError: value too long"},
        "What gpu-1 reported of its processes cannot be stored (exited, number 7: DataError: value too long), so "
        "nobody knows what has become of it. Its files and checkpoints stay: clone it, or continue from a checkpoint, "
        "once an administrator has seen to it.",
    ),
    "batch_refused": (
        {"kind": "A100", "samples": 64, "limit": 32},
        "A micro-batch of 64 samples does not fit into the memory of A100: from its next start on it computes at most "
        "32 of them at once.",
    ),
    "size_shows": (
        {"layers": ["BatchNorm2d", "Dropout"], "before": 1, "slots": 2},
        "From here on its curves may differ from those of an undisturbed run by more than rounding: its code has "
        "BatchNorm2d, Dropout, whose results depend on how many GPUs there are (1 before, 2 now). Exactness bitwise "
        "gives the same bits on any number.",
    ),
    "batch_pinned": (
        {"batch_size": 64},
        "The loss has risen since the batch grew: it stays at the 64 samples of its submission.",
    ),
    "halted": (
        {"step": 3},
        "Stopped after step 3, with a checkpoint of it: no step is lost, and it will continue there.",
    ),
    "halt_timeout": (
        {"step": None},
        "It did not stop by itself in time, so its processes are told to end. It will continue from the beginning, "
        "for it has no checkpoint.",
    ),
    "trained": ({"step": 1, "epoch": 2}, "Trained to the end: 1 step, 2 epochs; the final weights are written."),
    "measured": ({"step": 1, "epoch": 1}, "Measured on the held-out samples; the result is written."),
    "complete": ({}, "The training is complete."),
    "ended_early": (
        {"step": 3},
        "The script ended by itself on all ranks after step 3, before its last epoch.",
    ),
    "failed": (
        {**END, "tried": "same_error", "attempts": 2, "step": 7},
        "The script failed on a: ValueError: bad. Tried 2 times: the same error, and no step after step 7.",
    ),
    "failed_once": (END, "The script failed on a: ValueError: bad. It starts again from its last checkpoint."),
    "ranks_lost": (
        {"signals": [9, 15], "fruitless_starts": 1, "resumable": False},
        "All its ranks were killed (signal 9, 15); it starts again from its last checkpoint, or from the beginning.",
    ),
    "ranks_lost_too_often": (
        {"signals": [], "fruitless_starts": 3},
        "All its ranks were killed before the first step, 3 times in a row.",
    ),
    "gang_lost": (
        {"signals": [9], "fruitless_starts": 1, "resumable": True},
        "A rank was killed (signal 9), so all of them end; it continues from its CHECKPOINT_DIR, as far as its script "
        "reads that.",
    ),
    "gang_lost_too_often": (
        {"signals": [9], "fruitless_starts": 3},
        "A rank was killed (signal 9), 3 times in a row without a new file in CHECKPOINT_DIR.",
    ),
    "limit_near": (
        {"max_seconds": 3600, "seconds": 300, "grace": None},
        "It has held GPUs for nearly as long as it may (1 h 0 min): in 5 min 0 s it stops after the step under way, "
        "with a checkpoint, and is held back.",
    ),
    "limit_reached": (
        {"max_seconds": 3600, "grace": 10},
        "It has held GPUs for as long as it may (1 h 0 min): its script gets SIGTERM and 10 s to save, and is held "
        "back; what it has not saved in its CHECKPOINT_DIR by then is lost.",
    ),
    "limit_held_back": ({}, "Stopped at its limit; resume it to let it continue, for as long again."),
    "gang_limit_held_back": (
        {"resumable": True},
        "Stopped at its limit; once it is resumed, it continues from its CHECKPOINT_DIR, as far as its script reads "
        "that.",
    ),
    "held_back": ({}, "Held back; resume it to let it continue."),
    "gang_held_back": (
        {"resumable": True},
        "Held back; once it is resumed, it continues from its CHECKPOINT_DIR, as far as its script reads that.",
    ),
    "stopped": ({}, "Stopped; it continues once slots are free for it."),
    "gang_stopped": (
        {"resumable": True},
        "Stopped; once GPUs are free for it, it continues from its CHECKPOINT_DIR, as far as its script reads that.",
    ),
    "stack_stopping": ({}, "Tidepool is being stopped; the training goes on at its next start."),
    "stack_stopped": ({}, "Tidepool was stopped; the training starts again from its last checkpoint."),
    "stack_stopped_gang": (
        {"resumable": False},
        "Tidepool was stopped; it starts again from nothing, for its script has left nothing that it said can be "
        "resumed; its working folder stays as it is.",
    ),
    "stack_stopped_held_back": ({}, "Held back; all its processes have ended."),
}


def test_every_message_has_a_sample() -> None:
    assert SAMPLES.keys() == SENTENCES.keys()


@pytest.mark.parametrize("key", SAMPLES)
def test_the_sentence_of_a_message(key: str) -> None:
    params, sentence = SAMPLES[key]
    assert text_of(message(key, **params)) == sentence


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("", ""),
        ("twice_in_two_ranks", "The same error came twice after step 7, in two ranks."),
        ("training_complete", "The training itself was complete."),
        ("restarts_used_up", "It was started again 10 times after errors."),
        ("always_an_error", "Tried 3 times: always an error, and no step after 7."),
    ],
)
def test_how_often_it_was_tried(key: str, sentence: str) -> None:
    assert tried({"tried": key, "step": 7, "attempts": 3, "restarts": 10}) == sentence


def test_without_a_reason_there_is_no_sentence() -> None:
    assert text_of({}) == ""
