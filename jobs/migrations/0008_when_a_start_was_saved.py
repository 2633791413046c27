from typing import Any

from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def note_newest_checkpoints(apps: Any, schema_editor: Any) -> None:
    newest = apps.get_model("jobs", "Checkpoint").objects.filter(job=OuterRef("job"), problem="")
    at = newest.order_by("-step", "-attempt").values("created_at")[:1]
    apps.get_model("jobs", "JobRun").objects.update(saved_at=Subquery(at))


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0007_limits_and_reservations"),
    ]

    operations = [
        migrations.AddField(
            model_name="jobrun",
            name="saved_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunPython(note_newest_checkpoints, migrations.RunPython.noop),
    ]
