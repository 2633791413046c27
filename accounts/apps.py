from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from axes.signals import user_locked_out
        from django.conf import settings

        from accounts.passwords import record_lockout
        from core.roles import register_own_matters
        from core.scopes import register_for_every_token

        user_locked_out.connect(record_lockout)
        if settings.LDAP is not None:
            from accounts.organization.ldap import report_errors

            report_errors()
        register_own_matters("POST", "api:my-password", "account-password", "account-token-withdraw", "one-time-link")
        register_own_matters("DELETE", "api:token", "api:my-token", "api:my-current-token")
        register_for_every_token("GET", "api:me", "api:my-current-token")
        register_for_every_token("DELETE", "api:my-current-token")
