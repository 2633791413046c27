"""What tests need that start processes of their own over the test's database."""

from urllib.parse import quote

from django.db import connection

__all__ = ["database_url"]


def database_url() -> str:
    """TIDEPOOL_DATABASE_URL for a process that shall see the test's rows."""
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    login = f"{quote(values['USER'])}:{quote(values['PASSWORD'])}@{values['HOST']}:{values['PORT'] or 5432}"
    return f"postgres://{login}/{values['NAME']}"
