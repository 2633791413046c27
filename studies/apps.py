from django.apps import AppConfig


class StudiesConfig(AppConfig):
    name = "studies"

    def ready(self) -> None:
        from core.scopes import register_for_submit
        from studies.job_parts import register_job_parts

        register_for_submit("api:study", "api:studies")
        register_job_parts()
