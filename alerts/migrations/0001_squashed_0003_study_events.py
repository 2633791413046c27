from core.migrations._tables import CreateModels
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [("alerts", "0001_initial"), ("alerts", "0002_claims"), ("alerts", "0003_study_events")]

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("jobs", "0013_pruned"),
        ("studies", "0003_study_events"),
    ]

    operations = [
        CreateModels(
            operations=[
                migrations.CreateModel(
                    name="Alert",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "kind",
                            models.CharField(
                                choices=[
                                    ("training_failed", "A training failed"),
                                    ("training_done", "A training is done"),
                                    ("training_waits", "A training waits long"),
                                    ("gpus_taken", "A training is shrunk, preempted or loses a host"),
                                    ("loss", "The loss is not a number, rises or is flat"),
                                    ("gpus_idle", "All GPUs of a training are idle"),
                                    ("study_done", "A study is done"),
                                    ("study_paused", "A study pauses by itself"),
                                    ("quota_used", "An instance group uses all of its quota"),
                                ],
                                max_length=16,
                            ),
                        ),
                        ("key", models.CharField(max_length=120)),
                        ("params", models.JSONField(default=dict)),
                        ("at", models.DateTimeField()),
                        (
                            "group",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to="jobs.instancegroup",
                            ),
                        ),
                        (
                            "job",
                            models.ForeignKey(
                                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
                            ),
                        ),
                        (
                            "study",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to="studies.study",
                            ),
                        ),
                        (
                            "channel",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="alerts.channel"
                            ),
                        ),
                        (
                            "delivery",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="alerts",
                                to="alerts.delivery",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["at", "id"],
                        "constraints": [models.UniqueConstraint(fields=("channel", "key"), name="alert_once")],
                    },
                ),
                migrations.CreateModel(
                    name="AlertMark",
                    fields=[
                        ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                        ("event", models.PositiveBigIntegerField(default=0)),
                        ("study_event", models.PositiveBigIntegerField(default=0)),
                        ("full_groups", models.JSONField(default=list)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(condition=models.Q(("id", 1)), name="alert_mark_single_row")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="AlertRule",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "kind",
                            models.CharField(
                                choices=[
                                    ("training_failed", "A training failed"),
                                    ("training_done", "A training is done"),
                                    ("training_waits", "A training waits long"),
                                    ("gpus_taken", "A training is shrunk, preempted or loses a host"),
                                    ("loss", "The loss is not a number, rises or is flat"),
                                    ("gpus_idle", "All GPUs of a training are idle"),
                                    ("study_done", "A study is done"),
                                    ("study_paused", "A study pauses by itself"),
                                    ("quota_used", "An instance group uses all of its quota"),
                                ],
                                max_length=16,
                            ),
                        ),
                        ("minutes", models.PositiveIntegerField(blank=True, null=True)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        (
                            "group",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to="jobs.instancegroup",
                            ),
                        ),
                        (
                            "channel",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="rules", to="alerts.channel"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["id"],
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("channel", "kind", "group"), name="one_alert_rule_of_a_kind_and_group"
                            ),
                            models.UniqueConstraint(
                                condition=models.Q(("group", None)),
                                fields=("channel", "kind"),
                                name="one_alert_rule_of_a_kind_for_all_groups",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    (
                                        "kind__in",
                                        [
                                            "training_failed",
                                            "training_done",
                                            "training_waits",
                                            "gpus_taken",
                                            "loss",
                                            "gpus_idle",
                                            "study_done",
                                            "study_paused",
                                            "quota_used",
                                        ],
                                    )
                                ),
                                name="alert_rule_kind",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("group", None), ("kind", "quota_used"), _negated=True),
                                name="alert_rule_of_a_quota_has_a_group",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("kind__in", ["training_waits", "gpus_idle"]), ("minutes__gte", 1)),
                                    models.Q(
                                        models.Q(("kind__in", ["training_waits", "gpus_idle"]), _negated=True),
                                        ("minutes", None),
                                    ),
                                    _connector="OR",
                                ),
                                name="alert_rule_has_minutes_iff_it_waits",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Channel",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64)),
                        (
                            "kind",
                            models.CharField(
                                choices=[("email", "E-mail"), ("slack", "Slack"), ("webhook", "Webhook")], max_length=16
                            ),
                        ),
                        ("address", models.TextField()),
                        ("masked", models.CharField(max_length=255)),
                        ("secret", models.TextField(blank=True, default="")),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="alert_channels",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [
                            models.UniqueConstraint(fields=("owner", "name"), name="one_alert_channel_of_a_name"),
                            models.CheckConstraint(
                                condition=models.Q(("kind__in", ["email", "slack", "webhook"])),
                                name="alert_channel_kind",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Delivery",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("claim", models.CharField(blank=True, default="", max_length=32)),
                        ("claimed_until", models.DateTimeField(null=True)),
                        (
                            "state",
                            models.CharField(
                                choices=[("waiting", "Waiting"), ("sent", "Sent"), ("failed", "Failed")],
                                default="waiting",
                                max_length=8,
                            ),
                        ),
                        ("is_test", models.BooleanField(default=False)),
                        ("created_at", models.DateTimeField()),
                        ("tries", models.PositiveSmallIntegerField(default=0)),
                        ("next_try_at", models.DateTimeField()),
                        ("sent_at", models.DateTimeField(blank=True, null=True)),
                        ("problem", models.CharField(blank=True, default="", max_length=300)),
                        (
                            "channel",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="deliveries",
                                to="alerts.channel",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-id"],
                        "indexes": [
                            models.Index(
                                condition=models.Q(("state", "waiting")),
                                fields=["next_try_at"],
                                name="deliveries_to_try",
                            ),
                            models.Index(fields=["created_at"], name="deliveries_by_time"),
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("sent_at__isnull", False), ("state", "sent")),
                                    models.Q(models.Q(("state", "sent"), _negated=True), ("sent_at", None)),
                                    _connector="OR",
                                ),
                                name="delivery_sent_iff_sent_at",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("state", "waiting"), ("claim", ""), _connector="OR"),
                                name="delivery_claimed_while_waiting",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="QuietHours",
                    fields=[
                        (
                            "owner",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="quiet_hours",
                                serialize=False,
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        ("begins", models.TimeField()),
                        ("ends", models.TimeField()),
                        ("time_zone", models.CharField(default="UTC", max_length=64)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("begins", models.F("ends")), _negated=True),
                                name="quiet_hours_end_at_another_time",
                            )
                        ],
                    },
                ),
            ],
        ),
    ]
