from django.apps import AppConfig


class WmlaConfig(AppConfig):
    name = "wmla"

    def ready(self) -> None:
        from core.roles import register_own_matters
        from jobs.control.dispatch import register_launch_environment
        from wmla.launch import launch_environment

        register_launch_environment(launch_environment)
        register_own_matters("POST", "wmla:logon", "wmla:logoff")
