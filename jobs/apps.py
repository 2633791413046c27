from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"

    def ready(self) -> None:
        from accounts.organization.memberships import register_memberships
        from core.roles import register_forms, register_own_matters
        from core.scopes import register_for_one_job, register_for_submit
        from jobs.actions.memberships import follow_provider

        register_memberships(follow_provider)
        register_forms("secrets:new", "jobs:train", "jobs:log-pattern", "jobs:validate")
        register_own_matters("POST", "jobs:columns", "jobs:charts")
        register_own_matters("POST", "jobs:save-filter", "jobs:forget-filter", "api:job-filters")
        register_own_matters("DELETE", "api:job-filter")
        register_for_submit("api:job")
        register_for_one_job(
            *("api:job", "api:job-cancel", "api:job-suspend", "api:job-resume", "api:job-wait", "api:job-undo"),
            "api:job-keep-gpus",
            *("api:job-log-pattern", "api:job-log-pattern-try", "api:job-notes", "api:job-tags", "api:job-checkpoint"),
        )
