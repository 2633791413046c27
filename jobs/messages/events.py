"""Sentences about events reported by users, ranks and hosts, and about the end of a job."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.text import plural
from core.time import duration
from jobs.words import gpus, listed
from workers.executor.environments.requirements import conda_in, folder_in, image_in

__all__ = ["HOW_TO_REQUIRE", "OF_EVENTS", "tried"]

Params = Mapping[str, Any]

_RESTARTS = {
    True: "its script continues from its CHECKPOINT_DIR, if it reads it",
    False: ("it starts again; what it left in its working folder stays, and many scripts continue from it"),
}
#: Library whose checkpoints a training continues from -> where it does.
_FROM_LIBRARY = {
    "transformers": "it continues after step {library_step}, from the newest checkpoint that its Trainer has saved",
    "lightning": "it continues after step {library_step}, from the newest checkpoint that Lightning has saved",
}
_FROM_STATE = "its script continues from the newest state that Accelerate has saved, once it loads that"
#: Column -> its name in a sentence.
_COLUMNS = {
    "priority": "the priority",
    "max_slots": "the maximum of GPUs",
    "min_slots": "the minimum of GPUs",
    "max_seconds": "the time limit",
}


def _limit(seconds: int | None) -> str:
    return "none" if seconds is None else f"{seconds} s"


def _changed(params: Params) -> str:
    column, old, new = _COLUMNS[params["field"]], params["old"], params["new"]
    if params["field"] == "max_seconds":
        old, new = _limit(old), _limit(new)
    if "undoes" in params:
        return f"{params['by']} changed {column} from {old} back to {new}."
    return f"{params['by']} changed {column} from {old} to {new}."


def _restart(words: str) -> Callable[[Params], str]:
    """Return the sentence of an event after which a training continues, with where it does in place of {restart}."""
    return lambda params: words.format(**{"restart": _continues(params), "cause": _signals(params), **params})


def _continues(params: Params) -> str:
    if library := params.get("library"):
        return _FROM_LIBRARY.get(library, _FROM_STATE).format_map(params)
    if "resumable" in params:
        return _RESTARTS[params["resumable"]]
    step, saved = params.get("step"), params.get("saved")
    if step is None:  # told by an earlier release
        return "it continues from its last checkpoint, or from the beginning"
    if not step:
        return "it starts from the beginning"
    lost = plural(max(0, step - (saved or 0)), "{count} step is", "{count} steps are")
    if saved is None:
        return f"it starts from the beginning, because no checkpoint was written: {lost} repeated"
    if saved >= step:
        return f"it continues after step {step}, which its checkpoint holds"
    return f"it continues from its checkpoint of step {saved}: {lost} repeated"


#: Knowledge about the memory of a host on which a rank was killed -> the rest of a sentence about the signal.
_MEMORY = {
    "enough": ", by another process than Tidepool's; the kernel reports no lack of memory",
    "unknown": ", perhaps because memory ran out, which the kernel does not report here",
}


def _signals(params: Params) -> str:
    signals = params.get("signals")
    if not signals:
        return ""
    memory = _MEMORY.get(params.get("memory", ""), "")
    return f" (signal {', '.join(map(str, signals))}{memory})"


def _processes(count: int, several: str = "have", one: str = "has") -> str:
    return plural(count, "{count} process {verb}", "{count} processes {verb}", verb=one if count == 1 else several)


def _copies(params: Params) -> str:
    count, ended = params["live"] + params["ended"], params["ended"]
    over = f", and {_of_them(ended)} ended with exit code 0" if ended else ""
    return (
        f"Its {count} processes did not form a process group within a minute. They are probably {count} copies of the "
        f"script, each of which does all the work{over}. Call torch.distributed.init_process_group, or train on 1 GPU."
    )


def _of_them(count: int) -> str:
    return plural(count, "{count} of them has", "{count} of them have")


def _limit_near(params: Params) -> str:
    limit, left = duration(params["max_seconds"]), duration(params["seconds"])
    return f"The training will reach its time limit of {limit} in {left}: {_stops_at_limit(params)}."


def _limit_reached(params: Params) -> str:
    return f"The training has reached its time limit of {duration(params['max_seconds'])}: {_stops_at_limit(params)}."


def _stops_at_limit(params: Params) -> str:
    if params["grace"] is None:
        return "it stops after the current step, with a checkpoint, and is suspended"
    return (
        f"its script gets SIGTERM and {params['grace']} s to save, and is suspended; work that it has not "
        "saved by then is lost"
    )


def _idle_warned(params: Params) -> str:
    words = f"The training has made no step and used none of its GPUs for {duration(params['seconds'])}."
    if not params["reclaims"]:
        return f"{words} Suspend or stop it if it does not need them."
    then = f"it shrinks to {gpus(params['least'])}" if params["elastic"] else "it is suspended"
    return f"{words} In {duration(params['grace'])}, {then}."


def _host_leaves(params: Params) -> str:
    source = f" ({params['why']})" if params["why"] else ""
    leaves = f"{params['host']} will be gone soon{source}, and no other GPUs are free"
    if params["elastic"]:
        return f"{leaves}: the training stops after the current step, with a checkpoint, and waits for GPUs."
    leaves = f"{params['host']} will be gone soon{source}, before the training is over"
    return f"{leaves}: its script gets SIGTERM and {params['seconds']} s to save, and waits for GPUs elsewhere."


def _halt_timeout(params: Params) -> str:
    start = "the beginning, because it has no checkpoint"
    if params["step"] is not None:
        start = f"its checkpoint of step {params['step']}"
    return f"The training did not stop in time, so its processes are terminated. It will continue from {start}."


def _rank_failed(params: Params) -> str:
    when = "before it joined the training" if params["step"] is None else f"after step {params['step']}"
    where = f"in rank {params['member_id']} on {params['host']}"
    return f"The script failed {where} {when}: {params['error']}. The other ranks continue."


def _growth_given_up(params: Params) -> str:
    size = gpus(params["size"])
    return (
        f"Two new processes on {params['host']} failed in the same way: {params['error']}. The training keeps {size} "
        "and returns the others. To try again, change its maximum, or suspend and resume it."
    )


def _trained(params: Params) -> str:
    steps = plural(params["step"], "{count} step", "{count} steps")
    epochs = plural(params["epoch"], "{count} epoch", "{count} epochs")
    if not params["step"]:
        return f"The training ended after {epochs} without a step. Its weights are saved as they were at its beginning."
    return f"Training finished after {steps} and {epochs}. The final weights are saved."


def _restored(params: Params) -> str:
    begins = "the beginning" if params["from_nothing"] else f"step {params['step']}"
    if unusable := params.get("unusable"):
        because = "because a newer checkpoint cannot be used"
        return f"Training starts from {begins}, {because}: {'; '.join(unusable)}."
    return f"Training continues from {begins}."


def _began_anew(params: Params) -> str:
    unit = params["unit"]
    return (
        f"It began at {unit} {params['first']} again, and the attempt before had reached {unit} {params['reached']}. A "
        "script continues if it loads at its start what it has saved in its working folder or in CHECKPOINT_DIR."
    )


#: Advice for a module that is not installed.
HOW_TO_REQUIRE = (
    "Add the package that provides it: in Requirements, in a requirements.txt beside the script, or as dependencies in "
    "the script itself (PEP 723)."
)


#: Pattern of an error -> advice.
_ADVICE = (
    (re.compile(r"ModuleNotFoundError"), HOW_TO_REQUIRE),
    (
        re.compile(r"Bus error|SIGBUS|</torch_\w+>|/dev/shm"),
        "Shared memory (/dev/shm) is probably full, by which a DataLoader's workers hand over their batches: use fewer "
        "workers (num_workers) or smaller batches, or ask for more memory with each GPU (--memory).",
    ),
    (
        re.compile(r"OutOfMemory: |killed by signal: Killed|DataLoader worker \(.*exited unexpectedly"),
        "The memory of the host probably ran out, not that of the GPU: load less data at once, or use fewer workers "
        "(num_workers).",
    ),
)


def _failed(params: Params) -> str:
    failure = f"The script failed on {params['host']}: {params['error']}."
    return " ".join(filter(None, (failure, _advice(params["error"]), tried(params))))


def _advice(error: str) -> str:
    return next((advice for pattern, advice in _ADVICE if pattern.search(error)), "")


def _building(requirements: Sequence[str], host: str) -> str:
    if image := image_in(requirements):
        return f"Pulling the image {image} on {host}, unless it is there."
    if folder := folder_in(requirements):
        return f"Reading the environment in {folder} on {host}."
    if conda := conda_in(requirements):
        return f"Making an environment of conda on {host}, with {', '.join(conda)}."
    return f"Installing the requirements on {host}: {', '.join(' '.join(requirements).split())}."


def tried(params: Params) -> str:
    """Return the sentence about the attempts of a failed training, or ""."""
    sentence = _TRIED.get(params.get("tried", ""), "")
    return sentence.format_map(params)


def _lost_before_a_step(params: Params) -> str:
    times = f"{params['fruitless_starts']} times in a row"
    if params["message"] == "gang_lost_too_often":
        nothing = "a new file in CHECKPOINT_DIR or a new checkpoint of a library"
        return f"A rank was killed{_signals(params)}, {times} without {nothing}."
    return f"All ranks were killed{_signals(params)} before the first step, {times}."


_TRIED = {
    "twice_in_two_ranks": "The same error occurred twice after step {step}, in two ranks.",
    "training_complete": "The training itself was complete.",
    "restarts_used_up": "It was restarted {restarts} times after errors.",
    "same_error": "Each of {attempts} attempts failed with the same error, and none got beyond step {step}.",
    "always_an_error": "Each of {attempts} attempts failed with an error, and none got beyond step {step}.",
}

#: Key -> format string of the params, or a function of them.
OF_EVENTS: dict[str, str | Callable[[Params], str]] = {
    # Requested by users.
    "submitted": "Submitted; waiting for the scheduler.",
    "cancelled": "Cancelled; all its processes have ended.",
    "cancelled_by": "Cancelled by {by}.",
    "cancelling": "Cancelled by {by}; its processes are being terminated.",
    "pruned": "Stopped by its study: {sentence}",
    "limit_near": _limit_near,
    "limit_reached": _limit_reached,
    "limit_held_back": _restart("Suspended at its time limit. Once resumed, it has the same time again; {restart}."),
    "gang_limit_held_back": _restart("Suspended at its time limit. Once resumed, {restart}."),
    "suspended": "Suspended by {by}.",
    "suspended_with_grace": "Suspended by {by}. Its script gets SIGTERM and {seconds} s to save.",
    "resumed": "Resumed by {by}.",
    "hidden": "Deleted by {by} for clients of WMLA's interface. The training and its usage are kept here.",
    "changed": _changed,
    "workers_beyond_group": (
        "{workers} workers were requested, but {group} has {capacity} GPUs: the maximum is set to {max_slots}."
    ),
    "workers_of_one_process": (
        "{workers} workers were requested, but {framework} runs one process: the maximum is set to {max_slots}."
    ),
    "no_most_workers": (
        "No maximum of workers was given: it is set to {max_slots}, the GPUs of {group}, even if the script requests "
        "more."
    ),
    "requirements_skipped": lambda params: f"Skipped lines of the requirements: {' '.join(params['lines'])}",
    "runs_exactly": lambda params: " ".join(
        (f"Runs what attempt {params['attempt']} of training {params['job']} ran.", *params["notes"])
    ),
    "model_renamed": "The model is registered as {model}, because another user has a model named {wanted}.",
    "without_effect": "Options without effect here: {options}.",
    # Reported by ranks and hosts.
    "started": lambda params: f"Training runs on {params['slots']} of {gpus(params['target'])}.",
    "restored": _restored,
    "continued": "It continued at {unit} {first}, where the attempt before had reached {unit} {reached}.",
    "began_anew": _began_anew,
    "rank_lost": "A rank was lost; the other ranks continue.",
    "rank_stuck": "Rank {member_id} on {host} is killed: {why}. The other ranks continue.",
    "growth_given_up": _growth_given_up,
    "rank_failed": _rank_failed,
    "no_progress": "{text}",
    "copies": _copies,
    "ranks_stay": lambda params: (
        f"{_processes(params['ended'])} ended with exit code 0, but {_processes(params['live'], 'are', 'is')} still "
        f"running. Processes still running {params['minutes']:g} minutes after the first end are terminated. Until "
        "then, the training holds its GPUs: stop it now if its results are complete."
    ),
    "ranks_may_stay": lambda params: (
        f"{params['by']} lets the processes that are still running continue for {duration(params['seconds'])} more. "
        "The training holds its GPUs until then."
    ),
    "ranks_overdue": lambda params: (
        f"{_processes(params['live'], 'were', 'was')} still running {params['minutes']:g} minutes after another "
        "process had ended with exit code 0, and will be terminated. Saved files are kept."
    ),
    "rank_lingers": lambda params: (
        f"The script has ended in rank {params['member_id']}, but a thread or process that it started still runs and "
        f"holds the GPU. The rank ends once that has been idle for {duration(params['seconds'])}; its log names it. "
        "Make it a daemon, or end it with the script."
    ),
    "idle_warned": lambda params: _idle_warned(params),
    "idle_shrinks": lambda params: (
        f"The training has used none of its GPUs for {duration(params['seconds'])}: it shrinks to its minimum of "
        f"{gpus(params['least'])}. In {duration(params['grace'])}, it is suspended with a checkpoint."
    ),
    "idle_halts": lambda params: (
        f"The training has used none of its GPUs for {duration(params['seconds'])}: it stops, with a checkpoint if its "
        "script makes one, and is suspended."
    ),
    "idle_kept": lambda params: (
        f"{params['by']} keeps the idle GPUs for an hour. "
        + plural(params["left"], "That is possible once more.", "That is possible {count} more times.")
    ),
    "host_leaves": lambda params: _host_leaves(params),
    "host_lost": "The host {host} no longer reports.",
    "gang_host_lost": _restart("The host {host} no longer reports, so all ranks are stopped; {restart}."),
    "lead_moved": "{host} has not been heard from for {seconds:g} s: {lead} leads the training from here on.",
    "held_still": lambda params: (
        f"{params['host']} reached neither {listed(params['gone'], 'hosts')} nor the control plane, so it made no "
        "step: either they are back before it gives up, or the training goes on where most of its hosts are."
    ),
    "environment_building": lambda params: _building(params["requirements"].splitlines(), params["host"]),
    "environment_changed": lambda params: (
        f"The folder {params['folder']} has changed on {params['host']} since the training's processes started "
        f"({', '.join(params['changes'])}). They keep what they have loaded, and may fail where they load more. "
        "The next attempt runs with what the folder then holds."
    ),
    "environment_differs": lambda params: (
        f"{params['host']} runs the training with other packages than {params['other']} "
        f"({', '.join(params['changes'])}). Results may depend on the host, and ranks with another torch may fail: "
        "make the hosts alike."
    ),
    "environment_failed": (
        "The training's environment could not be prepared on {host}: {error}. See the log for details, correct the "
        "requirements, and clone the training."
    ),
    "secrets_failed": "The training did not start because it could not get its secrets: {error}.",
    "checkpoint_failed": (
        "No checkpoint could be saved at step {step}: {error}. The training continues, and older checkpoints are kept."
    ),
    "gpu_nearly_full": (
        "The memory of a GPU on {host} is nearly full: tensors have taken up to {peak} of {limit}, {below} below the"
        " limit, first at the rank's step {step}. Longer samples or a larger batch could end the training."
    ),
    "gpu_is_full": "The training could not change its size, and trains on. Rank {why}. It is tried again.",
    "profile_refused": "Step times are no longer recorded: {why}. The training continues.",
    "batch_refused": (
        "A micro-batch of {samples} samples does not fit into the memory of {kind}. From the next start, the limit is "
        "{limit} samples."
    ),
    "batch_pinned": (
        "The loss has risen since the batch size grew. From now on, it stays at the submitted {batch_size} samples."
    ),
    "size_shows": lambda params: (
        "From now on, the curves may differ from those of an undisturbed run by more than rounding: the model has "
        f"{', '.join(params['layers'])}, whose results depend on the number of GPUs ({params['before']} before, "
        f"{params['slots']} now). Exactness bitwise gives the same result on any number of GPUs."
    ),
    "report_set_aside": (
        "A report of {host} cannot be stored and was skipped ({kind}, number {number}): {error}. Its other reports are "
        "stored. Administrators see the report on Hosts."
    ),
    "report_lost": (
        "A report of {host} about the training's processes cannot be stored ({kind}, number {number}: {error}), so "
        "their state is unknown. Files and checkpoints are kept: ask an administrator, then clone the training or "
        "continue from a checkpoint."
    ),
    "halted": "Stopped after step {step}, with a checkpoint. No step is lost, and training will continue from there.",
    "halt_timeout": _halt_timeout,
    "trained": _trained,
    "measured": "Evaluated on the held-out samples. The result is saved.",
    # Derived from the exits of the ranks.
    "complete": "The training is complete.",
    "no_step": (
        "The script ended without an error, but it made no step, so nothing has been trained. Check that its loop "
        "has batches: with drop_last, fewer samples than one batch leave none."
    ),
    "ended_early": "The script ended by itself on all ranks after step {step}, before its last epoch.",
    "failed": _failed,
    "failed_once": _restart("The script failed on {host}: {error}. In its next attempt, {restart}."),
    "ranks_lost": _restart("All ranks were killed{cause}. In its next attempt, {restart}."),
    "ranks_lost_too_often": _lost_before_a_step,
    "gang_lost": _restart("A rank was killed{cause}, so all ranks are stopped; {restart}."),
    "gang_lost_too_often": _lost_before_a_step,
    "held_back": _restart("Suspended. Once resumed, {restart}."),
    "gang_held_back": _restart("Suspended. Once resumed, {restart}."),
    "stopped": _restart("Stopped. When GPUs are free for it, {restart}."),
    "gang_stopped": _restart("Stopped. When GPUs are free for it, {restart}."),
    # Shutdown of Tidepool.
    "stack_stopping": "Tidepool is shutting down. The training continues when Tidepool starts again.",
    "stack_stopped": "Tidepool was shut down. The training restarts from its last checkpoint, or from the beginning.",
    "stack_stopped_gang": _restart("Tidepool was shut down; {restart}."),
    "stack_stopped_held_back": "Suspended; all its processes have ended.",
}
