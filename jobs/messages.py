"""The sentences of jobs' reasons, rendered from params. Rows store code and params: rewording changes no row.

`params["message"]` is the key of the sentence, set by the scheduler or by `message()`. A sentence is a format of the
params, or a function of them where it has a plural or parts that may be missing.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from core.time import duration
from jobs.words import gpus, label, listed, plural

__all__ = ["HOW_TO_REQUIRE", "SENTENCES", "message", "text_of", "tried"]

Params = Mapping[str, Any]


def message(key: str, **params: Any) -> dict[str, Any]:
    """Params of a row whose sentence is that of `key`."""
    assert key in SENTENCES, f"no sentence {key!r}"
    return {"message": key, **params}


def text_of(params: Params) -> str:
    """The sentence; "" where there is no reason yet."""
    if "message" not in params:
        return ""
    sentence = SENTENCES[params["message"]]
    return sentence.format_map(params) if isinstance(sentence, str) else sentence(params)


def _compared(params: Params) -> str:
    """The priorities of the job and of the first other one, as the owner of the job reads it."""
    [other] = params["others"]
    mine, theirs = params["priority"], other["priority"]
    if theirs == mine:
        return f"{label(other)} has the same priority ({mine})"
    if theirs > mine:
        how = _times(theirs, mine)
        priority = f"{how} your priority" if how else "a higher priority than yours"
        return f"{label(other)} has {priority} ({theirs} to {mine})"
    how = _times(mine, theirs)
    priority = f"{how} the priority of" if how else "a higher priority than"
    return f"you have {priority} {label(other)} ({mine} to {theirs})"


def _times(larger: int, smaller: int) -> str:
    if larger % smaller:
        return ""
    return "twice" if larger == 2 * smaller else f"{larger // smaller} times"


# --- lines of plans --------------------------------------------------------------------------------------------------


def _share(rule: str | Callable[[Params], str]) -> Callable[[Params], str]:
    """The sentence of a job that has a target, by the words of the rule that decided."""

    def sentence(params: Params) -> str:
        because = rule.format_map(params) if isinstance(rule, str) else rule(params)
        parts = [f"{params['target']} of {gpus(params['capacity'])}: {because}"]
        if "fills" in params:
            parts.append(_FILLS[params["fills"]].format(first=label(params["before_whom"])))
        if "above_part" in params:
            parts.append(f"its group's part is {params['above_part']}, and it has waited for as much as it needs")
        if "group_room" in params:
            parts.append(_group(params))
        if hosts := params.get("moving_off"):
            parts.append(f"moves off {listed(hosts, 'hosts')}")
        if hosts := params.get("leaving"):
            parts.append(f"leaves {listed(hosts, 'hosts')} once other GPUs are free")
        parts += _missing(params, "them")
        return f"{'; '.join(parts)}."

    return sentence


#: By which rule it starts before the first in line -> what that means for both.
_FILLS = {
    "in_time": "it starts before {first}, as it is over before that one can start",
    "beside": "it starts before {first}, which does not need these GPUs",
    "gives_way": "it starts before {first}, and stops with a checkpoint once that one can start",
}


def _group(params: Params) -> str:
    terms = [f"its {key} of {params[f'group_{key}']}" for key in ("quota", "weight") if f"group_{key}" in params]
    limited = "" if "group_weight" in params else ", as it borrows nothing"
    # Whole parts are less than one apart from the exact ones.
    less = ", less what other groups keep for now" if params["group_room"] + 1 <= params["group_deserved"] else ""
    return (
        f"its group has {params['group_room']} of {gpus(params['group_total'])}, "
        f"by {' and '.join(terms)}{limited}{less}"
    )


def _missing(params: Params, of: str) -> list[str]:
    """What is being given back, and what others keep for now."""
    returning = min(params["missing"], params.get("givers_slots", 0))
    kept, parts = params["missing"] - returning, []
    if returning:
        is_coming = "is being given back by {givers}", "are being given back by {givers}"
        one, several = (f"{{count}} of {{of}} {words}" for words in is_coming)
        parts.append(plural(returning, one, several, of=of, givers=_givers(params)))
    if kept:
        parts.append(plural(kept, "{count} of {of} is not free yet", "{count} of {of} are not free yet", of=of))
    return parts


def _givers(params: Params) -> str:
    if params["givers_count"] > len(params["givers"]):
        return f"{params['givers_count']} trainings"
    return listed([label(giver) for giver in params["givers"]], "trainings")


def _by_priority(params: Params) -> str:
    # Rows of before name no figures of those that share by priority alone.
    count, shared = params.get("sharing_count", params["others_count"]), params.get("shared", params["capacity"])
    others = plural(count, "{count} other training", "{count} other trainings")
    sentence = f"shared by priority with {others} ({params['priority']} of {params['total_priority']} in all)"
    if shared == params["capacity"]:
        return sentence
    return f"{shared} of them are {sentence}; the rest have the least or the most that they can have"


def _others(params: Params, one: str, several: str) -> str:
    others = params.get("others")
    name = label(others[0]) if others else ""
    return plural(params["others_count"], one, several, other=name, slots=params["others_slots"])


def _of_other(words: str) -> Callable[[Params], str]:
    return lambda params: words.format(other=label(params["others"][0]), **params)


def _goodput(params: Params) -> str:
    sentence = f"{params['next']} would make it {params['faster']} % faster"
    if "others" not in params:
        return sentence
    more, other = gpus(params["other_more"]), label(params["others"][0])
    return f"{sentence}, and the last {more} of {other} make that one {params['other_faster']} % faster"


def _ahead(params: Params) -> str:
    [ahead] = params["others"]
    return f"{label(ahead)} waits before it for {gpus(ahead['min_slots'])}"


def _pinned(params: Params) -> str:
    hosts = listed(params["hosts"], "hosts")
    why = "it runs on a fixed number of GPUs"
    if params["elastic"]:
        why = f"its minimum of {params['min_slots']} fits nowhere else"
    stays = plural(
        len(params["hosts"]),
        "stays, though {hosts} takes nothing new, because {why}",
        "stays, though {hosts} take nothing new, because {why}",
        hosts=hosts,
        why=why,
    )
    return f"{gpus(params['target'])}: {stays}."


def _reclaimed(params: Params) -> str:
    why = _group(params) if "group_room" in params else "others of its group's GPUs are free for it"
    if "group_room" not in params or "group_weight" in params:
        them = "it" if params["before"] == 1 else "them"
        why = f"other groups are entitled to {them}; {why}"
    return f"Stops for now and gives back {gpus(params['before'])}: {why}{_lost(params)}."


def _lost(params: Params) -> str:
    """What the stop costs. Rows of before do not say."""
    if not params.get("continues", True):
        return "; it will begin again from nothing, unless its script saves now"
    minutes = params.get("loses_minutes", 0)
    one = "; at most {count} GPU-minute of work since its last checkpoint is lost"
    several = "; at most {count} GPU-minutes of work since its last checkpoint are lost"
    return plural(minutes, one, several) if minutes else ""


def _given_back(params: Params) -> str:
    return f"Waits: {'; '.join(_missing(params, gpus(params['target'])))}."


def _too_large(params: Params) -> str:
    why = _group(params) if "group_room" in params else f"its group has {params['capacity']} to share now"
    return f"Needs {gpus(params['min_slots'])} at once: {why}{_reserved(params)}."


def _behind(params: Params) -> str:
    [ahead] = params["others"]
    which = "came first"
    if params["message"] == "behind_priority":
        which = f"has a higher priority ({ahead['priority']} to {params['priority']})"
    return f"Waits behind {label(ahead)}, which {which} and needs {gpus(ahead['min_slots'])}."


def _in_line(params: Params) -> str:
    waits = plural(params["missing"], "Waits for {count} more GPU", "Waits for {count} more GPUs")
    whose = "are taken" if params["message"] == "in_line" else "are the least that other trainings need"
    group = f"; {_group(params)}" if "group_room" in params else ""
    needs = f"it needs {params['min_slots']}, and {params['taken']} of {params['capacity']} {whose}"
    return f"{waits}: {needs}{group}{_reserved(params)}."


def _reserved(params: Params) -> str:
    if "reserved" not in params:
        return ""
    on = f" on {listed(params['reserved_hosts'], 'hosts')}" if "reserved_hosts" in params else ""
    return f"; {gpus(params['reserved'])}{on} are reserved for it{_from(params)}"


def _from(params: Params) -> str:
    if "reserved_at" not in params:
        return ", as others give them back"
    at = datetime.fromtimestamp(params["reserved_at"], UTC)
    return f" from {at:%d %b %H:%M} UTC at the latest"


def _held_back_for(params: Params) -> str:
    first, kept = label(params["first"]), gpus(params["reserved"])
    return f"Waits: {first} comes first and needs {kept} at once, which are kept for it{_from(params)}."


def _gave_way(params: Params) -> str:
    [first] = params["others"]
    they = "it is" if params["before"] == 1 else "they are"
    return (
        f"Stops for now and gives back {gpus(params['before'])}: {they} reserved for {label(first)}, which comes first "
        f"and needs {gpus(first['min_slots'])}."
    )


# --- what happens outside of plans -----------------------------------------------------------------------------------

_RESTARTS = {
    True: "it continues from its CHECKPOINT_DIR, as far as its script reads that",
    False: (
        "it starts again from nothing, for its script has left nothing that it said can be resumed; its working folder "
        "stays as it is"
    ),
}
#: Column -> the words of its change, and of its undoing.
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


#: For a module that the cluster lacks.
HOW_TO_REQUIRE = (
    "Require what brings it: in Requirements, in a requirements.txt beside the script, or as dependencies in the "
    "script itself (PEP 723)."
)


def _failed(params: Params) -> str:
    lacks = HOW_TO_REQUIRE if params["error"].startswith("ModuleNotFoundError") else ""
    said = f"The script failed on {params['host']}: {params['error']}."
    return " ".join(filter(None, (said, lacks, tried(params))))


def tried(params: Params) -> str:
    """The sentence about the attempts of a training that failed, or ""."""
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

#: Key -> a format of the params, or a function of them.
SENTENCES: dict[str, str | Callable[[Params], str]] = {
    # Of a plan, with slots.
    "fixed": _share("it runs on exactly {max_slots}"),
    "maximum": _share("the most it asks for is {max_slots}"),
    "alone": _share("all there are"),
    "by_priority": _share(_by_priority),
    "compared": _share(_compared),
    "others_maximum": _share(
        lambda params: _others(
            params, "the most {other} can use is {slots}", "the most the {count} other trainings can use is {slots}"
        )
    ),
    "others_have": _share(
        lambda params: _others(params, "{other} has {slots}", "{count} other trainings have {slots}")
    ),
    "others_limits": _share(
        "{others_count} other trainings have {others_slots}, each the least or the most that it can have"
    ),
    "floor": _share("the least it needs is {floor}"),
    "floor_of_other": _share(_of_other("the least {other} needs is {floor}")),
    "kept": _share("it keeps {floor}, as preemption is off"),
    "kept_of_other": _share(_of_other("{other} keeps {floor}, as preemption is off")),
    "limited": _share("it keeps {floor} of the {before} that it had, as its group gives GPUs back"),
    "below_minimum": _share("it keeps what it has, though it needs {min_slots}"),
    "goodput": _share(_goodput),
    "knee": _share("more would make it at most {least_gain} % faster"),
    "measured_on": _share("it was measured on {measured} at most, and is offered four times as many"),
    "whole_hosts": _share("beyond the {host} of a host it is offered whole hosts"),
    "unmeasured": _share("nothing was measured yet of how fast it is on more"),
    "ahead": _share(_ahead),
    "protected": _share("kept, as its group stops no training in its first {minimum_run_seconds} s"),
    "pinned": _pinned,
    "reclaimed": _reclaimed,
    "stopped_by_priority": lambda params: (
        f"Stops for now and gives back {gpus(params['before'])}: {_compared(params)}{_lost(params)}."
    ),
    "gave_way": _gave_way,
    "held_back_for": _held_back_for,
    "closed": "Waits: its instance group {group} is stopped, and nothing starts there until it is started.",
    "given_back": _given_back,
    "too_large": _too_large,
    "behind": _behind,
    "behind_priority": _behind,
    "in_line": _in_line,
    "in_line_for_minimums": _in_line,
    # Asked for by people.
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
    "copies": lambda params: (
        f"Its {params['live']} processes have formed no process group within a minute: as far as can be seen they are "
        f"{params['live']} copies of the script, each of which does all the work. Call "
        "torch.distributed.init_process_group, or train it on 1 GPU."
    ),
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
    "halted": "Stopped after step {step}, with a checkpoint of it: no step is lost, and it will continue there.",
    "halt_timeout": _halt_timeout,
    "trained": _trained,
    "measured": "Measured on the held-out samples; the result is written.",
    # Judged from the ends of its ranks.
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
    # The whole of Tidepool stops.
    "stack_stopping": "Tidepool is being stopped; the training goes on at its next start.",
    "stack_stopped": "Tidepool was stopped; the training starts again from its last checkpoint.",
    "stack_stopped_gang": _gang_restart("Tidepool was stopped; {restart}."),
    "stack_stopped_held_back": "Held back; all its processes have ended.",
}
