"""Samples of the sentences about lines of plans, for `test_messages.py`."""

from typing import Any

__all__ = ["GIVERS", "GROUP", "KIND", "OTHER", "PLAN_SAMPLES", "SHARE", "STRANGER", "STUDY"]

OTHER = {"job": 2, "name": "T2", "slots": 2, "priority": 10000, "min_slots": 1, "max_slots": 4}
STRANGER = {**OTHER, "who": "stranger"}
del STRANGER["name"]
SHARE = {"target": 3, "capacity": 8, "missing": 0, "priority": 5000, "min_slots": 1, "max_slots": 8}
GROUP = {"group_room": 2, "group_total": 8, "group_weight": 1, "group_quota": 2, "group_deserved": 2.5}
KIND = {"kind": "A100", "other_kind": "T4", "moves_to_kind": False, "kind_assumed": False}
STUDY = {"study_slots": 6, "study_trainings": 5, "study_priority": 5000}
GIVERS = {"givers": [{"job": 2, "name": "T2", "slots": 1}], "givers_count": 1, "givers_slots": 1}

#: Key -> params, and the sentence.
PLAN_SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "fixed": ({**SHARE, "max_slots": 3}, "3 of 8 GPUs: it runs on exactly 3."),
    "maximum": ({**SHARE, "capacity": 1}, "3 of 1 GPU: its maximum is 8."),
    "no_host_for_wish": (
        {"min_slots": 2, "most": 1, "cores": 16, "memory": 96 * 1024**3},
        "Needs 2 GPUs with 16 cores and 96 GiB of memory each: no host of the group has so much free beside its GPUs; "
        "at most 1 GPU with that fit on one.",
    ),
    "all_of_kind": (
        {**SHARE, "began_on": "A100"},
        "3 of 8 GPUs: all that its group can use of A100 (exactness bitwise: other models compute other bits).",
    ),
    "one_kind_lacks": (
        {"min_slots": 4, "most": 0, "began_on": "A100"},
        "Waits for 4 GPUs, all A100: its group can use none of them now (exactness bitwise: other models compute other "
        "bits).",
    ),
    "idle": (SHARE, "3 of 8 GPUs: it has used none of its GPUs, so it has its minimum until it makes a step."),
    "newcomers_fail": (
        SHARE,
        "3 of 8 GPUs: new processes of it failed twice with the same error, so it keeps this size.",
    ),
    "alone": (
        {**SHARE, **GROUP, **GIVERS, "missing": 1, "moving_off": ["h1"], "leaving": ["h2", "h3"]},
        "3 of 8 GPUs: all available GPUs; its group has 2 of 8 GPUs, by its quota of 2 and its weight of 1; moves "
        "off h1; leaves h2 and h3 when other GPUs are free; 1 of them is being released by T2.",
    ),
    "by_priority": (
        {**SHARE, "others_count": 2, "sharing_count": 1, "shared": 5, "total_priority": 10000},
        "3 of 8 GPUs: half of the 5 that 2 trainings share by priority (5000 of 10000 in all).",
    ),
    "by_weights": (
        {
            **SHARE,
            "counts": 12,
            "counts_in_all": 40,
            "counts_by_priority": 13.33,
            "jobs_that_share": 2,
            "priorities": 15000,
            "kind": "A100",
            "kind_weight": 4,
            "moves_to_kind": True,
        },
        "3 of 8 GPUs: by the weights of GPU models, they count 12; of the 40 that 2 trainings share, its part by "
        "priority would be 13.33 (5000 of 15000 in all); it moves to A100, each of which counts 4.",
    ),
    "one_kind": (
        {**SHARE, "kind": "", "kind_weight": 0.5, "moves_to_kind": False},
        "3 of 8 GPUs: it uses GPUs of one model, and shares them by weight with no other training; it runs on GPUs of "
        "an unknown model, each of which counts 0.5.",
    ),
    "compared": (
        {**SHARE, "others": [STRANGER]},
        "3 of 8 GPUs: another user's training has twice your priority (10000 to 5000).",
    ),
    "others_maximum": (
        {**SHARE, "others_count": 2, "others_slots": 5},
        "3 of 8 GPUs: the 2 other trainings can use at most 5.",
    ),
    "others_limits": (
        {**SHARE, "others_count": 2, "others_slots": 5},
        "3 of 8 GPUs: 2 other trainings have 5, each its minimum or maximum.",
    ),
    "limited": (
        {**SHARE, "floor": 3, "before": 5},
        "3 of 8 GPUs: it keeps 3 of 5, because its group returns GPUs to other groups.",
    ),
    "below_minimum": ({**SHARE, "min_slots": 4}, "3 of 8 GPUs: it keeps its GPUs, although its minimum is 4."),
    "others_have": ({**SHARE, "others_count": 1, "others_slots": 5, "others": [OTHER]}, "3 of 8 GPUs: T2 has 5."),
    "floor": ({**SHARE, "floor": 3}, "3 of 8 GPUs: its minimum is 3."),
    "floor_of_other": ({**SHARE, "floor": 5, "others": [OTHER]}, "3 of 8 GPUs: the minimum of T2 is 5."),
    "study": (
        {**SHARE, "target": 2, **STUDY},
        "2 of 8 GPUs: its study has 6 GPUs for 5 trainings, and counts as one training with priority 5000.",
    ),
    "study_waits": (
        {"capacity": 2, **STUDY, "study_slots": 1, "study_trainings": 1, **GROUP},
        "Waits: its study has 1 of 2 GPUs for 1 training, and counts as one training with priority 5000; its group has "
        "2 of 8 GPUs, by its quota of 2 and its weight of 1.",
    ),
    "study_shrinks": (
        {"target": 0, "before": 1, "capacity": 8, "loses_minutes": 2, "continues": True, **STUDY},
        "Stops for now and releases 1 GPU: its study has 6 of 8 GPUs for 5 trainings, and counts as one training with "
        "priority 5000; at most 2 GPU-minutes of work since its last checkpoint are lost.",
    ),
    "kept": ({**SHARE, "floor": 3}, "3 of 8 GPUs: it keeps 3, because preemption is off."),
    "protected": (
        {**SHARE, "minimum_run_seconds": 60},
        "3 of 8 GPUs: kept, because its group stops no training in its first 60 s.",
    ),
    "kept_of_other": ({**SHARE, "floor": 5, "others": [OTHER]}, "3 of 8 GPUs: T2 keeps 5, because preemption is off."),
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
        "3 of 8 GPUs: 4 would make it 12 % faster, while the last 1 GPU of T2 makes T2 41 % faster; it moves to "
        "A100, where it is 20 % slower than on as many T4 (estimated).",
    ),
    "knee": (
        {**SHARE, **KIND, "kind_faster": 0, "least_gain": 5, "finish_time_ratio": 2.4, "late_weight": 1.6},
        "3 of 8 GPUs: more would make it at most 5 % faster; it runs on A100, where it is as fast as on as many T4; "
        "it takes 2.4 times as long as with an equal part of all GPUs from the beginning, and so weighs 1.6 times as "
        "much.",
    ),
    "whole_hosts": ({**SHARE, "host": 4}, "3 of 8 GPUs: beyond the 4 GPUs of one host, it gets whole hosts only."),
    "measured_on": (
        {**SHARE, "measured": 2, "hosts": 3, "fewer_hosts": 1, "joined_faster": 12},
        "3 of 8 GPUs: it was measured on at most 2, and gets at most four times as many; it moves from 3 hosts to 1 "
        "host, where it is 12 % faster.",
    ),
    "unmeasured": (SHARE, "3 of 8 GPUs: its speed on more GPUs has not been measured yet."),
    "ahead": ({**SHARE, "others": [OTHER]}, "3 of 8 GPUs: T2 is ahead in the queue and waits for 1 GPU."),
    "pinned": (
        {"target": 2, "hosts": ["h1", "h2", "h3"], "min_slots": 2, "elastic": True},
        "2 GPUs: stays on 3 hosts, which are draining, because its minimum of 2 fits nowhere else.",
    ),
    "preparing": (
        {"target": 2, "preparing": ["h1"], "unfit": ["h2", "h3"]},
        "2 GPUs: h1 prepares its packages before it can grow there; its packages cannot be installed on h2 and h3, see "
        "the page Environments.",
    ),
    "reclaimed": (
        {"before": 1, "continues": False, "loses_minutes": 9},
        "Stops for now and releases 1 GPU: other groups are entitled to it; other GPUs of its group are free for "
        "it; it will start from scratch, unless its script saves now.",
    ),
    "stopped_by_priority": (
        {"before": 2, "priority": 7000, "others": [OTHER], "continues": True, "loses_minutes": 9},
        "Stops for now and releases 2 GPUs: T2 has a higher priority than yours (10000 to 7000); at most 9 "
        "GPU-minutes of work since its last checkpoint are lost.",
    ),
    "gave_way": (
        {"before": 2, "priority": 7000, "others": [OTHER]},
        "Stops for now and releases 2 GPUs: they are reserved for T2, which is first in the queue and needs 1 GPU.",
    ),
    "held_back_for": (
        {"min_slots": 1, "reserved": 6, "first": OTHER},
        "Waits: T2 is first in the queue. 6 GPUs are reserved for T2, as soon as other trainings release them.",
    ),
    "closed": (
        {"group": "vision"},
        "Waits: its instance group vision is stopped. Trainings start once the group is started.",
    ),
    "given_back": (
        {"one_host": True, "missing": 3, "target": 4, **GIVERS, "givers_count": 9, "givers_slots": 2},
        "Waits: 2 of 4 GPUs are being released by 9 trainings; 1 of 4 GPUs is not free yet, on one host.",
    ),
    "one_host": (
        {"min_slots": 4, "most": 3},
        "Waits for 4 GPUs on one host: no host has more than 3 for it.",
    ),
    "too_large": ({"min_slots": 5, "capacity": 4}, "Needs 5 GPUs at once: its group has 4 to share now."),
    "behind": ({"priority": 5000, "others": [OTHER]}, "Waits behind T2, which was submitted first and needs 1 GPU."),
    "behind_priority": (
        {"priority": 5000, "others": [OTHER]},
        "Waits behind T2, which has a higher priority (10000 to 5000) and needs 1 GPU.",
    ),
    "in_line": (
        {"missing": 1, "min_slots": 3, "taken": 6, "capacity": 8},
        "Waits for 1 more GPU: it needs 3, and 6 of 8 are in use.",
    ),
    "in_line_for_minimums": (
        {"missing": 2, "min_slots": 4, "taken": 6, "capacity": 8},
        "Waits for 2 more GPUs: it needs 4, and 6 of 8 are the minimum of other trainings.",
    ),
}
