from django.apps import AppConfig


class ModelsRegistryConfig(AppConfig):
    name = "models_registry"

    def ready(self) -> None:
        from core.scopes import register_for_submit

        register_for_submit("api:model", "api:template", "api:script")
