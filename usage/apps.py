from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "usage"

    def ready(self) -> None:
        from jobs.control.dispatch import PeriodicTask, register_periodic_task

        register_periodic_task(PeriodicTask("usage.tasks.roll_up_usage", every_seconds=60.0))
