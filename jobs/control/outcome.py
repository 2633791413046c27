"""Verdict on a job, from the ends of its ranks. Pure: facts in, verdict out. Called by `jobs.control.job_end`."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidepool.rank_exits import HOPELESS, KILLED, LAUNCH_TIMEOUT, OUT_OF_MEMORY, STALLED, error_key, error_words

from jobs.messages import message
from jobs.states import AnyReason, JobState, Reason
from scheduling.plan import PlanReason

__all__ = [
    "ENVIRONMENT_FAILED",
    "MAX_ERROR_RESTARTS",
    "MAX_FRUITLESS_STARTS",
    "SECRETS_FAILED",
    "UNBUILT",
    "Facts",
    "Failure",
    "RankEnd",
    "Verdict",
    "judge",
    "reason_of",
]

#: Error kind of a job whose requirements could not be installed.
ENVIRONMENT_FAILED = "RequirementsNotInstalled"
#: Kind of the error of a training whose secrets cannot be given to it.
SECRETS_FAILED = "SecretsNotGiven"
#: Kinds of errors of an attempt that has not begun, and will not.
UNBUILT = {ENVIRONMENT_FAILED: "environment_failed", SECRETS_FAILED: "secrets_failed"}
#: Number of consecutive attempts without a step after which a job fails.
MAX_FRUITLESS_STARTS = 3
#: Largest number of attempts that may end with errors of the script, even if each gets further than the one before.
MAX_ERROR_RESTARTS = 10
#: Number of consecutive, different errors of the script without progress after which a job fails.
_MAX_DIFFERENT_ERRORS = 3
#: Parts of the messages by which gloo, NCCL and torch's stores report the loss of another process of the group.
_PEER_IS_GONE = (
    *("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL", "gloo"),
    *("DistBackendError", "DistNetworkError", "DistStoreError"),
)
#: Most characters of the sentences on what has filled a GPU's memory.
_LONGEST_MEMORY = 2000
_OUT_OF_MEMORY = frozenset({"OutOfMemoryError", "MemoryError", OUT_OF_MEMORY})


@dataclass(frozen=True)
class RankEnd:
    """Exit of the newest rank of a slot. Either `code` or `signal` is set; neither if the exit was not observed."""

    host: str
    code: int | None = None
    signal: int | None = None
    #: {"kind", "message", "traceback"} of an uncaught exception of the script, and "memory" where a GPU was full.
    error: dict[str, Any] | None = None
    #: Whether the script, and not the machine, caused the exit; None: it did if the exit code is not 0.
    by_script: bool | None = None
    #: Whether the rank had been told to end.
    stopped: bool = False
    #: Time of the exit by its host's clock, in Unix seconds.
    at: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.code) if self.by_script is None else self.by_script

    @property
    def lost_a_peer(self) -> bool:
        """True if the rank failed because another rank was gone, whose exit is the cause."""
        text = f"{(self.error or {}).get('kind', '')}: {(self.error or {}).get('message', '')}"
        return self.failed and any(sign in text for sign in _PEER_IS_GONE)


@dataclass(frozen=True)
class Failure:
    """Consecutive attempts that ended with errors of the script."""

    #: Key of the error, equal for two occurrences of the same error.
    key: str
    #: Largest number of steps that any attempt is known to have completed.
    step: int
    #: Number of consecutive attempts that ended at that step, with this or other errors.
    attempts: int = 1
    #: Total number of restarts after an error.
    restarts: int = 0


@dataclass(frozen=True)
class Facts:
    """Facts about a job that holds slots, or held them until now. They concern its current attempt only."""

    state: JobState
    #: Whether the training is complete and the final weights are written.
    completed: bool
    #: Number of running ranks, on any slot.
    live: int
    #: Exits of the newest ranks of the slots that the job keeps. Ranks that leave are not judged.
    ends: tuple[RankEnd, ...]
    #: Number of kept slots on which no rank has been seen yet.
    unstarted: int
    #: Whether the attempt completed a step.
    stepped: bool
    fruitless_starts: int
    open_claims: int
    #: Whether the coordinator gave up the training: all ranks with its state are gone, and their exits are known.
    lost: bool = False
    #: Whether the job is stopping by itself and has not confirmed it yet.
    halting: bool = False
    #: Whether a generation trains.
    trains: bool = True
    min_slots: int = 1
    #: Number of completed steps, as far as known.
    step: int = 0
    #: Whether it is an elastic training of which no step is known in any attempt.
    has_no_step: bool = False
    #: Failure of the attempts before this one, if errors of the script ended them.
    previous: Failure | None = None
    #: Exit by which the coordinator gave up: the same error ended two ranks at the same step.
    given_up: RankEnd | None = None
    #: Exit of a rank whose requirements could not be installed.
    unbuilt: RankEnd | None = None
    #: While PREEMPTING: state to enter once the slots are empty.
    after_stop: JobState = JobState.PENDING
    #: Whether the script is not elastic: its ranks start and end together.
    gang: bool = False
    #: For a gang: whether its next start resumes from CHECKPOINT_DIR.
    resumable: bool = False
    #: ... or from a checkpoint of a library; "": from none. The number is the checkpoint's.
    library: str = ""
    library_step: int = 0
    #: Step of the newest checkpoint of an elastic training; None: it has none.
    saved: int | None = None
    #: While PREEMPTING: reason of the stop.
    stopped_for: AnyReason = PlanReason.PREEMPTED_BY_PRIORITY
    #: Params of that reason.
    stopped_with: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    state: JobState
    reason: AnyReason
    #: Params of the sentence, see `jobs.messages.message`.
    params: dict[str, Any]
    error: dict[str, Any] = field(default_factory=dict)
    fruitless_starts: int = 0
    failure: Failure | None = None


def judge(facts: Facts) -> Verdict | None:
    """Return the verdict on the job; None while it continues."""
    if facts.unbuilt is not None and facts.state in (JobState.STARTING, JobState.RUNNING):
        error, reason, seen = _described(facts.unbuilt)
        return Verdict(JobState.FAILED, reason, message(UNBUILT[error["kind"]], **seen), error)
    match facts.state:
        case JobState.STARTING | JobState.RUNNING if facts.gang:
            return _judge_gang(facts)
        case JobState.STARTING | JobState.RUNNING:
            return _judge_training(facts)
        case JobState.PREEMPTING:
            return _judge_preempted(facts)
        case JobState.CANCELLING if facts.open_claims == 0:
            if facts.stopped_for == Reason.PRUNED:
                return Verdict(JobState.CANCELLED, Reason.PRUNED, dict(facts.stopped_with))
            return Verdict(JobState.CANCELLED, Reason.CANCELLED_BY_USER, message("cancelled"))
    return None


def _judge_training(facts: Facts) -> Verdict | None:
    if facts.given_up is not None and too_large(facts.given_up.error):
        return _error(facts, facts.given_up)  # the next attempt halves the micro-batch
    if facts.given_up is not None:
        return _failed(facts.given_up, "twice_in_two_ranks", attempts=2, step=facts.step)
    failed = [end for end in facts.ends if end.failed]
    if failed and facts.completed:
        return _failed(failed[0], "training_complete")
    # Remaining ranks keep training, or may still form the first generation.
    if failed and (facts.lost or facts.live < (1 if facts.trains else facts.min_slots)):
        return _error(facts, failed[0])
    if not facts.live and facts.ends and not facts.unstarted and all(end.code == 0 for end in facts.ends):
        return _success(facts)
    if facts.lost and not facts.completed:
        return _loss(facts)
    if facts.live:
        return None
    if facts.completed:
        return _success(facts)
    if not facts.ends or all(end.code == 0 for end in facts.ends):
        return None
    return _loss(facts)


def _judge_gang(facts: Facts) -> Verdict | None:
    """Judge a gang by the first rank that did not exit well: the exits of the others follow from it."""
    bad = sorted((end for end in facts.ends if end.code != 0), key=lambda end: end.at)
    causes = [end for end in bad if not end.lost_a_peer]
    if causes:
        return _failed(causes[0]) if causes[0].failed else _loss(facts)
    if facts.live or facts.unstarted or not facts.ends:
        return None  # the exit of the lost peer is still to be reported
    return _failed(bad[0]) if bad else _success(facts)


def _judge_preempted(facts: Facts) -> Verdict | None:
    exited = facts.gang and bool(facts.ends) and all(end.code == 0 and not end.stopped for end in facts.ends)
    if not facts.live and (facts.completed or (exited and not facts.unstarted)):
        return _success(facts)
    if facts.open_claims or facts.halting:
        return None
    kind, params = "gang_" if facts.gang else "", _continuation(facts)
    if facts.after_stop == JobState.SUSPENDED and facts.stopped_for == Reason.TIME_LIMIT:
        return Verdict(JobState.SUSPENDED, Reason.TIME_LIMIT, message(f"{kind}limit_held_back", **params))
    if facts.after_stop == JobState.SUSPENDED:
        return Verdict(JobState.SUSPENDED, Reason.SUSPENDED_BY_USER, message(f"{kind}held_back", **params))
    return Verdict(JobState.PENDING, facts.stopped_for, message(f"{kind}stopped", **params))


def _continuation(facts: Facts) -> dict[str, Any]:
    """Return the params of a sentence about where the training continues."""
    if not facts.gang:
        return {"step": facts.step, "saved": facts.saved}
    own = {"library": facts.library, "library_step": facts.library_step} if facts.library else {}
    return {"resumable": facts.resumable, **own}


def _success(facts: Facts) -> Verdict:
    if facts.has_no_step:
        return Verdict(JobState.SUCCEEDED, Reason.COMPLETED, message("no_step"))
    # A gang's progress beyond its checkpoint files is known only if a session reports steps.
    is_early = facts.stepped and facts.step > 0 and not facts.completed
    params = message("ended_early", step=facts.step) if is_early else message("complete")
    return Verdict(JobState.SUCCEEDED, Reason.COMPLETED, params)


def _error(facts: Facts, end: RankEnd) -> Verdict:
    """Restart the job after an error that ended a whole attempt, unless another attempt can only end likewise."""
    if (end.error or {}).get("kind") in HOPELESS:
        return _failed(end)
    before, key = facts.previous, _key(end)
    restarts = before.restarts + 1 if before else 1
    if before is None or facts.step > before.step:
        if restarts > MAX_ERROR_RESTARTS:
            return _failed(end, "restarts_used_up", attempts=restarts, restarts=MAX_ERROR_RESTARTS)
        return _restart(facts, end, Failure(key, facts.step, 1, restarts))
    attempts = before.attempts + 1
    if before.key == key:
        return _failed(end, "same_error", attempts=attempts, step=before.step)
    if attempts >= _MAX_DIFFERENT_ERRORS:
        return _failed(end, "always_an_error", attempts=attempts, step=before.step)
    return _restart(facts, end, Failure(key, before.step, attempts, restarts))


def _key(end: RankEnd) -> str:
    key, batch = error_key(end.error, end.code, end.signal), too_large(end.error)
    return f"{key} at {batch[1]} samples" if batch else key


def too_large(error: Mapping[str, Any] | None) -> tuple[str, int] | None:
    """Return the GPU model whose memory ran out and the micro-batch in samples, if it can be made smaller."""
    told = (error or {}).get("micro_batch")
    if reason_of(str((error or {}).get("kind", ""))) != Reason.OUT_OF_MEMORY or not isinstance(told, dict):
        return None
    kind, samples = told.get("kind"), told.get("samples")
    if isinstance(kind, str) and 0 < len(kind) <= 128 and type(samples) is int and 2 <= samples < 2**31:
        return kind, samples
    return None


def _restart(facts: Facts, end: RankEnd, failure: Failure) -> Verdict:
    error, reason, seen = _described(end)
    params = message("failed_once", **seen, **_continuation(facts))
    return Verdict(JobState.PENDING, reason, params, error, failure=failure)


def _failed(end: RankEnd, key: str = "", *, attempts: int = 1, **figures: int) -> Verdict:
    """Return the verdict that the job failed. `key`: of the sentence about its attempts, with its figures."""
    error, reason, seen = _described(end)
    params = message("failed", **seen, tried=key, attempts=attempts, **figures)
    return Verdict(JobState.FAILED, reason, params, error)


def _described(end: RankEnd) -> tuple[dict[str, str], Reason, dict[str, Any]]:
    """Return the error that ended a rank, its reason, and the params of its sentence."""
    given = end.error or {"kind": "ExitCode", "message": f"The script ended with exit code {end.code}."}
    error = {name: str(given.get(name, "")) for name in ("kind", "message", "traceback")}
    if memory := str(given.get("memory", ""))[:_LONGEST_MEMORY]:
        error["memory"] = memory
    is_sentence = end.error is None or error["kind"] == SECRETS_FAILED
    shown = error["message"] if is_sentence else error_words(error)
    seen = {"host": end.host, "code": end.code, "signal": end.signal, "error": shown.rstrip(".")}
    return error, reason_of(error["kind"]), seen


def reason_of(kind: str) -> Reason:
    """Return the reason of an error that ended a rank, from the error's kind."""
    if kind == ENVIRONMENT_FAILED:
        return Reason.ENVIRONMENT_FAILED
    if kind == SECRETS_FAILED:
        return Reason.SECRETS_FAILED
    if kind == LAUNCH_TIMEOUT:
        return Reason.LAUNCH_TIMEOUT
    if kind == STALLED:
        return Reason.NO_PROGRESS
    return Reason.OUT_OF_MEMORY if kind in _OUT_OF_MEMORY else Reason.EXIT_NONZERO


def _loss(facts: Facts) -> Verdict:
    fruitless = 0 if facts.stepped else facts.fruitless_starts + 1
    signals = sorted({end.signal for end in facts.ends if end.signal is not None})
    params = {"signals": signals, "memory": _memory(facts), "fruitless_starts": fruitless}
    if fruitless >= MAX_FRUITLESS_STARTS:
        params = message("gang_lost_too_often" if facts.gang else "ranks_lost_too_often", **params)
        error = {"kind": "RankLost", "message": "", "traceback": ""}
        return Verdict(JobState.FAILED, Reason.RANK_LOST, params, error, fruitless)
    params = message("gang_lost" if facts.gang else "ranks_lost", **params, **_continuation(facts))
    return Verdict(JobState.PENDING, Reason.RANK_LOST, params, fruitless_starts=fruitless)


def _memory(facts: Facts) -> str:
    """Return whether ranks that were killed had "enough" memory by their kernel's count, or that this is "unknown"."""
    errors = [end.error for end in facts.ends if end.signal == signal.SIGKILL]
    if any((error or {}).get("kind") == KILLED for error in errors):
        return "unknown"
    return "enough" if errors and not any(errors) else ""
