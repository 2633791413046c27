from django.apps import AppConfig


class ReportsConfig(AppConfig):
    name = "reports"

    def ready(self) -> None:
        from core.roles import register_forms

        register_forms("reports:add", "reports:edit")
