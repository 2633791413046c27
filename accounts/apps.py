from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from axes.signals import user_locked_out

        from accounts.passwords import record_lockout

        user_locked_out.connect(record_lockout)
