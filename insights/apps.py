from django.apps import AppConfig


class InsightsConfig(AppConfig):
    name = "insights"

    def ready(self) -> None:
        from core.scopes import register_for_one_job
        from insights.job_parts import register_job_parts

        register_for_one_job("api:job-change-preview", "api:job-stacks", "api:job-flame", "api:job-trace")
        register_job_parts()
