from dataclasses import replace

import pytest

from jobs.control.outcome import MAX_ERROR_RESTARTS, Facts, Failure, RankEnd, judge
from jobs.messages import message
from jobs.states import JobState, Reason
from scheduling.plan import PlanReason

OK = RankEnd("a", code=0)
KILLED = RankEnd("a", signal=9)
UNSEEN = RankEnd("a")
ERROR = {"kind": "ValueError", "message": "bad shape", "traceback": "Traceback ..."}
BROKEN = RankEnd("b", code=1, error=ERROR)
MEMORY = RankEnd("b", code=1, error={"kind": "OutOfMemoryError", "message": "CUDA out of memory", "traceback": ""})
TOO_LARGE = replace(MEMORY, error={**(MEMORY.error or {}), "micro_batch": {"kind": "A", "samples": 32}})
EXIT_3 = RankEnd("b", code=3)
CRASHED = RankEnd("b", signal=11, by_script=True, error={"kind": "SIGSEGV", "message": "crashed", "traceback": ""})
NO_MEMORY = RankEnd("b", signal=9, by_script=True, error={"kind": "OutOfMemory", "message": "killed", "traceback": ""})
USAGE = RankEnd(
    "b", code=2, error={"kind": "UsageError", "message": "x.py: error: no --hiden", "traceback": "usage: x"}
)
NO_PYTHON = RankEnd("b", code=1, error={"kind": "SyntaxError", "message": "'(' was never closed", "traceback": ""})
REFUSED = RankEnd("b", code=1, error={"kind": "Refusal", "message": "the optimizer is LBFGS", "traceback": ""})
LATE = RankEnd(
    "b", signal=6, by_script=True, error={"kind": "LaunchTimeout", "message": "after 1800 s ...", "traceback": "..."}
)
#: One attempt ended by BROKEN after step 7.
ONCE = Failure(key="ValueError: bad shape (1, None)", step=7)
AGAIN = {"step": 7, "previous": ONCE}
RESTART, FAILED = (JobState.PENDING, Reason.EXIT_NONZERO), (JobState.FAILED, Reason.EXIT_NONZERO)

FACTS = Facts(
    state=JobState.RUNNING,
    completed=False,
    live=0,
    ends=(),
    unstarted=0,
    stepped=True,
    fruitless_starts=0,
    open_claims=2,
)

