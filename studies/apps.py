from django.apps import AppConfig


class StudiesConfig(AppConfig):
    name = "studies"

    def ready(self) -> None:
        from core.roles import register_forms
        from core.scopes import register_for_submit
        from jobs.pages.train.sweeps import register_sweeps
        from studies.job_parts import register_job_parts
        from studies.sweeps import start_sweep

        register_forms("studies:new")
        register_for_submit("api:study", "api:studies")
        register_job_parts()
        register_sweeps(start_sweep)
