from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "datasets"

    def ready(self) -> None:
        from core.scopes import register_for_submit

        register_for_submit("api:dataset")
