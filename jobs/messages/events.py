"""Sentences of events that come from users, ranks and hosts, and of a job's end."""

from collections.abc import Callable, Mapping
from typing import Any

from core.text import plural
from core.time import duration
from jobs.words import gpus

__all__ = ["HOW_TO_REQUIRE", "OF_EVENTS", "tried"]

Params = Mapping[str, Any]

_RESTARTS = {
    True: "it continues from its CHECKPOINT_DIR, as far as its script reads that",
    False: (
        "it starts again from nothing, for its script has left nothing that it said can be resumed; its working folder "
        "stays as it is"
    ),
}
#: Column -> phrases for its change and for undoing it.
_CHANGES = {
    "priority": ("the priority from {old} to {new}", "the priority goes from {old} back to {new}"),
    "max_slots": (
        "its GPUs from at most {old} to at most {new}",
        "its GPUs go from at most {old} back to at most {new}",
    ),
    "min_slots": (
        "its GPUs from at least {old} to at least {new}",
        "its GPUs go from at least {old} back to at least {new}",
    ),
    "max_seconds": ("its time limit from {old} to {new}", "its time limit goes from {old} back to {new}"),
}


def _limit(seconds: int | None) -> str:
    return "none" if seconds is None else f"{seconds} s"


def _changed(params: Params) -> str:
    changed, undone = _CHANGES[params["field"]]
    if params["field"] == "max_seconds":
        params = {**params, **{name: _limit(params[name]) for name in ("old", "new")}}
    if "undoes" in params:
        return f"{params['by']} undoes a change: {undone.format_map(params)}."
    return f"{params['by']} changes {changed.format_map(params)}."


def _gang_restart(words: str) -> Callable[[Params], str]:
    return lambda params: words.format(restart=_RESTARTS[params["resumable"]], cause=_signals(params))


def _signals(params: Params) -> str:
    signals = params.get("signals")
    return f" (signal {', '.join(map(str, signals))})" if signals else ""


def _processes(count: int, several: str = "have", one: str = "has") -> str:
    return plural(count, "{count} process {verb}", "{count} processes {verb}", verb=one if count == 1 else several)


def _copies(params: Params) -> str:
    count, ended = params["live"] + params["ended"], params["ended"]
    over = f", and {_of_them(ended)} ended with exit code 0" if ended else ""
    return (
        f"Its {count} processes have formed no process group within a minute: as far as can be seen they are {count} "
        f"copies of the script, each of which does all the work{over}. Call torch.distributed.init_process_group, or "
        "train it on 1 GPU."
    )


def _of_them(count: int) -> str:
    return plural(count, "{count} of them has", "{count} of them have")


def _limit_near(params: Params) -> str:
    limit, left = duration(params["max_seconds"]), duration(params["seconds"])
    return f"It has held GPUs for nearly as long as it may ({limit}): in {left} {_stops_at_limit(params)}."


def _limit_reached(params: Params) -> str:
    return f"It has held GPUs for as long as it may ({duration(params['max_seconds'])}): {_stops_at_limit(params)}."


def _stops_at_limit(params: Params) -> str:
    if params["grace"] is None:
        return "it stops after the step under way, with a checkpoint, and is held back"
    return (
        f"its script gets SIGTERM and {params['grace']} s to save, and is held back; what it has not saved in its "
        "CHECKPOINT_DIR by then is lost"
    )


def _halt_timeout(params: Params) -> str:
    start = "the beginning, for it has no checkpoint"
    if params["step"] is not None:
        start = f"its checkpoint of step {params['step']}"
    return f"It did not stop by itself in time, so its processes are told to end. It will continue from {start}."


def _rank_failed(params: Params) -> str:
    when = "before it took part" if params["step"] is None else f"after step {params['step']}"
    where = f"in the rank {params['member_id']} on {params['host']}"
    return f"The script failed {where} {when}: {params['error']}. The others train on."


