import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("jobs", "0002_rows_of_other_apps"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # `jobs.0001` makes the tables, and `jobs.0002` gives them the names that they have here.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Replay",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("created_at", models.DateTimeField()),
                        ("start", models.DateTimeField()),
                        ("end", models.DateTimeField()),
                        ("alternative", models.JSONField(default=dict)),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("WAITING", "Waiting"),
                                    ("RUNNING", "Running"),
                                    ("DONE", "Done"),
                                    ("FAILED", "Failed"),
                                ],
                                default="WAITING",
                                max_length=16,
                            ),
                        ),
                        ("progress", models.FloatField(default=0)),
                        ("problem", models.TextField(blank=True, default="")),
                        ("claim", models.CharField(blank=True, default="", max_length=32)),
                        ("claimed_until", models.DateTimeField(null=True)),
                        ("result", models.JSONField(default=dict)),
                        ("jobs", models.JSONField(default=list)),
                        ("moments", models.JSONField(default=dict)),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="replays",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-id"],
                        "indexes": [
                            models.Index(
                                condition=models.Q(("state__in", ("WAITING", "RUNNING"))),
                                fields=["id"],
                                name="replay_not_done",
                            )
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("end__gt", models.F("start"))), name="replay_window_in_order"
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("state__in", ("WAITING", "RUNNING", "DONE", "FAILED"))),
                                name="replay_state",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("state", "FAILED"), _negated=True),
                                    models.Q(("problem", ""), _negated=True),
                                    _connector="OR",
                                ),
                                name="replay_failed_says_why",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("state", "RUNNING"), models.Q(("claim", ""), _negated=True)),
                                    models.Q(models.Q(("state", "RUNNING"), _negated=True), ("claim", "")),
                                    _connector="OR",
                                ),
                                name="replay_claimed_while_played",
                            ),
                        ],
                    },
                ),
            ]
        )
    ]
