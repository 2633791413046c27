"""Instance groups as Conductor's instances: parsed from requests, and rendered.

Conductor's states are read off ours, so that none is stored twice: a group that is made is REGISTERED; one that is
deployed and not started is READY where any of its hosts is, else DEPLOY_ERROR; then it is STARTED.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from django.db.models import prefetch_related_objects

from core.errors import UserError, field_error
from core.time import iso
from jobs.actions.groups import InstanceGroupSpec
from jobs.models import InstanceGroup
from jobs.queries.deployment import Deployment
from jobs.queries.group_parameters import PARAMETERS, ParameterError, known_values, read_values, twin
from jobs.queries.groups import GroupNow, groups_now
from wmla.applications import consumer_of
from wmla.lookup import identities
from workers.models import ResourceGroup

__all__ = ["instance_of", "instance_state", "instances", "only_fields", "parsed_configuration", "parsed_instance"]

#: What a group's trainings run on. The first is ours: WMLA's name for the slots of GPUs is not published.
_RESOURCE_GROUP_PARAMETERS = ("gpu_executor_rg_param", "executor_rg_param")
_TERMS_OF_PARAMETERS = {"execution_user": "execution_user", "deploy_home": "deployment_directory"}
_MEBIBYTE = 1024**2
#: How like a parameter that has an effect a name must be to be taken for a misspelt one.
_ALIKE = 0.9


def instances(groups: Iterable[InstanceGroup]) -> list[dict[str, Any]]:
    """Return the rows in a fixed number of queries."""
    rows = list(groups)
    prefetch_related_objects(rows, "resource_group__hosts")
    return [_instance(now) for now in groups_now(rows)]


def instance_of(group: InstanceGroup) -> dict[str, Any]:
    return instances([group])[0]


def only_fields(rows: list[dict[str, Any]], fields: str) -> list[dict[str, Any]]:
    """Return the id and these comma-separated fields; unknown ones are left out, because clients ask for many."""
    wanted = {"id", *(name.strip() for name in fields.split(","))}
    return [{name: value for name, value in row.items() if name in wanted} for row in rows] if fields.strip() else rows


def instance_state(group: InstanceGroup, found: Deployment) -> str:
    if group.state != InstanceGroup.State.STOPPED:
        return str(group.state)
    return "READY" if found.ready else "DEPLOY_ERROR"


def parsed_instance(body: Mapping[str, Any]) -> InstanceGroupSpec:
    """Parse a request to make an instance. Fields without meaning here (Spark's version, packages) are ignored."""
    name, template = body.get("conductorinstancename"), body.get("template", "")
    if not isinstance(name, str) or not name:
        raise field_error("conductorinstancename", "Give the instance group's name as conductorinstancename.")
    if not isinstance(template, str):
        raise field_error("template", "Give the name of a template.")
    parameters = _object(body, "parameters")
    terms = {column: _text(parameters, key) for key, column in _TERMS_OF_PARAMETERS.items() if key in parameters}
    terms |= _spark_terms(body)
    return InstanceGroupSpec(name, _resource_group(parameters), template, terms)


def parsed_configuration(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a group from the Spark parameters and the other fields of a change."""
    parameters = _object(body, "parameters")
    terms = {column: _text(parameters, key) for key, column in _TERMS_OF_PARAMETERS.items() if key in parameters}
    if any(key in parameters for key in _RESOURCE_GROUP_PARAMETERS):
        terms["resource_group"] = _resource_group(parameters)
    return terms | _spark_terms(body)


def _instance(now: GroupNow) -> dict[str, Any]:
    group = now.group
    memory = None if now.memory_used_bytes is None else round(now.memory_used_bytes / _MEBIBYTE)
    return {
        "id": identities().group_id(group.pk),
        "name": group.name,
        "state": instance_state(group, now.deployment),
        "description": group.description,
        "consumerpath": consumer_of(group),
        "createtime": iso(group.created_at),
        "runningapplications": now.running,
        "waitingapplications": now.waiting,
        "gpuslots": now.held,
        "totalgpuslots": now.deployment.slots,
        "gpumemused": {"total": memory},
        "gpudevutil": {"mean": now.utilisation_percent},
        "hosts": len(now.deployment.hosts),
        "blockedhosts": now.deployment.blocked,
        "parameters": {
            "executor_rg_param": group.resource_group.name,
            "execution_user": group.execution_user,
            "deploy_home": group.deployment_directory,
        },
        "sparkparameters": {
            parameter.name: _as_text(getattr(group, parameter.field)) for parameter in PARAMETERS if parameter.field
        },
    }


def _spark_terms(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms that Spark parameters set here; all other parameters concern only Spark.

    Clients send dozens. A name that is almost that of one with an effect is refused: it would change nothing.
    """
    given = {name: _as_text(value) for name, value in _object(body, "sparkparameters").items()}
    known, unknown = known_values(given)
    for name in unknown:
        if near := _meant(name):
            raise field_error("sparkparameters", f"There is no parameter {name[:80]!a}: did you mean {near}?")
    try:
        return read_values(known).terms
    except ParameterError as error:
        raise field_error("sparkparameters", str(error)) from error


def _meant(name: str) -> str | None:
    effective = [parameter.name for parameter in PARAMETERS if parameter.has_effect]
    near = get_close_matches(name.upper().replace(".", "_"), effective, n=1, cutoff=_ALIKE)
    if not near:
        return None
    return near[0] if "_" in name else twin(near[0])


def _resource_group(parameters: Mapping[str, Any]) -> str:
    """Return the name of the group of GPUs that these fields mean.

    Scripts of WMLA name one group for everything, such as ComputeHosts, whose slots are processors: where there is a
    single group of GPUs, that one is meant.
    """
    key = next((name for name in _RESOURCE_GROUP_PARAMETERS if name in parameters), _RESOURCE_GROUP_PARAMETERS[1])
    name = _text(parameters, key)
    kinds = dict(ResourceGroup.objects.order_by("name").values_list("name", "kind"))
    of_gpus = [group for group, kind in kinds.items() if kind == ResourceGroup.Kind.GPU]
    if not name:
        raise field_error(key, f"Give the resource group whose GPUs it uses as {key}. {_there_are(of_gpus)}")
    if name not in kinds:
        raise field_error(key, f"Resource group {_shown(name)} not found. {_there_are(of_gpus)}")
    if name in of_gpus:
        return name
    if len(of_gpus) != 1:
        raise field_error(
            key, f"{key} is {_shown(name)}, whose slots are processors: name one with GPUs. {_there_are(of_gpus)}"
        )
    return of_gpus[0]


def _there_are(names: Collection[str]) -> str:
    return f"With GPUs there are {', '.join(names)}." if names else "There is none with GPUs yet: make one first."


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise field_error(name, f"{name} is an object of names and values.")
    return value


def _text(parameters: Mapping[str, Any], name: str) -> str:
    value = parameters.get(name, "")
    if not isinstance(value, str):
        raise field_error(name, f"{name} is a text.")
    return value


def _as_text(value: Any) -> str:
    """Return the value as a file of parameters has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise UserError("The values of sparkparameters are texts and numbers.")


def _shown(text: str) -> str:
    return f"{text[:80]!a}"
