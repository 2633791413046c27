"""Checks of a submission. Each adds a sentence to the invalid field."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from django.contrib.auth.models import User

from core.errors import UserError
from core.parameters import checked_parameters, misfits
from core.roles import is_cluster_admin
from core.text import MAX_NAME_LENGTH, by_reference, checked_name, is_storable
from core.visibility import readable
from datasets.models import Dataset, DatasetVersion
from datasets.queries import why_not_ready
from jobs.files.job_folder import job_folder
from jobs.models import Checkpoint, InstanceGroup, Job
from jobs.options import OPTIONS, Option, OptionColumns, Options, takes_several
from jobs.queries.groups import usable_groups
from jobs.tags import MOST_TAGS, parsed_tags
from models_registry.model_settings import checked_settings, settings_in
from models_registry.models import RegisteredModel, RegisteredModelVersion
from workers.executor.curves.pattern import PatternError, compiled
from workers.queries import capacity

__all__ = [
    "VARIABLE_NAME",
    "InvalidSubmission",
    "Problems",
    "Submitted",
    "check_arguments",
    "check_code",
    "check_enough_virtual_ranks",
    "check_exactness",
    "check_option",
    "check_others",
    "check_parameters",
    "check_pattern",
    "check_priority",
    "check_slots",
    "check_tags",
    "find_checkpoint",
    "find_dataset",
    "find_group",
    "find_model",
    "is_own_variable",
    "misfits_of",
    "shown",
    "with_virtual_ranks",
]

#: Options that `check_slots`, `check_priority` and `check_exactness` check.
_CHECKED_APART = frozenset({"min_slots", "max_slots", "priority", "exactness", "virtual_ranks"})
#: Largest number of arguments, and their total length in characters.
_MAX_ARGUMENTS = 1000
_MAX_ARGUMENTS_TEXT = 64 * 1024
_MAX_VARIABLES = 100
_MAX_VARIABLE_TEXT = 4096
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: Environment variables that Tidepool sets for each rank: another value would break it.
_OUR_VARIABLES = frozenset(
    {
        *("DATA_DIR", "RESULT_DIR", "LOG_DIR", "CHECKPOINT_DIR", "SAVED_MODEL_DIR"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        *("GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    }
)
_OUR_PREFIXES = ("TIDEPOOL_", "TORCHELASTIC_", "DLI_", "LD_")
Submitted = TypeVar("Submitted", bound=Options)
_FIXED = RegisteredModelVersion.Engine.FIXED
_SINGLE = RegisteredModelVersion.Engine.SINGLE


class InvalidSubmission(UserError):
    """A submission with errors: `fields` has the sentences for each field, and the message is the first one."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        first = next(iter(fields.values()))[0]
        super().__init__(first, fields=fields)


class Problems:
    """Collects error sentences, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self.fields: dict[str, list[str]] = {}

    def add(self, name: str, sentence: str) -> None:
        self.fields.setdefault(name, []).append(sentence)

    def add_all(self, error: UserError) -> None:
        for field, sentences in error.fields.items():
            self.fields.setdefault(field, []).extend(sentences)

    def checked_name(self, name: Any, *, limit: int = MAX_NAME_LENGTH) -> str:
        if not isinstance(name, str):
            self.add("name", "Enter a name.")
            return ""
        try:
            return checked_name(name, limit=limit)
        except UserError as error:
            self.add_all(error)
            return ""

    def raise_if_any(self) -> None:
        if self.fields:
            raise InvalidSubmission(self.fields)


def find_model(
    problems: Problems, reference: int | str | RegisteredModelVersion, number: int | None, user: User
) -> RegisteredModelVersion | None:
    """Return the model's version by number; None: the newest that the user may read. A version is returned as it is."""
    if isinstance(reference, RegisteredModelVersion):
        return reference
    model = by_reference(readable(RegisteredModel.objects.all(), user), reference)
    versions = model.versions.select_related("model").order_by("-number") if model else None
    if versions is None or (newest := versions.first()) is None:
        problems.add("model", f"Model {shown(reference)} not found: register it, or choose one from the list.")
        return None
    if number is None or number == newest.number:
        return newest
    version = versions.filter(number=number).first()
    if version is None:
        problems.add(
            "model_version", f"{newest.model.name} has no version {number}: omit the version to use the newest."
        )
    return version