CASES = {
    "nothing has started": ({"state": JobState.STARTING, "unstarted": 2}, None),
    "all live": ({"live": 2}, None),
    "one was killed, another lives": ({"live": 1, "ends": (KILLED,)}, None),
    "one exited well, another lives": ({"live": 1, "ends": (OK,)}, None),
    "one failed, another trains on": ({"live": 1, "ends": (BROKEN,)}, None),
    "one failed, another may still begin": (
        {"state": JobState.STARTING, "live": 1, "ends": (BROKEN,), "trains": False},
        None,
    ),
    "one failed, the others are too few to begin": (
        {"state": JobState.STARTING, "live": 1, "ends": (BROKEN,), "trains": False, "min_slots": 2},
        RESTART,
    ),
    "one failed, the other was killed": ({"ends": (KILLED, BROKEN)}, RESTART),
    "all failed": ({"ends": (BROKEN, BROKEN)}, RESTART),
    "a crash": ({"ends": (CRASHED,)}, RESTART),
    "out of memory twice, and half of the batch may fit": (
        {"given_up": TOO_LARGE, "step": 7},
        (JobState.PENDING, Reason.OUT_OF_MEMORY),
    ),
    "half of the batch did not fit either": (
        {
            "ends": (TOO_LARGE,),
            "step": 7,
            "previous": Failure(key="OutOfMemoryError: # (1, None) at 64 samples", step=7),
        },
        (JobState.PENDING, Reason.OUT_OF_MEMORY),
    ),
    "out of memory": ({"ends": (MEMORY,)}, (JobState.PENDING, Reason.OUT_OF_MEMORY)),
    "killed for want of memory": ({"ends": (NO_MEMORY,)}, (JobState.PENDING, Reason.OUT_OF_MEMORY)),
    "out of memory again": (
        {"ends": (MEMORY,), "step": 7, "previous": Failure("OutOfMemoryError: CUDA out of memory (1, None)", 7)},
        (JobState.FAILED, Reason.OUT_OF_MEMORY),
    ),
    "failed before it trained": (
        {"state": JobState.STARTING, "ends": (EXIT_3,), "stepped": False, "trains": False},
        RESTART,
    ),
    "called wrongly: no other attempt can end otherwise": ({"ends": (USAGE, USAGE)}, FAILED),
    "asks for what cannot be trained elastically": ({"ends": (REFUSED,)}, FAILED),
    "no Python": ({"ends": (NO_PYTHON,)}, FAILED),
    "the same error again at the same step": ({**AGAIN, "ends": (BROKEN,)}, FAILED),
    "the same error again before that step": ({**AGAIN, "ends": (BROKEN,), "step": 3}, FAILED),
    "the same error after more steps": ({**AGAIN, "ends": (BROKEN,), "step": 8}, RESTART),
    "another error at the same step": ({**AGAIN, "ends": (EXIT_3,)}, RESTART),
    "another error at the same step, the third one": (
        {"ends": (EXIT_3,), "step": 7, "previous": replace(ONCE, attempts=2)},
        FAILED,
    ),
    "an error after more steps, too often": (
        {"ends": (BROKEN,), "step": 99, "previous": replace(ONCE, restarts=MAX_ERROR_RESTARTS)},
        FAILED,
    ),
    "one never came to its training, too few are left": (
        {"live": 1, "trains": False, "min_slots": 2, "stepped": False, "ends": (LATE,)},
        (JobState.PENDING, Reason.LAUNCH_TIMEOUT),
    ),
    "one never came to its training, the others may begin": (
        {"live": 2, "trains": False, "min_slots": 2, "stepped": False, "ends": (LATE,)},
        None,
    ),
    "again it never came to its training": (
        {"previous": Failure("LaunchTimeout: after # s ... (None, 6)", 0), "stepped": False, "ends": (LATE,)},
        (JobState.FAILED, Reason.LAUNCH_TIMEOUT),
    ),
    "killed after an error": ({**AGAIN, "ends": (KILLED,)}, (JobState.PENDING, Reason.RANK_LOST)),
    "the coordinator saw the same error twice": ({"live": 2, "given_up": BROKEN, "lost": True}, FAILED),
    "failed although complete": ({"completed": True, "ends": (OK, EXIT_3)}, (JobState.FAILED, Reason.EXIT_NONZERO)),
    "complete, one still lives": ({"completed": True, "live": 1, "ends": (OK,)}, None),
    "complete": ({"completed": True, "ends": (OK, OK)}, (JobState.SUCCEEDED, Reason.COMPLETED)),
    "complete, then killed": ({"completed": True, "ends": (OK, KILLED)}, (JobState.SUCCEEDED, Reason.COMPLETED)),
    "complete while it grew": (
        {"completed": True, "ends": (OK,), "unstarted": 1},
        (JobState.SUCCEEDED, Reason.COMPLETED),
    ),
    "a script without a session": (
        {"state": JobState.STARTING, "ends": (OK, OK), "stepped": False},
        (JobState.SUCCEEDED, Reason.COMPLETED),
    ),
    "one of two has not started": ({"state": JobState.STARTING, "ends": (OK,), "unstarted": 1}, None),
    "all killed": ({"ends": (KILLED, KILLED)}, (JobState.PENDING, Reason.RANK_LOST)),
    "nobody saw how they ended": ({"ends": (UNSEEN, UNSEEN)}, (JobState.PENDING, Reason.RANK_LOST)),
    "killed before a step": (
        {"state": JobState.STARTING, "ends": (KILLED,), "stepped": False, "fruitless_starts": 1},
        (JobState.PENDING, Reason.RANK_LOST),
    ),
    "killed before a step for the third time": (
        {"state": JobState.STARTING, "ends": (KILLED,), "stepped": False, "fruitless_starts": 2},
        (JobState.FAILED, Reason.RANK_LOST),
    ),
    "the state is lost, new ranks live": ({"live": 2, "lost": True}, (JobState.PENDING, Reason.RANK_LOST)),
    "the state is lost because one failed": (
        {"live": 1, "lost": True, "ends": (BROKEN,)},
        RESTART,
    ),
    "the script ended by itself, all ranks together": (
        {"ends": (OK, OK), "lost": True},
        (JobState.SUCCEEDED, Reason.COMPLETED),
    ),
    "one left early, then the others were killed": ({"ends": (OK, KILLED)}, (JobState.PENDING, Reason.RANK_LOST)),
    "being stopped": ({"state": JobState.PREEMPTING, "ends": (KILLED,)}, None),
    "stopped": ({"state": JobState.PREEMPTING, "open_claims": 0}, (JobState.PENDING, PlanReason.PREEMPTED_BY_PRIORITY)),
    "stopped to be held back": (
        {"state": JobState.PREEMPTING, "open_claims": 0, "after_stop": JobState.SUSPENDED},
        (JobState.SUSPENDED, Reason.SUSPENDED_BY_USER),
    ),
    "complete before it was stopped": (
        {"state": JobState.PREEMPTING, "completed": True},
        (JobState.SUCCEEDED, Reason.COMPLETED),
    ),
    "being cancelled": ({"state": JobState.CANCELLING}, None),
    "complete before it was cancelled": (
        {"state": JobState.CANCELLING, "completed": True, "open_claims": 0},
        (JobState.CANCELLED, Reason.CANCELLED_BY_USER),
    ),
    "over": ({"state": JobState.FAILED, "ends": (KILLED,)}, None),
}

