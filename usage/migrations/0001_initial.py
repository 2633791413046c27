import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("jobs", "0002_rows_of_other_apps"),
    ]

    operations = [
        # `jobs.0001` makes the tables, and `jobs.0002` gives them the names that they have here.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="UsageName",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=128, unique=True)),
                    ],
                ),
                migrations.CreateModel(
                    name="GpuPrice",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("gpu_model", models.CharField(max_length=128)),
                        ("valid_from", models.DateField()),
                        ("per_hour", models.DecimalField(decimal_places=4, max_digits=12)),
                    ],
                    options={
                        "ordering": ["gpu_model", "valid_from"],
                        "constraints": [
                            models.UniqueConstraint(fields=("gpu_model", "valid_from"), name="gpu_price_once_per_day"),
                            models.CheckConstraint(
                                condition=models.Q(("per_hour__gte", 0)), name="gpu_price_not_negative"
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="UsageMark",
                    fields=[
                        ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                        ("from_hour", models.PositiveIntegerField()),
                        ("hours_from", models.PositiveIntegerField()),
                        ("until_hour", models.PositiveIntegerField()),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(condition=models.Q(("id", 1)), name="usage_mark_single_row")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="UsageBucket",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("hours", models.PositiveSmallIntegerField()),
                        ("start_hour", models.PositiveIntegerField()),
                        (
                            "dimension",
                            models.PositiveSmallIntegerField(
                                choices=[
                                    (1, "User"),
                                    (2, "Group"),
                                    (3, "Job"),
                                    (4, "Host"),
                                    (5, "Gpu Model"),
                                    (6, "Capacity"),
                                ]
                            ),
                        ),
                        ("subject", models.PositiveBigIntegerField()),
                        ("held_ms", models.PositiveBigIntegerField()),
                        ("busy_ms", models.PositiveBigIntegerField(default=0)),
                        ("idle_ms", models.PositiveBigIntegerField(default=0)),
                        ("training_ms", models.PositiveBigIntegerField(default=0)),
                        (
                            "gpu_model",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="+",
                                to="usage.usagename",
                            ),
                        ),
                    ],
                    options={
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("hours", "dimension", "start_hour", "subject", "gpu_model"),
                                name="usage_bucket_once",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("hours__in", (1, 24))), name="usage_bucket_hour_or_day"
                            ),
                        ],
                    },
                ),
            ]
        )
    ]