def find_dataset(
    problems: Problems, reference: int | str | DatasetVersion | None, model: RegisteredModelVersion | None
) -> DatasetVersion | None:
    """Return the newest version of the named dataset. A version is returned as it is, even if its check failed.

    Returns None if there is no such dataset, and for models whose script reads none.
    """
    if reference is None:
        if model is not None and model.declared.reads_data:
            problems.add("dataset", f"The script of {model.model.name} reads a dataset: choose one.")
        return None
    if isinstance(reference, DatasetVersion):
        version: DatasetVersion | None = reference
    else:
        dataset = by_reference(Dataset.objects.all(), reference)
        version = dataset.versions.select_related("dataset").order_by("-number").first() if dataset else None
    if version is None:
        problems.add("dataset", f"Dataset {shown(reference)} not found: register it, or choose one from the list.")
    elif not Path(version.path).exists():
        problems.add("dataset", f"The files of dataset {shown(version.dataset.name)} are missing: register it again.")
        return None
    elif version is reference:
        return version
    elif why := why_not_ready(version):
        problems.add("dataset", why)
        return None
    return version


def find_group(problems: Problems, reference: int | str | None, user: User) -> InstanceGroup | None:
    """Return the instance group; for None, the only one that the user may submit to.

    Any user may submit to a group without members. A group that is not started takes no trainings.
    """
    if reference is None:
        return _only_group(problems, user)
    group = by_reference(InstanceGroup.objects.select_related("resource_group"), reference)
    members = set(group.members.values_list("pk", flat=True)) if group else set()
    if group is None or (members and user.pk not in members and not is_cluster_admin(user)):
        problems.add(
            "instance_group", f"Instance group {shown(reference)} not found, or not open to you: choose another."
        )
        return None
    if group.state != InstanceGroup.State.STARTED:
        is_stopped = group.state == InstanceGroup.State.STOPPED
        problems.add(
            "instance_group",
            f"{group.name} is {'stopped' if is_stopped else 'not started yet'} and accepts no trainings: choose "
            "another instance group, or ask an administrator to start it.",
        )
    return group


def _only_group(problems: Problems, user: User) -> InstanceGroup | None:
    groups = usable_groups(user)
    if len(groups) == 1:
        return groups[0]
    names = ", ".join(group.name for group in groups)
    problems.add(
        "instance_group",
        f"Choose an instance group: {names}."
        if groups
        else "You may not submit to any instance group: ask an administrator.",
    )
    return None


def find_checkpoint(problems: Problems, field: str, checkpoint_id: object, user: User) -> Checkpoint | None:
    if not isinstance(checkpoint_id, int) or isinstance(checkpoint_id, bool) or not 0 < checkpoint_id < 2**63:
        problems.add(field, "Give the number of a checkpoint of one of your trainings.")
        return None
    checkpoints = (
        Checkpoint.objects.all() if is_cluster_admin(user) else Checkpoint.objects.filter(job__owner_id=user.pk)
    )
    found = checkpoints.filter(pk=checkpoint_id).first()
    if found is None:
        problems.add(
            field, f"Checkpoint {checkpoint_id} not found among those of your trainings: see the Checkpoints page."
        )
    elif found.problem:
        problems.add(field, f"Checkpoint {checkpoint_id} cannot be used ({found.problem}): choose another one.")
    elif not (job_folder(found.job).path / found.path).exists():
        problems.add(field, f"The files of checkpoint {checkpoint_id} are missing: choose a newer one.")
    return found


