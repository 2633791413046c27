"""Submission with WMLA's `args` and files, as an ordinary model, dataset and job.

`prepare` needs no file, so its errors are reported before an upload is read. `submit` does the rest, with the same
actions as the pages and `/api/v1/`.
"""

import codecs
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from tidepool.command_runner import COMMAND_FILE, COMMAND_SOURCE

from core.errors import UserError
from core.file_sources import Source, Upload
from core.text import checked_name
from datasets.actions import version_at
from datasets.models import DatasetVersion
from jobs import actions
from jobs.actions.submission_checks import Problems, check_priority, find_group
from jobs.control.transition import Why, record
from jobs.messages import message
from jobs.models import InstanceGroup, Job
from jobs.states import Reason
from models_registry.actions import ModelRegistration, readers_of_training, register
from models_registry.code_inspection import inspect_code
from models_registry.models import RegisteredModel, RegisteredModelVersion
from wmla.arguments import Arguments, add_hardware, folder_of, parse_arguments, script_words
from wmla.identifiers import group_named
from wmla.job_names import Dialect
from wmla.service_info import Framework, framework_named
from workers.queries import capacity

__all__ = ["Form", "Prepared", "default_group", "named_as_archive", "parse_form", "prepare", "submit", "with_files"]

_Engine = RegisteredModelVersion.Engine
#: Suffixes that clients append to the name of a model's folder.
_SUFFIXES = (".modelDir.tar", ".tar.gz", ".tgz", ".tar", ".zip", ".py")
_DEFAULT_SCRIPT = "main.py"
#: Name of a model whose submission gives none.
_DEFAULT_NAME = "model"
#: Number of bytes at the start of a file that tell a script from an archive: those of a tar's first header.
_HEAD_BYTES = 512
_COMPAT = ["wmla"]
_FORM_FIELDS = frozenset({"args", "hardwareSpec", "dataSource"})


@dataclass(frozen=True)
class Prepared:
    """A submission whose fields have been validated, but not its files."""

    #: Arguments as sent.
    args: str
    given: Arguments
    framework: Framework
    group: InstanceGroup
    dialect: str
    #: Maximum number of workers of the job.
    max_slots: int
    #: Number of GPUs of the group.
    capacity: int


@dataclass(frozen=True)
class Form:
    """Content of the part `data` of a submission."""

    #: Arguments, which Cloud Pak 4.7 and later sends here; "": absent.
    args: str = ""
    #: `hardwareSpec` as sent; None: absent.
    hardware: Any = None
    #: Path in `dataSource`; "": absent.
    data_path: str = ""
    without_effect: tuple[str, ...] = ()


def parse_form(data: str) -> Form:
    """Parse the text of the part. Raise UserError that describes the problem."""
    if not data.strip():
        return Form()
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UserError(
            'data must be a JSON object like {"args": "--exec-start PyTorch --model-main main.py", '
            '"hardwareSpec": {...}, "dataSource": [{"type": "fs", "location": {"paths": "mnist"}}]}.'
        )
    args = fields.get("args") or ""
    if not isinstance(args, str):
        raise UserError("args in data must be a single string.")
    return Form(
        args=args,
        hardware=fields.get("hardwareSpec"),
        data_path=folder_of("data with its dataSource", fields.get("dataSource") or []),
        without_effect=tuple(f"data {name[:50]}" for name in fields if name not in _FORM_FIELDS),
    )


def prepare(user: User, sig_name: str, args: str, form: Form = Form()) -> Prepared:
    """Check a submission without its files. Raise UserError that describes the problems. sig_name: "" in Cloud Pak."""
    given = parse_arguments(args)
    given.data_path = form.data_path or given.data_path
    given.without_effect += form.without_effect
    if form.hardware is not None:
        add_hardware(given, form.hardware)
    framework = framework_named(given.framework)
    if given.is_command and framework.is_elastic:
        raise UserError(
            f"{framework.name} resizes a training while it runs, which --user-cmd does not support: use distPyTorch, "
            "or PyTorch for one GPU, or name an elastic script with --model-main."
        )
    if sig_name and given.instance_group and sig_name != given.instance_group:
        raise UserError(f"sigName is {sig_name[:100]!a}, but --ig names another instance group: keep one of them.")
    name = sig_name or given.instance_group
    group = group_named(user, name) if name else default_group(user)
    problems = Problems()
    find_group(problems, group.name, user)
    check_priority(problems, given.priority, group)
    problems.raise_if_any()
    if given.app_name:
        checked_name(given.app_name, field="--appName")
    offered = capacity(group.resource_group)
    wanted = 1 if framework.engine == _Engine.SINGLE else given.max_workers
    if wanted is None:
        wanted = offered if framework.is_elastic else 1
    return Prepared(
        args=args,
        given=given,
        framework=framework,
        group=group,
        dialect=Dialect.ON_PREM if name else Dialect.CLOUD_PAK,
        max_slots=max(1, min(wanted, offered)),
        capacity=offered,
    )


def submit(user: User, prepared: Prepared, files: Sequence[Upload]) -> Job:
    """Queue the job. Raise UserError that describes problems of the files or the data. A file's name may be ""."""
    submission, wanted = with_files(user, prepared, files)
    return actions.submit(submission, user, then=lambda job: _record_differences(job, prepared, wanted))


