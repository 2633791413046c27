from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "datasets"

    def ready(self) -> None:
        from core.roles import register_forms
        from core.scopes import register_for_submit

        register_forms("datasets:new")
        register_for_submit("api:dataset")