def check_slots(
    problems: Problems,
    least: int,
    most: int,
    group: InstanceGroup | None,
    model: RegisteredModelVersion | None,
    options: Options | OptionColumns,
) -> None:
    """Check the numbers of GPUs of a training with these options."""
    fits = check_option(problems, "max_slots", most)
    # Scripts that are not elastic have no separate minimum.
    follows = model is not None and model.engine in (_FIXED, _SINGLE)
    fits = (follows or check_option(problems, "min_slots", least)) and fits
    if not fits:
        return
    if most < least:
        problems.add(
            "max_slots",
            f"The maximum of {most} GPUs is below the minimum of {least}: raise the maximum or lower the minimum.",
        )
    if model is not None and most != 1 and not takes_several(model, options.gpus_per_process):
        problems.add(
            "max_slots",
            f"{model.model.name} is a single process: request 1 GPU. If it trains in several processes, choose one GPU "
            "per process (--option gpus_per_process=one; with --option engine=fixed for all its trainings). If one "
            "process uses several GPUs or starts the others itself, choose all GPUs per process (--one-process). On "
            "the Train page, this is the field 'GPUs per process'.",
        )
    if group is not None and most > (offered := capacity(group.resource_group)):
        problems.add("max_slots", f"{group.name} has {offered} GPUs: request at most {offered}, not {most}.")


def check_exactness(problems: Problems, given: Options, model: RegisteredModelVersion | None) -> None:
    """Check the exactness. 'bitwise' computes a step in a fixed number of parts, at least one per GPU."""
    parts = given.virtual_ranks
    if not check_option(problems, "exactness", given.exactness):
        return
    if given.exactness == Job.Exactness.SUM:
        if parts is not None:
            problems.add("virtual_ranks", "Only exactness 'bitwise' has virtual ranks: choose it, or leave this empty.")
    elif model is not None and model.engine in (_FIXED, _SINGLE):
        problems.add(
            "exactness",
            f"{model.model.name} is not elastic, so its script decides how gradients are summed: choose 'sum'.",
        )
    elif parts is not None and check_option(problems, "virtual_ranks", parts):
        _check_enough_parts(problems, "virtual_ranks", parts, given.max_slots)


def with_virtual_ranks(given: Submitted) -> Submitted:
    """Return the options with the number of parts of a step: the next power of two, if bitwise and not given."""
    if given.exactness != Job.Exactness.BITWISE or given.virtual_ranks:
        return given
    return replace(given, virtual_ranks=1 << (given.max_slots - 1).bit_length())


def check_enough_virtual_ranks(problems: Problems, job: Job, max_slots: int) -> None:
    """Check that a submitted job has enough parts per step for this many GPUs."""
    if job.virtual_ranks is not None:
        _check_enough_parts(problems, "max_slots", job.virtual_ranks, max_slots)


def check_tags(problems: Problems, tags: Sequence[str]) -> list[str]:
    """Return the normalized tags."""
    try:
        found = parsed_tags(tags)
    except UserError as error:
        problems.add_all(error)
        return []
    if len(found) > MOST_TAGS:
        problems.add("tags", f"A training can have at most {MOST_TAGS} tags, not {len(found)}: remove some.")
    return found


def _check_enough_parts(problems: Problems, name: str, parts: int, max_slots: int) -> None:
    if _is_integer(max_slots) and max_slots > parts:
        words = "1 virtual rank computes" if parts == 1 else f"{parts} virtual ranks compute"
        problems.add(
            name,
            f"{words} on at most {parts} GPUs, not {max_slots}: the number is fixed when a training is submitted, "
            "because its results depend on it.",
        )


def check_priority(problems: Problems, priority: int | None, group: InstanceGroup | None = None) -> None:
    """Check the priority against the range of all priorities and that of the instance group."""
    if priority is None or not check_option(problems, "priority", priority) or group is None:
        return
    if not group.lowest_priority <= priority <= group.highest_priority:
        problems.add(
            "priority",
            f"{group.name} allows priorities from {group.lowest_priority} to {group.highest_priority}, not {priority}.",
        )


def check_option(problems: Problems, name: str, value: Any) -> bool:
    """Check an option's value against its declaration; return whether it is valid."""
    option = OPTIONS[name]
    if option.is_variables:
        return _check_variables(problems, name, value)
    if option.is_pattern:
        return check_pattern(problems, name, value)
    if option.most_characters or _is_in_limits(option, value):
        return True
    problems.add(name, f"{option.words} {option.limit_sentence}.")
    return False


def check_others(problems: Problems, given: Options) -> None:
    """Check each option that no other check has looked at."""
    for name in OPTIONS:
        if name not in _CHECKED_APART:
            check_option(problems, name, getattr(given, name))


