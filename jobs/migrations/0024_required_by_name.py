import hashlib
from typing import Any

from django.db import migrations


def require(apps: Any, editor: Any) -> None:
    """Give named environments the row of what they require."""
    required = apps.get_model("jobs", "RequiredEnvironment")
    for row in apps.get_model("jobs", "NamedEnvironment").objects.all():
        key = hashlib.sha256(row.lines.encode()).hexdigest()
        row.required, _ = required.objects.get_or_create(key=key, defaults={"lines": row.lines})
        row.save(update_fields=["required"])


class Migration(migrations.Migration):
    dependencies = [("jobs", "0023_prepared_environments")]

    operations = [migrations.RunPython(require, migrations.RunPython.noop)]