def _trained(params: Params) -> str:
    steps = plural(params["step"], "{count} step", "{count} steps")
    epochs = plural(params["epoch"], "{count} epoch", "{count} epochs")
    return f"Trained to the end: {steps}, {epochs}; the final weights are written."


def _restored(params: Params) -> str:
    begins = "the beginning" if params["from_nothing"] else f"step {params['step']}"
    if unusable := params.get("unusable"):
        because = "because a newer checkpoint cannot be used"
        return f"Training starts from {begins}, {because}: {'; '.join(unusable)}."
    return f"Training continues from {begins}."


#: Advice for an import that the cluster lacks.
HOW_TO_REQUIRE = (
    "Require what brings it: in Requirements, in a requirements.txt beside the script, or as dependencies in the "
    "script itself (PEP 723)."
)


def _failed(params: Params) -> str:
    lacks = HOW_TO_REQUIRE if params["error"].startswith("ModuleNotFoundError") else ""
    said = f"The script failed on {params['host']}: {params['error']}."
    return " ".join(filter(None, (said, lacks, tried(params))))


def tried(params: Params) -> str:
    """Return the sentence about the attempts of a failed training, or ""."""
    sentence = _TRIED.get(params.get("tried", ""), "")
    return sentence.format_map(params)


def _lost_before_a_step(params: Params) -> str:
    times = f"{params['fruitless_starts']} times in a row"
    if params["message"] == "gang_lost_too_often":
        return f"A rank was killed{_signals(params)}, {times} without a new file in CHECKPOINT_DIR."
    return f"All its ranks were killed{_signals(params)} before the first step, {times}."


_TRIED = {
    "twice_in_two_ranks": "The same error came twice after step {step}, in two ranks.",
    "training_complete": "The training itself was complete.",
    "restarts_used_up": "It was started again {restarts} times after errors.",
    "same_error": "Tried {attempts} times: the same error, and no step after step {step}.",
    "always_an_error": "Tried {attempts} times: always an error, and no step after {step}.",
}

