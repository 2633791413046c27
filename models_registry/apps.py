from django.apps import AppConfig


class ModelsRegistryConfig(AppConfig):
    name = "models_registry"

    def ready(self) -> None:
        from core.roles import register_forms
        from core.scopes import register_for_submit

        register_forms("models:new", "models:add", "models:add-location", "models:change", "models:clone")
        register_for_submit("api:model", "api:template", "api:script")
