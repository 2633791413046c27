"""Sentences about the lines of plans: the GPUs that each job gets, and the rule that decided."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from django.utils import timezone

from core.text import plural
from jobs.messages.spans import span_in_words
from jobs.words import NO_KIND, gpus, label, listed, speed_source, trainings
from scheduling.forecast import Span

__all__ = ["OF_PLANS"]

Params = Mapping[str, Any]
_PARTS = {Fraction(1, 2): "half", Fraction(1, 3): "a third", Fraction(2, 3): "two thirds", Fraction(1, 4): "a quarter"}
_PARTS = {Fraction(1, 2): "half", Fraction(1, 3): "a third", Fraction(2, 3): "two thirds", Fraction(1, 4): "a quarter"}


def _compared(params: Params) -> str:
    """Compare the priorities of the job and of the first other job, from the view of the job's owner."""
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


def _share(rule: str | Callable[[Params], str]) -> Callable[[Params], str]:
    """Return the sentence function of a job with a target, from the wording of the deciding rule."""

    def sentence(params: Params) -> str:
        because = rule.format_map(params) if isinstance(rule, str) else rule(params)
        parts = [f"{params['target']} of {gpus(params['capacity'])}: {because}"]
        if "fills" in params:
            parts.append(_FILLS[params["fills"]].format(first=label(params["before_whom"])))
        if "study_slots" in params and params["message"] != "study":
            parts.append(_study(params))
        if "over_quota" in params:
            parts.append(_OVER_QUOTA[params["before"] > 0].format_map(params))
        if "group_room" in params:
            parts.append(_group(params))
        if "kind" in params:
            parts.append(_kind(params))
        if "finish_time_ratio" in params:
            parts.append(_LATE.format_map(params))
        if "fewer_hosts" in params:
            parts.append(_joins(params))
        if hosts := params.get("moving_off"):
            parts.append(f"moves off {listed(hosts, 'hosts')}")
        if hosts := params.get("leaving"):
            parts.append(f"leaves {listed(hosts, 'hosts')} when other GPUs are free")
        parts += _missing(params, "them")
        return f"{'; '.join(parts)}."

    return sentence


#: Phrase about a training that weighs more because it is late.
_LATE = (
    "it takes {finish_time_ratio} times as long as with an equal part of all GPUs from the beginning, and so weighs "
    "{late_weight} times as much"
)

#: Whether a job runs already that gets more than its group's part -> why it does.
_OVER_QUOTA = {
    False: "its group's share is {over_quota}, but it has waited long for its minimum",
    True: "its group's share is {over_quota}, but it keeps its minimum, which would be reserved for it again",
}

#: Rule by which a job starts before the first in the queue -> its effect on both.
_FILLS = {
    "in_time": "it starts before {first}, because it will end before {first} can start",
    "beside": "it starts before {first}, which does not need these GPUs",
    "meanwhile": "it starts before {first}, which cannot start while other trainings keep their minimum",
    "gives_way": "it starts before {first}, and stops with a checkpoint when {first} can start",
}


def _group(params: Params) -> str:
    terms = [f"its {key} of {params[f'group_{key}']}" for key in ("quota", "weight") if f"group_{key}" in params]
    limited = "" if "group_weight" in params else ", because it does not borrow"
    # Whole shares differ from the exact ones by less than one.
    less = ", minus GPUs that other groups still hold" if params["group_room"] + 1 <= params["group_deserved"] else ""
    draining = f", minus {params['group_draining']} on draining hosts" if "group_draining" in params else ""
    return (
        f"its group has {params['group_room']} of {gpus(params['group_total'])}, "
        f"by {' and '.join(terms)}{limited}{less}{draining}"
    )


def _kind(params: Params) -> str:
    verb = "it moves to" if params["moves_to_kind"] else "it runs on"
    if "kind_weight" in params:
        return f"{verb} {params['kind'] or NO_KIND}, each of which counts {params['kind_weight']}"
    faster, other = params["kind_faster"], params["other_kind"] or NO_KIND
    compared = f"{abs(faster)} % {'faster' if faster > 0 else 'slower'} than" if faster else "as fast as"
    assumed = f" ({_origin(params)})" if params["kind_assumed"] else ""
    return f"{verb} {params['kind'] or NO_KIND}, where it is {compared} on as many {other}{assumed}"


