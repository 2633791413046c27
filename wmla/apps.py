from django.apps import AppConfig


class WmlaConfig(AppConfig):
    name = "wmla"

    def ready(self) -> None:
        from jobs.control.dispatch import register_launch_environment
        from wmla.launch import launch_environment

        register_launch_environment(launch_environment)
