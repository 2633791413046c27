from django.apps import AppConfig


class InsightsConfig(AppConfig):
    name = "insights"

    def ready(self) -> None:
        from insights.job_parts import register_job_parts

        register_job_parts()
