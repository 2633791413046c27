from django.db import migrations, models
from django.utils import timezone


def begin(apps, schema_editor):
    """History begins with what the hosts that are there have now."""
    host_rows = apps.get_model("workers", "Host").objects.exclude(state="OFFLINE")
    points = apps.get_model("workers", "CapacityPoint").objects
    for host in host_rows:
        slots = host.slots.filter(index__lt=host.ngpus).count()
        if slots:
            points.create(host=host, at=timezone.now(), slots=slots)


class Migration(migrations.Migration):
    dependencies = [
        ("workers", "0003_idle_since"),
    ]

    operations = [
        migrations.CreateModel(
            name="CapacityPoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("slots", models.PositiveIntegerField()),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=models.deletion.CASCADE, related_name="capacity_points", to="workers.host"
                    ),
                ),
            ],
            options={"ordering": ["at", "id"]},
        ),
        migrations.AddIndex(
            model_name="capacitypoint",
            index=models.Index(fields=["host", "at"], name="capacity_by_host"),
        ),
        migrations.AddIndex(
            model_name="capacitypoint",
            index=models.Index(fields=["at"], name="capacity_by_time"),
        ),
        migrations.RunPython(begin, migrations.RunPython.noop),
    ]
