"""Permissions of WMLA's addresses: lines as in tests/permissions.py, which has them, too."""

from tests.audiences import (
    ADMINS,
    CHANGERS,
    GROUP_ADMINS,
    NOBODY,
    NOT_THERE,
    NOT_THERE_FOR_CHANGERS,
    OWNER_CHANGES,
    OWNER_SEES,
    SEEN_OWNER_CHANGES,
    USERS,
    Audience,
    Rule,
)

__all__ = ["WMLA_RULES"]

WMLA_RULES: dict[str, Audience | Rule] = {
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
    # This training has no weights; tests/wmla/registry/test_trainings.py has one with weights.
    "GET wmla:training-weights": NOT_THERE,
    "GET wmla:validations": USERS,
    "POST wmla:validations": CHANGERS,
    "GET wmla:validation": OWNER_SEES,
    "DELETE wmla:validation": OWNER_CHANGES,
    "PUT wmla:validation-stop": OWNER_CHANGES,
    "GET wmla:model-searches": USERS,
    "POST wmla:model-searches": CHANGERS,
    "GET wmla:model-search": OWNER_SEES,
    "DELETE wmla:model-search": Rule(OWNER_CHANGES, args={"tuning": "finished search"}),
    "PUT wmla:model-search-stop": OWNER_CHANGES,
    "PUT wmla:model-search-force": OWNER_CHANGES,
    "PUT wmla:model-search-restart": Rule(OWNER_CHANGES, args={"tuning": "finished search"}),
    "PUT wmla:model-search-update": OWNER_CHANGES,
    "PUT wmla:model-search-create": OWNER_CHANGES,
    "GET wmla:frameworks": USERS,
    "GET wmla:frameworks-all": USERS,
    **{
        f"{method} wmla:{name}": NOT_THERE if method == "GET" else NOT_THERE_FOR_CHANGERS
        for name in (
            *("inferences", "edimodels"),
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
    "GET wmla:ego-logon": NOBODY,
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
    # WMLA: hyperparameter searches
    "GET wmla:hypersearches": USERS,
    "POST wmla:hypersearches": CHANGERS,
    "DELETE wmla:hypersearches": CHANGERS,
    "GET wmla:hypersearch": OWNER_SEES,
    "PUT wmla:hypersearch": OWNER_CHANGES,
    "DELETE wmla:hypersearch": Rule(OWNER_CHANGES, args={"hpo_name": "finished search"}),
    "PUT wmla:hypersearch-force": OWNER_CHANGES,
    "PUT wmla:hypersearch-restart": Rule(OWNER_CHANGES, args={"hpo_name": "finished search"}),
    "GET wmla:search-algorithms": USERS,
    "GET wmla:search-algorithm": USERS,
    "DELETE wmla:search-algorithm": CHANGERS,
    "POST wmla:search-algorithms": CHANGERS,
    "POST wmla:hypersearch-install": CHANGERS,
}