LOST_PEER = RankEnd(
    "a", code=1, error={"kind": "RuntimeError", "message": "[pair.cc] Connection closed by peer", "traceback": ""}, at=3
)
STOPPED = RankEnd("a", code=0, stopped=True, at=5)
LATE_ERROR = replace(BROKEN, at=4.0)
PREEMPTED = {"state": JobState.PREEMPTING, "open_claims": 0}
#: Scripts whose ranks begin and end together.
GANG_CASES = {
    "one was killed": ({"live": 1, "ends": (KILLED,)}, (JobState.PENDING, Reason.RANK_LOST)),
    "nobody saw how one ended": ({"live": 1, "ends": (UNSEEN,)}, (JobState.PENDING, Reason.RANK_LOST)),
    "one is done, another is not": ({"live": 1, "ends": (OK,)}, None),
    "one is done, another has not started": ({"ends": (OK,), "unstarted": 1}, None),
    "all are done": ({"ends": (OK, OK)}, (JobState.SUCCEEDED, Reason.COMPLETED)),
    "one failed": ({"live": 1, "ends": (BROKEN,)}, (JobState.FAILED, Reason.EXIT_NONZERO)),
    "one failed because another was killed": (
        {"ends": (LATE_ERROR, KILLED)},
        (JobState.PENDING, Reason.RANK_LOST),
    ),
    "one was killed after another had failed": (
        {"ends": (BROKEN, replace(KILLED, at=2.0))},
        (JobState.FAILED, Reason.EXIT_NONZERO),
    ),
    "one lost a peer whose end is not told yet": ({"live": 1, "ends": (LOST_PEER,)}, None),
    "one lost a peer that had failed": (
        {"ends": (LOST_PEER, LATE_ERROR)},
        (JobState.FAILED, Reason.EXIT_NONZERO),
    ),
    "one lost a peer that had been killed": ({"ends": (LOST_PEER, KILLED)}, (JobState.PENDING, Reason.RANK_LOST)),
    "all lost a peer": ({"ends": (LOST_PEER, LOST_PEER)}, (JobState.FAILED, Reason.EXIT_NONZERO)),
    "killed for the third time without a file": (
        {"ends": (KILLED,), "stepped": False, "fruitless_starts": 2},
        (JobState.FAILED, Reason.RANK_LOST),
    ),
    "stopped, not all slots are empty": ({**PREEMPTED, "open_claims": 1, "ends": (STOPPED, STOPPED)}, None),
    "stopped": ({**PREEMPTED, "ends": (STOPPED, STOPPED)}, (JobState.PENDING, PlanReason.PREEMPTED_BY_PRIORITY)),
    "held back": (
        {**PREEMPTED, "ends": (STOPPED, KILLED), "after_stop": JobState.SUSPENDED},
        (JobState.SUSPENDED, Reason.SUSPENDED_BY_USER),
    ),
    "done before it was stopped": (
        {**PREEMPTED, "open_claims": 2, "ends": (OK, OK)},
        (JobState.SUCCEEDED, Reason.COMPLETED),
    ),
}


@pytest.mark.parametrize("case", GANG_CASES)
def test_verdict_on_a_gang(case: str) -> None:
    changes, expected = GANG_CASES[case]
    verdict = judge(replace(FACTS, gang=True, **changes))  # type: ignore[arg-type]
    assert (verdict and (verdict.state, verdict.reason)) == expected


