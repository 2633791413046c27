"""Permissions of the site: one line for each method of each address.

A new address needs a line in RULES, with the audience that it is for: `"POST groups:undo": GROUP_ADMINS`. If its view
looks at what was sent before it looks at who sent it, or another thing than usual shall be asked for, it takes
`Rule(GROUP_ADMINS, body={...}, args={...})`. tests/webapp/permissions/ asks for each in each of ROLES, and
names the lines that are missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidepool.version import VERSION

__all__ = ["ROLES", "RULES", "Outcome", "Rule", "rule_of"]

#: Alice owns the things that are asked for, Gail administers the instance group of her trainings.
ROLES = ("nobody", "viewer", "stranger", "owner", "group admin", "cluster admin")

Outcome = str
#: Let in, which may still end with what does not fit; sent to log in; forbidden; told that there is no such thing.
IN, LOGIN, REFUSED, MISSING = "in", "log in", "refused", "missing"
Audience = tuple[Outcome, ...]

#: Without a log-in.
EVERYBODY: Audience = (IN, IN, IN, IN, IN, IN)
#: By a password alone, which the matrix does not send.
NOBODY: Audience = (LOGIN, LOGIN, LOGIN, LOGIN, LOGIN, LOGIN)
#: What all see, and what concerns only the own account.
USERS: Audience = (LOGIN, IN, IN, IN, IN, IN)
#: What makes something of one's own.
CHANGERS: Audience = (LOGIN, REFUSED, IN, IN, IN, IN)
#: A training: others must not learn that it is there.
OWNER_SEES: Audience = (LOGIN, MISSING, MISSING, IN, MISSING, IN)
OWNER_CHANGES: Audience = (LOGIN, REFUSED, MISSING, IN, MISSING, IN)
#: A dataset, model or template: all see it, its owner changes it.
SEEN_OWNER_CHANGES: Audience = (LOGIN, REFUSED, REFUSED, IN, REFUSED, IN)
#: What is nobody else's business, not even an administrator's: tokens by "me", filters, uploads.
ONLY_OWNER_SEES: Audience = (LOGIN, MISSING, MISSING, IN, MISSING, MISSING)
ONLY_OWNER_CHANGES: Audience = (LOGIN, REFUSED, MISSING, IN, MISSING, MISSING)
#: What WMLA has and is not here: it says so.
NOT_THERE: Audience = (LOGIN, MISSING, MISSING, MISSING, MISSING, MISSING)
NOT_THERE_FOR_CHANGERS: Audience = (LOGIN, REFUSED, MISSING, MISSING, MISSING, MISSING)
#: A training's owner may ask, and is told that this site has no MLflow; for others there is no such training.
NO_MLFLOW: Audience = (LOGIN, REFUSED, MISSING, REFUSED, MISSING, REFUSED)
#: Of one instance group.
GROUP_ADMINS: Audience = (LOGIN, REFUSED, REFUSED, REFUSED, IN, IN)
#: Of the cluster.
ADMINS: Audience = (LOGIN, REFUSED, REFUSED, REFUSED, REFUSED, IN)


@dataclass(frozen=True)
class Rule:
    audience: Audience
    #: What is sent: a form's fields, or JSON. Here and below, names of values in the matrix's world stand for these.
    body: Mapping[str, Any] = field(default_factory=dict)
    #: With such names in braces.
    query: str = ""
    #: Parameters of the address other than the usual ones.
    args: Mapping[str, Any] = field(default_factory=dict)


RULES: dict[str, Audience | Rule] = {
    # Pages
    "GET overview": USERS,
    "GET overview-now": USERS,
    "GET topic-number": Rule(USERS, args={"topic": "cluster"}),
    "GET login": EVERYBODY,
    "POST login": EVERYBODY,
    "PUT login": EVERYBODY,
    "POST logout": USERS,
    "GET healthz": EVERYBODY,
    "GET dlicmd": EVERYBODY,
    "GET client-wheel": Rule(EVERYBODY, args={"wheel": f"tidepool_runtime-{VERSION}-py3-none-any"}),
    "GET connect": USERS,
    "GET cluster": USERS,
    "GET cluster-now": USERS,
    "GET cluster-trace": USERS,
    "GET jobs:counts": USERS,
    "GET jobs:list": USERS,
    "GET jobs:compare": USERS,
    "GET jobs:differences": Rule(OWNER_SEES, query="jobs={job},{second job}"),
    "GET jobs:compare-curves": Rule(OWNER_SEES, query="jobs={job},{second job}"),
    "GET jobs:compare-tables": Rule(OWNER_SEES, query="jobs={job},{second job}"),
    "POST jobs:columns": Rule(USERS, body={"columns": "reason"}),
    "POST jobs:save-filter": Rule(USERS, body={"name": "mine"}, query="state=FAILED"),
    "POST jobs:forget-filter": ONLY_OWNER_SEES,
    "GET jobs:priority-question": USERS,
    "GET jobs:rows": USERS,
    "GET jobs:stop-question": USERS,
    "GET jobs:train": USERS,
    "POST jobs:train": CHANGERS,
    "POST jobs:train-code": CHANGERS,
    "POST jobs:train-preview": CHANGERS,
    "GET jobs:detail": OWNER_SEES,
    "GET jobs:live": OWNER_SEES,
    "GET jobs:curves": OWNER_SEES,
    "GET jobs:log-pattern": OWNER_SEES,
    "POST jobs:log-pattern": Rule(OWNER_CHANGES, body={"pattern": ""}),
    "GET jobs:file": Rule(OWNER_SEES, query="path=metrics.jsonl"),
    "GET jobs:picture": Rule(NOT_THERE, query="path=metrics.jsonl"),
    "GET jobs:part": Rule(OWNER_SEES, args={"part": "ranks"}),
    "POST jobs:change": Rule(OWNER_CHANGES, body={"priority": 6000}),
    "POST jobs:change-preview": Rule(OWNER_CHANGES, body={"priority": 6000}),
    "POST jobs:undo": Rule(OWNER_CHANGES, body={"events": "seq"}),
    "POST jobs:note": Rule(OWNER_CHANGES, body={"text": "Good.", "after": "0"}),
    "POST jobs:tags": Rule(OWNER_CHANGES, body={"add": "baseline"}),
    "GET jobs:validate": OWNER_SEES,
    "POST jobs:validate": OWNER_CHANGES,
    "POST jobs:act": Rule(OWNER_CHANGES, args={"action": "cancel"}),
    "GET checkpoints": USERS,
    "POST checkpoint-keep": Rule(OWNER_CHANGES, body={"kept": "no"}),
    "GET datasets:list": USERS,
    "GET datasets:new": USERS,
    "POST datasets:new": CHANGERS,
    "GET datasets:live": USERS,
    "GET datasets:detail": USERS,
    "POST datasets:delete": Rule(SEEN_OWNER_CHANGES, args={"dataset_id": "unused dataset"}),
    "POST datasets:version-delete": Rule(SEEN_OWNER_CHANGES, args={"dataset_id": "unused dataset"}),
    "POST datasets:check": Rule(SEEN_OWNER_CHANGES, args={"dataset_id": "refused dataset"}),
    "GET models:list": USERS,
    "GET models:new": USERS,
    "GET models:add": USERS,
    "POST models:add": CHANGERS,
    "GET models:templates": USERS,
    "GET models:add-location": USERS,
    "POST models:add-location": CHANGERS,
    "GET models:template": USERS,
    "POST models:take-again": SEEN_OWNER_CHANGES,
    "POST models:template-readers": Rule(SEEN_OWNER_CHANGES, body={"readers": "owner"}),
    "POST models:delete-template": Rule(SEEN_OWNER_CHANGES, args={"template_id": "unused template"}),
    "GET models:detail": USERS,
    "GET models:change": (LOGIN, REFUSED, REFUSED, IN, REFUSED, IN),
    "POST models:change": SEEN_OWNER_CHANGES,
    "GET models:clone": USERS,
    "POST models:clone": CHANGERS,
    "GET models:compare": USERS,
    "POST models:readers": Rule(SEEN_OWNER_CHANGES, body={"readers": "owner"}),
    "POST models:delete": Rule(SEEN_OWNER_CHANGES, args={"model_id": "unused model"}),
    "POST tracking:register": NO_MLFLOW,
    "POST tracking:share": (LOGIN, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED),
    "POST tracking:alias": Rule(NO_MLFLOW, body={"alias": "champion"}),
    "POST tracking:take-over": NO_MLFLOW,
    "GET hosts:list": USERS,
    "GET hosts:join": ADMINS,
    "POST hosts:join": ADMINS,
    "POST hosts:join-withdraw": ADMINS,
    "GET hosts:question": Rule(ADMINS, args={"verb": "drain"}),
    "POST hosts:act": Rule(ADMINS, args={"verb": "drain"}),
    "GET resource_groups:list": USERS,
    "GET resource_groups:new": ADMINS,
    "POST resource_groups:new": ADMINS,
    "POST resource_groups:preview-new": ADMINS,
    "POST resource_groups:put-back": Rule(ADMINS, body={"spec": "spec"}),
    "GET resource_groups:change": USERS,
    "POST resource_groups:change": ADMINS,
    "POST resource_groups:preview": ADMINS,
    "POST resource_groups:delete": Rule(ADMINS, args={"group_id": "unused resource group"}),
    "GET usage": USERS,
    "POST usage": ADMINS,
    "GET usage-report": USERS,
    "GET what-if": ADMINS,
    "POST what-if": ADMINS,
    "GET what-if-replay": ADMINS,
    "POST what-if-remove": ADMINS,
    "POST usage-price-remove": ADMINS,
    "POST usage-price-restore": ADMINS,
    "GET fair-share": USERS,
    "GET metrics": (LOGIN, LOGIN, LOGIN, LOGIN, LOGIN, IN),
    "GET groups:list": USERS,
    "GET groups:detail": USERS,
    "GET groups:deployment": USERS,
    "GET groups:new": ADMINS,
    "POST groups:new": ADMINS,
    "POST groups:parameters": CHANGERS,
    "GET groups:change": GROUP_ADMINS,
    "POST groups:change": GROUP_ADMINS,
    "POST groups:change-preview": GROUP_ADMINS,
    "POST groups:undo": Rule(GROUP_ADMINS, body={"terms": '{"default_priority": 4000}', "revision": "revision"}),
    "POST groups:act": Rule(ADMINS, args={"action": "stop"}),
    "GET audit": ADMINS,
    "GET account": USERS,
    "POST account-password": USERS,
    "GET device": USERS,
    "POST device": CHANGERS,
    "POST account-token-make": CHANGERS,
    "POST account-token-withdraw": ONLY_OWNER_SEES,
    "GET alerts": USERS,
    "GET alerts-deliveries": USERS,
    "POST alerts-channel-add": CHANGERS,
    "POST alerts-channel-remove": ONLY_OWNER_CHANGES,
    "POST alerts-channel-test": ONLY_OWNER_CHANGES,
    "POST alerts-rule-add": CHANGERS,
    "POST alerts-rule-remove": ONLY_OWNER_CHANGES,
    "POST alerts-quiet-set": CHANGERS,
    "POST alerts-quiet-end": CHANGERS,
    "GET one-time-link": EVERYBODY,
    "POST one-time-link": EVERYBODY,
    "GET users": ADMINS,
    "GET user-invite": ADMINS,
    "POST user-invite": ADMINS,
    "GET user": ADMINS,
    "POST user-role": Rule(ADMINS, body={"role": "viewer"}),
    "POST user-reset": ADMINS,
    "POST user-deactivate": ADMINS,
    "POST user-activate": Rule(ADMINS, args={"user_id": "deactivated user"}),
    "POST user-withdraw": Rule(ADMINS, args={"user_id": "invited user"}),
    "POST user-token-withdraw": ADMINS,
    # API: alerts
    "GET api:alert-channels": USERS,
    "POST api:alert-channels": CHANGERS,
    "DELETE api:alert-channel": ONLY_OWNER_CHANGES,
    "POST api:alert-channel-test": ONLY_OWNER_CHANGES,
    "GET api:alert-rules": USERS,
    "POST api:alert-rules": CHANGERS,
    "DELETE api:alert-rule": ONLY_OWNER_CHANGES,
    "GET api:alert-quiet-hours": NOT_THERE,
    "PUT api:alert-quiet-hours": CHANGERS,
    "DELETE api:alert-quiet-hours": NOT_THERE_FOR_CHANGERS,
    "GET api:alert-deliveries": USERS,
    # API: accounts and the audit
    "GET api:me": USERS,
    "POST api:my-password": USERS,
    "GET api:token": USERS,
    "POST api:token": CHANGERS,
    "DELETE api:token": USERS,
    "GET api:my-tokens": USERS,
    "POST api:my-tokens": CHANGERS,
    # By a token alone; tests/webapp/permissions/test_scopes.py sends one.
    "GET api:my-current-token": NOT_THERE,
    "DELETE api:my-current-token": NOT_THERE,
    "POST api:device": EVERYBODY,
    "POST api:device-token": EVERYBODY,
    "DELETE api:my-token": ONLY_OWNER_SEES,
    "GET api:users": ADMINS,
    "POST api:users": ADMINS,
    "GET api:user": ADMINS,
    "PATCH api:user": ADMINS,
    "DELETE api:user": Rule(ADMINS, args={"reference": "invited user"}),
    "POST api:user-reset": ADMINS,
    "POST api:user-deactivate": ADMINS,
    "POST api:user-activate": Rule(ADMINS, args={"reference": "deactivated user"}),
    "GET api:user-tokens": ADMINS,
    "DELETE api:user-token": ADMINS,
    "GET api:audit": ADMINS,
    "GET api:audit-export": ADMINS,
    # API: the site
    "GET api:search": USERS,
    "GET api:schema": USERS,
    "GET api:folders": USERS,
    "GET api:uploads": USERS,
    "POST api:uploads": CHANGERS,
    "GET api:upload": ONLY_OWNER_SEES,
    "PATCH api:upload": ONLY_OWNER_CHANGES,
    "DELETE api:upload": ONLY_OWNER_CHANGES,
    # API: datasets and models
    "GET api:datasets": USERS,
    "POST api:datasets": CHANGERS,
    "GET api:dataset": USERS,
    "DELETE api:dataset": Rule(SEEN_OWNER_CHANGES, args={"reference": "unused dataset"}),
    "GET api:dataset-versions": USERS,
    "GET api:dataset-version": USERS,
    "DELETE api:dataset-version": Rule(SEEN_OWNER_CHANGES, args={"reference": "unused dataset"}),
    "POST api:dataset-check": Rule(SEEN_OWNER_CHANGES, args={"reference": "refused dataset"}),
    "GET api:dataset-sample": USERS,
    "POST api:scripts": CHANGERS,
    "GET api:templates": USERS,
    "POST api:templates": CHANGERS,
    "GET api:template": USERS,
    "PATCH api:template": Rule(SEEN_OWNER_CHANGES, body={"readers": "owner"}),
    "DELETE api:template": Rule(SEEN_OWNER_CHANGES, args={"reference": "unused template"}),
    "POST api:template-take-again": SEEN_OWNER_CHANGES,
    "GET api:template-files": USERS,
    "GET api:models": USERS,
    "POST api:models": CHANGERS,
    "GET api:model": USERS,
    "PATCH api:model": Rule(SEEN_OWNER_CHANGES, body={"readers": "owner"}),
    "DELETE api:model": Rule(SEEN_OWNER_CHANGES, args={"reference": "unused model"}),
    "POST api:model-clone": CHANGERS,
    "GET api:model-versions": USERS,
    "GET api:model-changes": USERS,
    "GET api:model-files": USERS,
    "GET api:model-validations": USERS,
    "GET api:model-trainings": USERS,
    # WMLA: datasets, templates, models and what was trained of them
    "GET wmla:datasets": USERS,
    "POST wmla:datasets": CHANGERS,
    "GET wmla:dataset": USERS,
    "DELETE wmla:dataset": Rule(SEEN_OWNER_CHANGES, args={"dataset": "unused dataset"}),
    "PUT wmla:dataset-stop": SEEN_OWNER_CHANGES,
    "GET wmla:templates": USERS,
    "POST wmla:templates": CHANGERS,
    "GET wmla:template": USERS,
    "PUT wmla:template": SEEN_OWNER_CHANGES,
    "DELETE wmla:template": Rule(SEEN_OWNER_CHANGES, args={"template": "unused template"}),
    "GET wmla:template-files": USERS,
    "GET wmla:template-file": USERS,
    "GET wmla:models": USERS,
    "POST wmla:models": CHANGERS,
    "GET wmla:model": USERS,
    "PUT wmla:model": SEEN_OWNER_CHANGES,
    "DELETE wmla:model": Rule(SEEN_OWNER_CHANGES, args={"model": "unused model"}),
    "GET wmla:model-files": USERS,
    "GET wmla:model-file": USERS,
    "GET wmla:model-weights": NOT_THERE,
    "GET wmla:training-names": USERS,
    "GET wmla:trainings": USERS,
    "POST wmla:trainings": CHANGERS,
    "GET wmla:training": OWNER_SEES,
    "DELETE wmla:training": OWNER_CHANGES,
    "PUT wmla:training-stop": OWNER_CHANGES,
    # It has left none; tests/wmla/registry/test_trainings.py has one that did.
    "GET wmla:training-weights": NOT_THERE,
    "GET wmla:validations": USERS,
    "POST wmla:validations": CHANGERS,
    "GET wmla:validation": OWNER_SEES,
    "DELETE wmla:validation": OWNER_CHANGES,
    "PUT wmla:validation-stop": OWNER_CHANGES,
    "GET wmla:frameworks": USERS,
    "GET wmla:frameworks-all": USERS,
    **{
        f"{method} wmla:{name}": NOT_THERE if method == "GET" else NOT_THERE_FOR_CHANGERS
        for name in (
            *("inferences", "edimodels", "hypersearch", "model-hypersearch"),
            *("dataset-csvs", "dataset-pictures", "some-model-file", "some-template-file"),
        )
        for method in ("GET", "POST", "PUT", "DELETE")
    },
    **{
        f"{method} wmla:weight-upload": Rule(
            NOT_THERE if method == "GET" else NOT_THERE_FOR_CHANGERS, args={"model": "weightfile"}
        )
        for method in ("GET", "POST", "PUT", "DELETE")
    },
    # Refused for what it is, before anybody asks whose the model is.
    "PUT wmla:model-files": CHANGERS,
    **{
        f"{method} wmla:certificates": Rule(
            NOT_THERE if method == "GET" else NOT_THERE_FOR_CHANGERS, args={"tier": "tier1"}
        )
        for method in ("GET", "POST", "PUT", "DELETE")
    },
    # API: machines and groups
    "GET api:hosts": USERS,
    "GET api:host": USERS,
    "DELETE api:host": ADMINS,
    "POST api:host-drain": ADMINS,
    "POST api:host-resume": ADMINS,
    "POST api:host-restore": Rule(ADMINS, args={"reference": "removed host"}),
    "GET api:join-tokens": ADMINS,
    "POST api:join-tokens": ADMINS,
    "DELETE api:join-token": ADMINS,
    "POST api:join": EVERYBODY,
    "GET api:slots": USERS,
    "GET api:resource-groups": USERS,
    "POST api:resource-groups": ADMINS,
    "GET api:resource-group": USERS,
    "PATCH api:resource-group": ADMINS,
    "DELETE api:resource-group": ADMINS,
    "GET api:instance-groups": USERS,
    "POST api:instance-groups": ADMINS,
    "GET api:instance-group": USERS,
    "PATCH api:instance-group": Rule(GROUP_ADMINS, body={"default_priority": 4000}),
    "DELETE api:instance-group": ADMINS,
    "POST api:instance-group-start": ADMINS,
    "POST api:instance-group-stop": ADMINS,
    "POST api:instance-group-preview": Rule(GROUP_ADMINS, body={"default_priority": 4000}),
    "GET api:usage": USERS,
    "GET api:gpu-prices": USERS,
    "POST api:gpu-prices": Rule(ADMINS, body={"gpu_model": "A100", "valid_from": "2026-01-01", "per_hour": "2"}),
    "DELETE api:gpu-price": ADMINS,
    "GET api:fair-share": USERS,
    "GET api:replays": ADMINS,
    "POST api:replays": ADMINS,
    "GET api:replay": ADMINS,
    "DELETE api:replay": ADMINS,
    "GET api:replay-jobs": ADMINS,
    "GET api:cluster": USERS,
    "GET api:cluster-trace": USERS,
    "GET api:cluster-trace-csv": USERS,
    "GET api:software": USERS,
    # API: jobs
    "GET api:jobs": USERS,
    "POST api:jobs": CHANGERS,
    "GET api:job-filters": USERS,
    "POST api:job-filters": USERS,
    "DELETE api:job-filter": ONLY_OWNER_SEES,
    "GET api:job-differences": Rule(OWNER_SEES, query="jobs={job},{second job}"),
    "POST api:job-bulk": CHANGERS,
    "GET api:job-export": USERS,
    "POST api:job-preview": CHANGERS,
    "POST api:job-adaptdl": CHANGERS,
    "GET api:job": OWNER_SEES,
    "PATCH api:job": Rule(OWNER_CHANGES, body={"priority": 7000}),
    "POST api:job-cancel": OWNER_CHANGES,
    "POST api:job-suspend": OWNER_CHANGES,
    "POST api:job-wait": Rule(OWNER_CHANGES, body={"minutes": 10}),
    "POST api:job-resume": OWNER_CHANGES,
    "POST api:job-clone": OWNER_CHANGES,
    "GET api:job-notes": OWNER_SEES,
    "POST api:job-notes": Rule(OWNER_CHANGES, body={"text": "Good."}),
    "POST api:job-tags": Rule(OWNER_CHANGES, body={"add": ["baseline"]}),
    "POST api:job-change-preview": Rule(OWNER_CHANGES, body={"priority": 7000}),
    "POST api:job-undo": OWNER_CHANGES,
    "GET api:job-allocation": OWNER_SEES,
    "GET api:job-advice": OWNER_SEES,
    "PUT api:job-log-pattern": Rule(OWNER_CHANGES, body={"pattern": ""}),
    "POST api:job-log-pattern-try": Rule(OWNER_CHANGES, body={"pattern": ""}),
    "GET api:job-ranks": OWNER_SEES,
    "GET api:job-events": OWNER_SEES,
    "GET api:job-metrics": OWNER_SEES,
    "GET api:job-stream": OWNER_SEES,
    "GET api:job-logs": OWNER_SEES,
    "GET api:job-log-files": OWNER_SEES,
    "GET api:job-log-lines": OWNER_SEES,
    "GET api:job-log-search": Rule(OWNER_SEES, query="q=loss"),
    "GET api:job-log-download": OWNER_SEES,
    "GET api:job-why": OWNER_SEES,
    "GET api:job-eta": OWNER_SEES,
    "GET api:job-goodput": OWNER_SEES,
    "GET api:job-files": OWNER_SEES,
    "GET api:job-file-download": Rule(OWNER_SEES, query="path=metrics.jsonl"),
    "GET api:job-code": OWNER_SEES,
    "GET api:job-result": OWNER_SEES,
    "GET api:checkpoints": USERS,
    "GET api:checkpoint-totals": USERS,
    "GET api:job-checkpoints": OWNER_SEES,
    "PATCH api:job-checkpoint": Rule(OWNER_CHANGES, body={"kept": False}),
    "GET api:job-checkpoint-download": OWNER_SEES,
    "GET api:job-validations": OWNER_SEES,
    "POST api:job-validations": OWNER_CHANGES,
    # WMLA: Conductor, the scheduler of deep learning, EGO. Its applications are trainings, its instances groups.
    "GET wmla:instances": USERS,
    "POST wmla:instances": ADMINS,
    "PUT wmla:instance-configuration": GROUP_ADMINS,
    "PUT wmla:instance-deploy": ADMINS,
    "PUT wmla:instance-start": ADMINS,
    "PUT wmla:instance-stop": ADMINS,
    "GET wmla:applications": USERS,
    "PUT wmla:application-priority": Rule(OWNER_CHANGES, body={"priority": 6000}),
    "GET wmla:driver-log": OWNER_SEES,
    "GET wmla:executor-log": OWNER_SEES,
    "GET wmla:scheduler-applications": USERS,
    "PUT wmla:scheduler-stop": OWNER_CHANGES,
    "GET wmla:scheduler-driver-log": OWNER_SEES,
    "GET wmla:scheduler-executor-log": OWNER_SEES,
    "GET wmla:scheduler-instances": USERS,
    "GET wmla:engine-applications": USERS,
    "GET wmla:engine-application": OWNER_SEES,
    "GET wmla:kubernetes-objects": USERS,
    "GET wmla:resource-plan-tree": USERS,
    "GET wmla:resource-plan": USERS,
    "DELETE wmla:resource-plan": ADMINS,
    "GET wmla:ego-resource-groups": USERS,
    "GET wmla:ego-resource-group": USERS,
    "GET wmla:ego-consumers": USERS,
    "GET wmla:ego-hosts": USERS,
    # WMLA: who logs on sends a password, and no cookie counts
    "GET wmla:conductor-logon": NOBODY,
    "GET wmla:logon": NOBODY,
    "POST wmla:logon": NOBODY,
    "GET wmla:validate-auth": NOBODY,
    "POST wmla:logoff": USERS,
    # WMLA: trainings
    "GET wmla:exec-frameworks": USERS,
    "GET wmla:conf": USERS,
    "GET wmla:status": USERS,
    "GET wmla:execs": USERS,
    "POST wmla:execs": CHANGERS,
    "DELETE wmla:execs": CHANGERS,
    "GET wmla:exec": OWNER_SEES,
    "DELETE wmla:exec": OWNER_CHANGES,
    "POST wmla:exec-stop": OWNER_CHANGES,
    "POST wmla:exec-deploy": OWNER_CHANGES,
    "GET wmla:exec-log": OWNER_SEES,
    "GET wmla:exec-result": OWNER_SEES,
}


def rule_of(line: str) -> Rule:
    rule = RULES[line]
    return rule if isinstance(rule, Rule) else Rule(rule)