def _is_in_limits(option: Option, value: Any) -> bool:
    if option.choices:
        return value in [choice for choice, _ in option.choices]
    if value is None and option.default is None and not option.is_required:
        return True
    return _is_integer(value) and bool(option.least <= value <= option.most)


def check_parameters(problems: Problems, parameters: Any, model: RegisteredModelVersion | None) -> None:
    try:
        given = checked_parameters(parameters)
    except UserError as error:
        problems.add_all(error)
        return
    for sentence in misfits_of(given, model).values():
        problems.add("parameters", sentence)


def misfits_of(parameters: Mapping[str, Any], model: RegisteredModelVersion | None) -> dict[str, str]:
    """Return name -> sentence for each parameter that the model's script would reject."""
    if model is None:
        return {}
    taught = settings_in(parameters) if model.declared.asks_manager else {}
    known = {*model.parameters, *taught, *model.folder_arguments}
    found = misfits(parameters, model.parameters) | model.declared.misfits(parameters, known)
    for name, value in taught.items():
        try:
            checked_settings({name: value})
        except UserError as error:
            found[name] = error.message
    return found


def is_own_variable(name: str) -> bool:
    """Return whether Tidepool sets the variable for each process, or would break with another value."""
    return name in _OUR_VARIABLES or name.startswith(_OUR_PREFIXES)


def _check_variables(problems: Problems, field: str, variables: Any) -> bool:
    if not isinstance(variables, Mapping):
        problems.add(field, 'Give the variables as an object, such as {"WANDB_MODE": "offline"}.')
        return False
    if len(variables) > _MAX_VARIABLES:
        problems.add(field, f"Give at most {_MAX_VARIABLES} variables, not {len(variables)}.")
    for name, value in variables.items():
        if not isinstance(name, str) or not VARIABLE_NAME.fullmatch(name):
            problems.add(field, f"{shown(name)} is not a valid variable name: use letters, digits and '_'.")
        elif name == "CUDA_VISIBLE_DEVICES" and value == "":
            continue  # hides the job's GPUs from the script
        elif is_own_variable(name):
            problems.add(field, f"{name} is set by Tidepool for each process: remove it.")
        elif not isinstance(value, str) or len(value) > _MAX_VARIABLE_TEXT or not is_storable(value):
            problems.add(field, f"The value of {name} must be a string of at most {_MAX_VARIABLE_TEXT} characters.")
    return field not in problems.fields


def check_arguments(problems: Problems, arguments: Sequence[Any], model: RegisteredModelVersion | None) -> None:
    if not all(isinstance(word, str) for word in arguments):
        problems.add("arguments", "Give the arguments as a list of strings, one for each word.")
    elif len(arguments) > _MAX_ARGUMENTS or sum(map(len, arguments)) > _MAX_ARGUMENTS_TEXT:
        problems.add(
            "arguments", f"Give at most {_MAX_ARGUMENTS} arguments, with a total of {_MAX_ARGUMENTS_TEXT} characters."
        )
    elif not all(map(is_storable, arguments)):
        problems.add(
            "arguments", "An argument contains a NUL or an incomplete character, which cannot be passed to a process."
        )
    elif model is not None:
        for sentence in model.declared.unknown_words(arguments, {*model.parameters, *model.folder_arguments}):
            problems.add("arguments", sentence)


def check_pattern(problems: Problems, field: str, pattern: Any) -> bool:
    """Check a regular expression for log lines; return whether it is valid."""
    try:
        if not isinstance(pattern, str):
            raise PatternError("Give the pattern as a string.")
        if pattern:
            compiled(pattern)
    except PatternError as error:
        problems.add(field, str(error))
        return False
    return True


def check_code(problems: Problems, model: RegisteredModelVersion) -> None:
    if not (model.folder / model.entry_point).is_file():
        name = model.model.name
        problems.add("model", f"The file {model.entry_point} of model {name} is missing: register the model again.")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(reference: object) -> str:
    """Return the user's input, shortened and printable."""
    return ascii(str(reference)[:100]) if not str(reference).isprintable() else f"'{str(reference)[:100]}'"