@pytest.mark.parametrize(("step", "key"), [(0, "complete"), (7, "ended_early")])
def test_a_gang_ended_early_only_if_its_steps_are_known(step: int, key: str) -> None:
    """Files in CHECKPOINT_DIR count as steps for the error policy, and say nothing about its end."""
    verdict = judge(replace(FACTS, gang=True, stepped=True, step=step, ends=(OK, OK)))
    assert verdict is not None
    assert verdict.params["message"] == key


@pytest.mark.parametrize("completed", [True, False])
def test_a_training_without_a_step_is_not_called_complete(completed: bool) -> None:
    verdict = judge(replace(FACTS, completed=completed, has_no_step=True, ends=(OK, OK)))
    assert verdict is not None
    assert (verdict.state, verdict.params["message"]) == (JobState.SUCCEEDED, "no_step")


def test_the_first_error_of_a_gang_is_shown() -> None:
    verdict = judge(replace(FACTS, gang=True, ends=(LOST_PEER, LATE_ERROR)))
    assert verdict is not None
    assert verdict.error == ERROR


@pytest.mark.parametrize("case", CASES)
def test_verdict(case: str) -> None:
    changes, expected = CASES[case]
    verdict = judge(replace(FACTS, **changes))
    assert (verdict and (verdict.state, verdict.reason)) == expected


def test_an_attempt_that_failed_says_so_and_what_follows() -> None:
    verdict = judge(replace(FACTS, ends=(BROKEN,), step=7))
    assert verdict is not None
    assert verdict.error == ERROR
    assert verdict.params["message"] == "failed_once"
    assert (verdict.params["host"], verdict.params["error"]) == ("b", "ValueError: bad shape")
    assert (verdict.params["step"], verdict.params["saved"]) == (7, None)
    assert verdict.failure == replace(ONCE, restarts=1)


def test_a_failure_carries_the_scripts_own_error_and_how_often_it_was_tried() -> None:
    verdict = judge(replace(FACTS, ends=(BROKEN,), step=7, previous=ONCE))
    assert verdict is not None
    assert (verdict.params["message"], verdict.params["tried"]) == ("failed", "same_error")
    assert (verdict.params["attempts"], verdict.params["step"]) == (2, 7)
    assert verdict.error == ERROR


def test_a_script_that_ends_early_on_all_ranks_succeeds_and_it_is_said() -> None:
    verdict = judge(replace(FACTS, ends=(OK, OK), step=12))
    assert verdict is not None
    assert verdict.params == message("ended_early", step=12)


def test_an_exit_code_without_an_exception_is_said() -> None:
    verdict = judge(replace(FACTS, ends=(EXIT_3,)))
    assert verdict is not None
    assert verdict.error["message"] == "The script ended with exit code 3."


@pytest.mark.parametrize(("stepped", "before", "after"), [(True, 2, 0), (False, 0, 1), (False, 1, 2)])
def test_only_starts_without_a_step_count(stepped: bool, before: int, after: int) -> None:
    verdict = judge(replace(FACTS, ends=(KILLED,), stepped=stepped, fruitless_starts=before))
    assert verdict is not None
    assert verdict.fruitless_starts == after


def test_a_script_that_ended_itself_is_quoted() -> None:
    verdict = judge(replace(FACTS, ends=(USAGE,)))
    assert verdict is not None
    assert (verdict.params["message"], verdict.params["error"]) == ("failed", "x.py: error: no --hiden")


@pytest.mark.parametrize(
    ("ends", "memory"),
    [
        ((KILLED,), "enough"),
        ((KILLED, replace(KILLED, error={"kind": "Killed", "message": "by SIGKILL"})), "unknown"),
        ((replace(KILLED, error={"kind": "ShimLost", "message": "killed"}),), ""),
        ((replace(KILLED, signal=15),), ""),
    ],
)
def test_the_loss_of_ranks_says_what_is_known_about_memory(ends: tuple[RankEnd, ...], memory: str) -> None:
    verdict = judge(replace(FACTS, gang=True, ends=ends))
    assert verdict is not None
    assert (verdict.reason, verdict.params["memory"]) == (Reason.RANK_LOST, memory)


def test_what_has_filled_a_gpu_is_kept_with_the_error() -> None:
    told = {"kind": "OutOfMemoryError", "message": "CUDA out of memory", "traceback": "", "memory": "60 GiB" * 1000}
    verdict = judge(replace(FACTS, ends=(RankEnd("b", code=1, error=told),)))
    assert verdict is not None
    assert (verdict.error["memory"][:6], len(verdict.error["memory"])) == ("60 GiB", 2000)