def _origin(params: Params) -> str:
    """Return the origin of an estimated speed. Older rows lack it."""
    if "kind_source" not in params:
        return "estimated"
    return speed_source(params["kind_source"], params["kind_trainings"], params.get("kind_third", ""))


def _joins(params: Params) -> str:
    to = plural(params["fewer_hosts"], "{count} host", "{count} hosts")
    return f"it moves from {params['hosts']} hosts to {to}, where it is {params['joined_faster']} % faster"


def _missing(params: Params, of: str) -> list[str]:
    """Return phrases about the slots that are being released, and those that other trainings still hold."""
    returning = min(params["missing"], params.get("givers_slots", 0))
    kept, parts = params["missing"] - returning, []
    if returning:
        verbs = "is being released by {givers}", "are being released by {givers}"
        one, several = (f"{{count}} of {{of}} {words}" for words in verbs)
        parts.append(plural(returning, one, several, of=of, givers=_givers(params)))
    if kept:
        parts.append(plural(kept, "{count} of {of} is not free yet", "{count} of {of} are not free yet", of=of))
    return parts


def _givers(params: Params) -> str:
    if params["givers_count"] > len(params["givers"]):
        return f"{params['givers_count']} trainings"
    return listed([label(giver) for giver in params["givers"]], "trainings")


def _by_priority(params: Params) -> str:
    # Older rows lack the number of trainings that share by priority.
    count, shared = params.get("sharing_count", params["others_count"]), params.get("shared", params["capacity"])
    part = _part(params["priority"], params["total_priority"])
    weights = f"{params['priority']} of {params['total_priority']} in all"
    return f"{part} of the {shared} that {trainings(count + 1)} share by priority ({weights})"


def _by_weights(params: Params) -> str:
    shared = f"of the {params['counts_in_all']} that {trainings(params['jobs_that_share'])} share"
    weights = f"{params['priority']} of {params['priorities']} in all"
    part = f"its part by priority would be {params['counts_by_priority']} ({weights})"
    return f"by the weights of GPU models, they count {params['counts']}; {shared}, {part}"


def _part(priority: int, total: int) -> str:
    """Return the part of all priorities in words, such as "half", "a third" or "39 %"."""
    return _PARTS.get(Fraction(priority, total)) or f"{100 * priority / total:.0f} %"


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
    verb = "makes" if params["other_more"] == 1 else "make"
    return f"{sentence}, while the last {more} of {other} {verb} {other} {params['other_faster']} % faster"


def _ahead(params: Params) -> str:
    [ahead] = params["others"]
    return f"{label(ahead)} is ahead in the queue and waits for {gpus(ahead['min_slots'])}"


def _study(params: Params) -> str:
    has = "waits for its first GPUs"
    if params["study_slots"]:
        of = f"{params['study_slots']} of {gpus(params['capacity'])}"
        # A training with slots has said before how many there are.
        slots = gpus(params["study_slots"]) if params.get("target") else of
        has = f"has {slots} for {trainings(params['study_trainings'])}"
    return f"its study {has}, and counts as one training with priority {params['study_priority']}"


def _study_waits(params: Params) -> str:
    group = f"; {_group(params)}" if "group_room" in params else ""
    return f"Waits: {_study(params)}{group}."


def _pinned(params: Params) -> str:
    hosts = listed(params["hosts"], "hosts")
    why = "it runs on a fixed number of GPUs"
    if params["elastic"]:
        why = f"its minimum of {params['min_slots']} fits nowhere else"
    stays = plural(
        len(params["hosts"]),
        "stays on {hosts}, which is draining, because {why}",
        "stays on {hosts}, which are draining, because {why}",
        hosts=hosts,
        why=why,
    )
    return f"{gpus(params['target'])}: {stays}."


def _reclaimed(params: Params) -> str:
    why = _group(params) if "group_room" in params else "other GPUs of its group are free for it"
    if "group_room" not in params or params.get("group_weight"):
        them = "it" if params["before"] == 1 else "them"
        why = f"other groups are entitled to {them}; {why}"
    return f"Stops for now and releases {gpus(params['before'])}: {why}{_lost(params)}."


