from django.apps import AppConfig


class TrackingConfig(AppConfig):
    name = "tracking"

    def ready(self) -> None:
        from jobs.control.lifecycle import register_attempt_start
        from tracking.access import write_access

        register_attempt_start(write_access)
