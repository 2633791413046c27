from django.apps import AppConfig


class WebappConfig(AppConfig):
    name = "webapp"

    def ready(self) -> None:
        from core.roles import register_own_matters

        register_own_matters("POST", "login", "logout")
