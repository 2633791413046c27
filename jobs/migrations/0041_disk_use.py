import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0040_began_on"),
    ]

    operations = [
        migrations.CreateModel(
            name="DiskUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("size_bytes", models.BigIntegerField()),
                ("measured_at", models.DateTimeField(db_index=True)),
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="disk_use", to="jobs.job"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("size_bytes__gte", 0)), name="disk_use_is_a_size")
                ],
            },
        ),
    ]