def _lost(params: Params) -> str:
    """Return a phrase about the work lost by the stop; "" for older rows, which lack it."""
    if not params.get("continues", True):
        return "; it will start from scratch, unless its script saves now"
    minutes = params.get("loses_minutes", 0)
    one = "; at most {count} GPU-minute of work since its last checkpoint is lost"
    several = "; at most {count} GPU-minutes of work since its last checkpoint are lost"
    return plural(minutes, one, several) if minutes else ""


def _being_released(params: Params) -> str:
    where = ", on one host" if "one_host" in params else ", as many on each host" if "equal_hosts" in params else ""
    missing = _missing(params, gpus(params["target"]))
    if not missing:  # enough are free, but not on the right hosts
        return f"Waits until {gpus(params['target'])} are free{where}."
    return f"Waits: {'; '.join(missing)}{where}."


def _too_large(params: Params) -> str:
    why = _group(params) if "group_room" in params else f"its group has {params['capacity']} to share now"
    return f"Needs {gpus(params['min_slots'])} at once: {why}{_absent(params)}{_reserved(params)}."


#: State of a host that is out of service -> what it does. Plans of simulated clusters know no states.
_OUT = {
    "draining": "is draining",
    "lost": "does not report",
    "offline": "is offline",
    "unwalled": "cannot keep trainings apart",
    "former": "is of a former release, whose processes cannot join the trainings that run now, and has to be upgraded",
    "sick": "has faulty GPUs",
    "open": "does not keep trainings apart as the group demands",
    "": "is out of service",
}


def _absent(params: Params) -> str:
    """Return a phrase about the hosts out of service with which the training would start."""
    hosts = params.get("absent", ())
    named = [f"{host['host']} ({gpus(host['slots'])}) {_OUT[host['state']]}" for host in hosts]
    return f"; {listed(named, 'hosts are out of service')}" if named else ""


def _behind(params: Params) -> str:
    [ahead] = params["others"]
    which = "was submitted first"
    if params["message"] == "behind_priority":
        which = f"has a higher priority ({ahead['priority']} to {params['priority']})"
    return f"Waits behind {label(ahead)}, which {which} and needs {gpus(ahead['min_slots'])}."


def _in_line(params: Params) -> str:
    waits = plural(params["missing"], "Waits for {count} more GPU", "Waits for {count} more GPUs")
    whose = "are in use" if params["message"] == "in_line" else "are the minimum of other trainings"
    group = f"; {_group(params)}" if "group_room" in params else ""
    needs = f"it needs {params['min_slots']}, and {params['taken']} of {params['capacity']} {whose}"
    return f"{waits}: {needs}{group}{_absent(params)}{_reserved(params)}."


def _reserved(params: Params) -> str:
    if "reserved" not in params:
        return ""
    on = f" on {listed(params['reserved_hosts'], 'hosts')}" if "reserved_hosts" in params else ""
    verb = "is" if params["reserved"] == 1 else "are"
    return f"; {gpus(params['reserved'])}{on} {verb} reserved for it{_available(params)}"


def _available(params: Params) -> str:
    """Return a phrase about the end of a reservation's wait, as a duration: a sentence has no time zone."""
    seconds = params.get("reserved_at", 0) - timezone.now().timestamp()
    if seconds <= 0:
        return ", as soon as other trainings release them"
    return f", and become free {span_in_words(Span(0.0, seconds))}"


def _one_host(params: Params) -> str:
    needs = f"no host has more than {params['most']} for it"
    return f"Waits for {gpus(params['min_slots'])} on one host: {needs}{_absent(params)}."


def _held_back_for(params: Params) -> str:
    first, kept = label(params["first"]), gpus(params["reserved"])
    return f"Waits: {first} is first in the queue. {kept} are reserved for {first}{_available(params)}."


def _gave_way(params: Params) -> str:
    [first] = params["others"]
    they = "it is" if params["before"] == 1 else "they are"
    return (
        f"Stops for now and releases {gpus(params['before'])}: {they} reserved for {label(first)}, which is first in "
        f"the queue and needs {gpus(first['min_slots'])}."
    )


#: Why a training uses GPUs of one model, as the end of a sentence.
_BITWISE = "exactness bitwise: other models compute other bits"


