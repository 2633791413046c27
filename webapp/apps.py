from django.apps import AppConfig


class WebappConfig(AppConfig):
    name = "webapp"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from axes.signals import user_locked_out

        from webapp.accounts.lockouts import record_lockout

        user_locked_out.connect(record_lockout)