#: Key -> format string of the params, or a function of them.
OF_EVENTS: dict[str, str | Callable[[Params], str]] = {
    # Requested by users.
    "submitted": "Submitted; the scheduler looks for GPUs.",
    "cancelled": "Cancelled; all its processes have ended.",
    "cancelled_by": "Cancelled by {by}.",
    "cancelling": "{by} cancels it; its processes are told to end.",
    "limit_near": _limit_near,
    "limit_reached": _limit_reached,
    "limit_held_back": "Stopped at its limit; resume it to let it continue, for as long again.",
    "gang_limit_held_back": _gang_restart("Stopped at its limit; once it is resumed, {restart}."),
    "suspended": "{by} holds it back.",
    "suspended_with_grace": "{by} holds it back. Its script gets SIGTERM and {seconds} s to save.",
    "resumed": "{by} lets it continue.",
    "hidden": "{by} deletes it for clients of WMLA's interface. It stays here, with what it used.",
    "changed": _changed,
    "workers_beyond_group": "{workers} workers were asked for, but {group} has {capacity} GPUs: at most {max_slots}.",
    "workers_of_one_process": (
        "{workers} workers were asked for, but {framework} runs one process: at most {max_slots}."
    ),
    "no_most_workers": (
        "No maximum of workers was given: at most {max_slots}, the GPUs of {group}, whatever larger number the script "
        "asks for."
    ),
    "without_effect": "Without effect here: {options}.",
    # Reported by ranks and hosts.
    "started": lambda params: f"Training runs on {params['slots']} of {gpus(params['target'])}.",
    "restored": _restored,
    "rank_lost": "A rank was lost; the others train on.",
    "rank_stuck": "The rank {member_id} on {host} is killed: {why}. The others train on.",
    "rank_failed": _rank_failed,
    "no_progress": "{text}",
    "copies": _copies,
    "ranks_stay": lambda params: (
        f"{_processes(params['ended'])} ended with exit code 0, and {_processes(params['live'], 'stay', 'stays')}. "
        f"What is left {params['minutes']:g} minutes after the first end is told to end, and killed. Are its results "
        "complete? Then stop it now: until then it holds its GPUs."
    ),
    "ranks_may_stay": lambda params: (
        f"{params['by']} lets the processes that stay after others have ended go on for {duration(params['seconds'])} "
        "more, and the training with them: it holds its GPUs until then."
    ),
    "ranks_overdue": lambda params: (
        f"{_processes(params['live'], 'were', 'was')} still there {params['minutes']:g} minutes after another one of "
        "the group had ended with exit code 0: what is left is told to end. What was written stays."
    ),
    "host_lost": "The host {host} does not report any more.",
    "environment_building": lambda params: (
        f"What it requires is installed on {params['host']}: {', '.join(params['requirements'].split())}."
    ),
    "environment_failed": (
        "What it requires could not be installed on {host}: {error}. Its log says all; correct its requirements and "
        "clone it."
    ),
    "checkpoint_failed": (
        "No checkpoint could be written at step {step}: {error}. The training goes on, and older checkpoints stay."
    ),
    "profile_refused": "How long its steps take is not recorded any more: {why}. The training goes on.",
    "batch_refused": (
        "A micro-batch of {samples} samples does not fit into the memory of {kind}: from its next start on it computes "
        "at most {limit} of them at once."
    ),
    "batch_pinned": "The loss has risen since the batch grew: it stays at the {batch_size} samples of its submission.",
    "size_shows": lambda params: (
        "From here on its curves may differ from those of an undisturbed run by more than rounding: its code has "
        f"{', '.join(params['layers'])}, whose results depend on how many GPUs there are ({params['before']} before, "
        f"{params['slots']} now). Exactness bitwise gives the same bits on any number."
    ),
    "report_set_aside": (
        "Something that {host} reported cannot be stored and is set aside ({kind}, number {number}): {error}. What it "
        "reports besides is stored. Administrators see all of it on Hosts."
    ),
    "report_lost": (
        "What {host} reported of its processes cannot be stored ({kind}, number {number}: {error}), so nobody knows "
        "what has become of it. Its files and checkpoints stay: clone it, or continue from a checkpoint, once an "
        "administrator has seen to it."
    ),
    "halted": "Stopped after step {step}, with a checkpoint of it: no step is lost, and it will continue there.",
    "halt_timeout": _halt_timeout,
    "trained": _trained,
    "measured": "Measured on the held-out samples; the result is written.",
    # Derived from the exits of the ranks.
    "complete": "The training is complete.",
    "ended_early": "The script ended by itself on all ranks after step {step}, before its last epoch.",
    "failed": _failed,
    "failed_once": "The script failed on {host}: {error}. It starts again from its last checkpoint.",
    "ranks_lost": lambda params: (
        f"All its ranks were killed{_signals(params)}; it starts again from its last checkpoint, or from the beginning."
    ),
    "ranks_lost_too_often": _lost_before_a_step,
    "gang_lost": _gang_restart("A rank was killed{cause}, so all of them end; {restart}."),
    "gang_lost_too_often": _lost_before_a_step,
    "held_back": "Held back; resume it to let it continue.",
    "gang_held_back": _gang_restart("Held back; once it is resumed, {restart}."),
    "stopped": "Stopped; it continues once slots are free for it.",
    "gang_stopped": _gang_restart("Stopped; once GPUs are free for it, {restart}."),
    # Tidepool stops as a whole.
    "stack_stopping": "Tidepool is being stopped; the training goes on at its next start.",
    "stack_stopped": "Tidepool was stopped; the training starts again from its last checkpoint.",
    "stack_stopped_gang": _gang_restart("Tidepool was stopped; {restart}."),
    "stack_stopped_held_back": "Held back; all its processes have ended.",
}