def _model(params: Params) -> str:
    return str(params["began_on"] or NO_KIND)


def _all_of_kind(params: Params) -> str:
    return f"all that its group can use of {_model(params)} ({_BITWISE})"


def _one_kind_lacks(params: Params) -> str:
    needs = f"Waits for {gpus(params['min_slots'])}, all {_model(params)}"
    return f"{needs}: its group can use {params['most'] or 'none'} of them now ({_BITWISE})."


def _preparing(params: Params) -> str:
    start = f"{gpus(params['target'])}" if params["target"] else "Waits"
    parts = []
    if hosts := params["preparing"]:
        verb = plural(len(hosts), "prepares its packages", "prepare its packages")
        gets = "can grow there" if params["target"] else "starts"
        parts.append(f"{listed(hosts, 'hosts')} {verb} before it {gets}")
    if hosts := params["unfit"]:
        parts.append(f"its packages cannot be installed on {listed(hosts, 'hosts')}, see the page Environments")
    if hosts := params.get("other_kinds"):
        lacks = plural(len(hosts), "has none", "have none")
        parts.append(f"it uses {_model(params)} alone, of which {listed(hosts, 'hosts')} {lacks} ({_BITWISE})")
    return f"{start}: {'; '.join(parts)}."


#: Key -> format string of the params, or a function of them.
OF_PLANS: dict[str, str | Callable[[Params], str]] = {
    "fixed": _share("it runs on exactly {max_slots}"),
    "maximum": _share("its maximum is {max_slots}"),
    "newcomers_fail": _share("new processes of it failed twice with the same error, so it keeps this size"),
    "all_of_kind": _share(_all_of_kind),
    "one_kind_lacks": _one_kind_lacks,
    "idle": _share("it has used none of its GPUs, so it has its minimum until it makes a step"),
    "alone": _share("all available GPUs"),
    "by_priority": _share(_by_priority),
    "by_weights": _share(_by_weights),
    "one_kind": _share("it uses GPUs of one model, and shares them by weight with no other training"),
    "compared": _share(_compared),
    "others_maximum": _share(
        lambda params: _others(
            params, "{other} can use at most {slots}", "the {count} other trainings can use at most {slots}"
        )
    ),
    "others_have": _share(
        lambda params: _others(params, "{other} has {slots}", "{count} other trainings have {slots}")
    ),
    "others_limits": _share("{others_count} other trainings have {others_slots}, each its minimum or maximum"),
    "floor": _share("its minimum is {floor}"),
    "floor_of_other": _share(_of_other("the minimum of {other} is {floor}")),
    "kept": _share("it keeps {floor}, because preemption is off"),
    "kept_of_other": _share(_of_other("{other} keeps {floor}, because preemption is off")),
    "limited": _share("it keeps {floor} of {before}, because its group returns GPUs to other groups"),
    "below_minimum": _share("it keeps its GPUs, although its minimum is {min_slots}"),
    "goodput": _share(_goodput),
    "knee": _share("more would make it at most {least_gain} % faster"),
    "measured_on": _share("it was measured on at most {measured}, and gets at most four times as many"),
    "whole_hosts": _share("beyond the {host} GPUs of one host, it gets whole hosts only"),
    "unmeasured": _share("its speed on more GPUs has not been measured yet"),
    "ahead": _share(_ahead),
    "study": _share(_study),
    "study_waits": _study_waits,
    "study_shrinks": lambda params: (
        f"Stops for now and releases {gpus(params['before'])}: {_study(params)}{_lost(params)}."
    ),
    "protected": _share("kept, because its group stops no training in its first {minimum_run_seconds} s"),
    "pinned": _pinned,
    "preparing": _preparing,
    "reclaimed": _reclaimed,
    "stopped_by_priority": lambda params: (
        f"Stops for now and releases {gpus(params['before'])}: {_compared(params)}{_lost(params)}."
    ),
    "gave_way": _gave_way,
    "held_back_for": _held_back_for,
    "one_host": _one_host,
    "closed": "Waits: its instance group {group} is stopped. Trainings start once the group is started.",
    "given_back": _being_released,
    "too_large": _too_large,
    "behind": _behind,
    "behind_priority": _behind,
    "in_line": _in_line,
    "in_line_for_minimums": _in_line,
}