def with_files(user: User, prepared: Prepared, files: Sequence[Upload]) -> tuple[actions.Submission, str]:
    """Register model and dataset; return the submission of a training, and the model's name as requested.

    Raises like `submit`.
    """
    files = [file for file in files if PurePosixPath(file.name).name not in prepared.given.unread_files]
    if prepared.given.is_command:
        files.append(Upload(COMMAND_FILE, io.BytesIO(COMMAND_SOURCE.encode())))
    files = [_with_name(file, prepared.given) for file in files]
    if not files:
        raise UserError(
            "The request has no model: send a .modelDir.tar or a .py file as the multipart part named file."
        )
    dataset = _dataset(user, prepared.given)
    model = _model(user, prepared, files)
    facts = inspect_code(model.folder, model.entry_point)
    words = script_words(
        prepared.given,
        prepared.max_slots,
        declared=frozenset(argument.name for argument in facts.arguments),
        refuses_unknown=facts.refuses_unknown_options,
        is_on_prem=prepared.dialect == Dialect.ON_PREM,
    )
    submission = actions.Submission(
        name=prepared.given.app_name or model.model.name,
        model=model,
        dataset=dataset,
        instance_group=prepared.group.name,
        max_slots=prepared.max_slots,
        priority=prepared.given.priority,
        arguments=words,
        environment=prepared.given.environment,
        dialect=prepared.dialect,
        submitted_args=prepared.args,
    )
    return submission, _wanted_name(prepared.given, files)


def default_group(user: User) -> InstanceGroup:
    """Return the default group of a submission: the largest of the user's own groups, or of those open to all users."""
    started = InstanceGroup.objects.filter(state=InstanceGroup.State.STARTED).select_related("resource_group")
    mine = list(started.filter(members=user.pk)) or list(started.filter(Q(members=None)))
    if not mine:
        raise UserError("You may use no started instance group: ask an administrator for one.")
    return min(mine, key=lambda group: (-capacity(group.resource_group), group.name))


def _dataset(user: User, given: Arguments) -> DatasetVersion:
    try:
        return version_at(user, given.data_path)
    except UserError as error:
        raise UserError(f"data_path={given.data_path[:100]!a}: {error.message}") from None


def _model(user: User, prepared: Prepared, files: Sequence[Upload]) -> RegisteredModelVersion:
    given = prepared.given
    first, *more = (Upload(PurePosixPath(file.name).name, _from_start(file.content)) for file in files)
    single = first.name if first.name.endswith(".py") and not more else ""
    # For a single script, WMLA's command line sends only the file, but names it with its folders on the client.
    script = single if PurePosixPath(given.model_main).name in ("", single) else given.model_main
    script = COMMAND_FILE if given.is_command else script or _DEFAULT_SCRIPT
    name = _model_name(user, _wanted_name(given, files))
    registration = ModelRegistration(
        name=name,
        source=Source(upload=named_as_archive(first), more=more, unwrap=not single),
        entry_point=script,
        engine=prepared.framework.engine,
        compat=_COMPAT,
        readers=readers_of_training(name),
        description="Submitted by a WMLA client.",
    )
    return register(user, registration, reuse=True)


def _with_name(file: Upload, given: Arguments) -> Upload:
    """Return the file under a name for its content, if it was sent without one: a script, or a model's folder."""
    if file.name:
        return file
    if _is_script(file):
        return Upload(PurePosixPath(given.model_main).name or _DEFAULT_SCRIPT, file.content)
    return Upload(f"{given.model_dir or _DEFAULT_NAME}.tar", file.content)


def _is_script(file: Upload) -> bool:
    head = _from_start(file.content).read(_HEAD_BYTES)
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


def _from_start(content: Any) -> Any:
    content.seek(0)
    return content


def named_as_archive(upload: Upload) -> Upload:
    """Append .tar to the name unless its suffix is known: clients may give the archive any name."""
    known = upload.name.lower().endswith(_SUFFIXES)
    return upload if known else Upload(f"{upload.name}.tar", upload.content)


def _stem(name: str) -> str:
    suffix = next((suffix for suffix in _SUFFIXES if name.lower().endswith(suffix.lower())), "")
    return name[: len(name) - len(suffix)]


def _wanted_name(given: Arguments, files: Sequence[Upload]) -> str:
    """Return the name that a submission gives its model: that of its folder, or of its first file."""
    return (given.model_dir or _stem(PurePosixPath(files[0].name).name)).strip(" .") or _DEFAULT_NAME


def _model_name(user: User, wanted: str) -> str:
    """Return the name, with the user's name appended if another user has a model of that name."""
    name = checked_name(wanted, field="model")
    owners = dict(
        RegisteredModel.objects.filter(name__in=(name, own := f"{name}-{user.get_username()}")).values_list(
            "name", "owner"
        )
    )
    return name if owners.get(name, user.pk) == user.pk else own


def _record_differences(job: Job, prepared: Prepared, wanted_name: str) -> None:
    """Record differences between the request and the job as events of the job."""
    actor, given = job.owner.get_username(), prepared.given
    found = []
    if given.max_workers is not None and given.max_workers > job.max_slots:
        asked = {"workers": given.max_workers, "max_slots": job.max_slots}
        if prepared.framework.engine == _Engine.SINGLE:
            found.append(message("workers_of_one_process", **asked, framework=prepared.framework.name))
        else:
            group = {"group": prepared.group.name, "capacity": prepared.capacity}
            found.append(message("workers_beyond_group", **asked, **group))
    if given.max_workers is None and prepared.framework.is_elastic:
        found.append(message("no_most_workers", max_slots=job.max_slots, group=prepared.group.name))
    if (name := job.model.model.name) != wanted_name:
        found.append(message("model_renamed", model=name, wanted=wanted_name))
    if given.without_effect:
        found.append(message("without_effect", options=", ".join(given.without_effect)[:1900]))
    for params in found:
        record(job, Why(Reason.SUBMITTED, params, actor))
