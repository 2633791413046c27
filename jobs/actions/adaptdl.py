"""Conversion of an AdaptDLJob (https://adaptdl.readthedocs.io) to a submission.

Tidepool runs no containers: the code comes from a registered model, and the manifest's command must name its script.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml
from django.contrib.auth.models import User

from core.errors import UserError, field_error
from jobs.actions.submission import Submission, check, submit
from jobs.actions.submission_checks import Problems, find_model
from jobs.control.transition import Why, record
from jobs.messages import message
from jobs.models import Job
from jobs.queries.groups import find_visible_group
from jobs.states import Reason
from models_registry.models import RegisteredModelVersion
from workers.queries import capacity

__all__ = ["MANIFEST_CHARACTERS", "Manifest", "read_manifest", "submission_of", "submit_manifest"]

MANIFEST_CHARACTERS = 256 * 1024
_KIND = "AdaptDLJob"
_GPUS = "nvidia.com/gpu"
#: Interpreter before the script: python, python3.11 or /usr/bin/python3.
_PYTHON = re.compile(r"(.*/)?python(3(\.\d+)?)?")
_READ = {
    "": {"apiVersion", "kind", "metadata", "spec", "status"},
    "metadata": {"name", "generateName"},
    "spec": {"minReplicas", "maxReplicas", "preemptible", "template"},
    "spec.template": {"spec"},
    "spec.template.spec": {"containers"},
    "container": {"name", "command", "args", "env", "resources"},
}


@dataclass(frozen=True)
class Manifest:
    name: str
    #: Path of the script inside the container.
    script: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    fewest: int
    #: Largest number of GPUs; None: all GPUs of the instance group, or 1 for a script of a single process.
    most: int | None
    #: Fields without effect here, as dotted names.
    without_effect: tuple[str, ...]


def read_manifest(text: str, *, name: str = "", arguments: Sequence[str] | None = None) -> Manifest:
    """Parse the manifest. Raise UserError if it is not an AdaptDLJob or needs unsupported features.

    name, arguments: instead of its name and the `args` of its container.
    """
    try:
        read = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        raise _refused(
            f"The manifest is not valid YAML{f' (line {place.line + 1})' if place else ''}: correct it."
        ) from error
    if not isinstance(read, dict) or read.get("kind") != _KIND:
        raise _refused(f"The manifest is not an {_KIND}: send one, with `kind: {_KIND}`.")
    metadata, spec = _mapping(read, "metadata"), _mapping(read, "spec")
    template = _mapping(spec, "template", "spec.template")
    pod = _mapping(template, "spec", "spec.template.spec")
    container = _only_container(pod)
    if arguments is not None:
        container = {**container, "args": list(arguments)}
    script, words = _command(container)
    fewest, most = _sizes(spec)
    parts = {
        "": read,
        "metadata": metadata,
        "spec": spec,
        "spec.template": template,
        "spec.template.spec": pod,
        "container": container,
    }
    return Manifest(
        name=name or str(metadata.get("name") or str(metadata.get("generateName", "")).rstrip("-")),
        script=script,
        arguments=words,
        environment=_environment(container),
        fewest=fewest,
        most=most,
        without_effect=tuple(
            f"{part}.{key}".lstrip(".") for part, each in parts.items() for key in each if key not in _READ[part]
        ),
    )


def submit_manifest(
    manifest: Manifest, given: Mapping[str, Any], user: User, then: Callable[[Job], object] = lambda job: None
) -> Job:
    """Submit the manifest; an event names its fields without effect. Raises UserError, as `submit` does.

    given: `model`, `instance_group` and other fields of a submission that a manifest lacks.
    """

    def note(job: Job) -> None:
        if manifest.without_effect:
            told = message("without_effect", options=", ".join(manifest.without_effect)[:1900])
            record(job, Why(Reason.SUBMITTED, told, user.get_username()))
        then(job)

    return submit(submission_of(manifest, given, user), user, note)


def submission_of(manifest: Manifest, given: Mapping[str, Any], user: User) -> Submission:
    """Return the manifest as a submission. Raises UserError, also if the model's script is not the manifest's."""
    group = find_visible_group(user, given["instance_group"])
    model = find_model(Problems(), given["model"], given.get("model_version"), user)
    is_single = model is not None and model.engine == RegisteredModelVersion.Engine.SINGLE
    most = manifest.most or (1 if is_single else capacity(group.resource_group) if group else 0)
    submission = Submission(
        **given,
        name=manifest.name,
        arguments=manifest.arguments,
        environment=manifest.environment,
        min_slots=manifest.fewest,
        max_slots=max(manifest.fewest, most),
    )
    entry_point = check(submission, user).model.entry_point
    if not _is_end_of(entry_point, manifest.script):
        raise _refused(
            f"The command runs {manifest.script[:200]}, but the model's entry point is {entry_point}: choose a model "
            "with that script as entry point."
        )
    return submission


def _is_end_of(entry_point: str, script: str) -> bool:
    """Return whether a container's path, such as /root/examples/train.py, matches this file of a model's folder."""
    wanted, has = PurePosixPath(script).parts, PurePosixPath(entry_point).parts
    shared = min(len(wanted), len(has))
    return wanted[-shared:] == has[-shared:]


def _only_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = pod.get("containers")
    if not isinstance(containers, list) or len(containers) != 1 or not isinstance(containers[0], dict):
        raise _refused("A training needs exactly one container: define it in spec.template.spec.containers.")
    container: Mapping[str, Any] = containers[0]
    limits = _mapping(_mapping(container, "resources", "resources"), "limits", "resources.limits")
    if limits.get(_GPUS, 1) not in (0, 1, "0", "1"):
        raise _refused(f"A replica has exactly one GPU: set {_GPUS} to 1, and maxReplicas to the number of GPUs.")
    return container


def _command(container: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    words = [*_words(container, "command"), *_words(container, "args")]
    while words and (_PYTHON.fullmatch(words[0]) or words[0] in ("-u", "-O", "-B")):
        words.pop(0)
    if not words or not words[0].endswith(".py"):
        raise _refused("The command must run a Python script: write it as [python3, train.py, --epochs, '5'].")
    return words[0], tuple(words[1:])


def _words(container: Mapping[str, Any], key: str) -> list[str]:
    words = container.get(key) or []
    if not isinstance(words, list) or any(isinstance(word, dict | list) for word in words):
        raise _refused(f"{key} must be a list of words, such as [python3, train.py].")
    return [str(word) for word in words]


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for each in container.get("env") or []:
        if not isinstance(each, dict) or "name" not in each or "value" not in each:
            raise _refused(
                "Each variable of env needs a name and a value; other sources, such as valueFrom, are not supported."
            )
        found[str(each["name"])] = str(each["value"])
    return found


def _sizes(spec: Mapping[str, Any]) -> tuple[int, int | None]:
    fewest, most = spec.get("minReplicas") or 0, spec.get("maxReplicas")
    for name, value, least in (("minReplicas", fewest, 0), ("maxReplicas", most, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise _refused(f"{name} must be a whole number of at least {least}.")
    if most is not None and fewest > most:
        raise _refused("minReplicas is larger than maxReplicas: lower minReplicas or raise maxReplicas.")
    preemptible = spec.get("preemptible", True)
    if not isinstance(preemptible, bool):
        raise _refused("preemptible must be true or false.")
    if not preemptible and (most is None or max(1, fewest) != most):
        raise _refused(
            "With preemptible: false a training keeps the number of GPUs that it starts with: set minReplicas and "
            "maxReplicas to that number."
        )
    return max(1, fewest), most


def _mapping(values: Mapping[str, Any], key: str, name: str = "") -> Mapping[str, Any]:
    found = values.get(key) or {}
    if not isinstance(found, dict):
        raise _refused(f"{name or key} must be a mapping: write its fields below it.")
    return found


def _refused(sentence: str) -> UserError:
    return field_error("manifest", sentence)
