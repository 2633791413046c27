from core.migrations._tables import CreateModels
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [("tracking", "0001_initial"), ("tracking", "0002_claims"), ("tracking", "0003_studies")]

    initial = True

    dependencies = [
        ("jobs", "0001_initial"),
        ("models_registry", "0001_initial"),
        ("studies", "0003_study_events"),
    ]

    operations = [
        CreateModels(
            operations=[
                migrations.CreateModel(
                    name="TrackedStudy",
                    fields=[
                        (
                            "study",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="tracked_study",
                                serialize=False,
                                to="studies.study",
                            ),
                        ),
                        ("run_id", models.CharField(max_length=32, unique=True)),
                        ("experiment_id", models.CharField(max_length=32)),
                        ("sent_revision", models.PositiveIntegerField(default=0)),
                        ("sent_best", models.FloatField(blank=True, null=True)),
                        ("sent_child", models.PositiveBigIntegerField(default=0)),
                        ("is_given_up", models.BooleanField(default=False)),
                    ],
                ),
                migrations.CreateModel(
                    name="MirrorState",
                    fields=[
                        ("claim", models.CharField(blank=True, default="", max_length=32)),
                        ("claimed_until", models.DateTimeField(null=True)),
                        ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                        ("asked_at", models.DateTimeField()),
                        ("away_since", models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(condition=models.Q(("id", 1)), name="mirror_state_single_row")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="TrackedRun",
                    fields=[
                        (
                            "job",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="tracked_run",
                                serialize=False,
                                to="jobs.job",
                            ),
                        ),
                        ("run_id", models.CharField(max_length=32, unique=True)),
                        ("experiment_id", models.CharField(max_length=32)),
                        ("sent_point", models.PositiveBigIntegerField(default=0)),
                        ("sent_allocation", models.PositiveBigIntegerField(default=0)),
                        ("sent_steps", models.JSONField(default=dict)),
                        ("own_metrics", models.JSONField(default=list)),
                        ("sent_status", models.CharField(blank=True, default="", max_length=16)),
                        ("is_done", models.BooleanField(default=False)),
                    ],
                    options={
                        "indexes": [
                            models.Index(
                                condition=models.Q(("is_done", False)), fields=["is_done"], name="runs_to_mirror"
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="UnsentCall",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("call", models.CharField(max_length=64)),
                        ("values", models.JSONField()),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="unsent_calls", to="jobs.job"
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="ExperimentReader",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("experiment_id", models.CharField(max_length=32)),
                        (
                            "user",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "constraints": [
                            models.UniqueConstraint(fields=("experiment_id", "user"), name="experiment_reader_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="ExperimentShare",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "group",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="experiment_shares",
                                to="jobs.instancegroup",
                            ),
                        ),
                        (
                            "model",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="experiment_shares",
                                to="models_registry.registeredmodel",
                            ),
                        ),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="experiment_shares",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "constraints": [
                            models.UniqueConstraint(fields=("owner", "model", "group"), name="experiment_shared_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="ModelVersion",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=256)),
                        ("number", models.PositiveIntegerField(blank=True, null=True)),
                        ("source", models.CharField(blank=True, default="", max_length=1024)),
                        ("aliases", models.JSONField(default=list)),
                        ("problem", models.CharField(blank=True, default="", max_length=500)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="mlflow_versions",
                                to="jobs.job",
                            ),
                        ),
                    ],
                    options={
                        "constraints": [
                            models.UniqueConstraint(fields=("name", "number"), name="mlflow_version_once"),
                            models.UniqueConstraint(
                                condition=models.Q(("number", None)),
                                fields=("job", "name"),
                                name="mlflow_version_asked_once",
                            ),
                        ],
                    },
                ),
            ],
        ),
    ]
