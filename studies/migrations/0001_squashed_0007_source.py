from core.migrations._tables import CreateModels
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("studies", "0001_initial"),
        ("studies", "0002_asked"),
        ("studies", "0003_study_events"),
        ("studies", "0004_plugins"),
        ("studies", "0005_tags"),
        ("studies", "0006_optuna_copies"),
        ("studies", "0007_source"),
    ]

    initial = True

    dependencies = [
        ("datasets", "0001_initial"),
        ("jobs", "0013_pruned"),
        ("models_registry", "0001_initial"),
    ]

    operations = [
        CreateModels(
            operations=[
                migrations.CreateModel(
                    name="SearchPlugin",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=255, unique=True)),
                        ("description", models.TextField(blank=True, default="")),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        ("log_level", models.CharField(max_length=16)),
                        ("asked", models.JSONField(blank=True, default=dict)),
                        (
                            "code",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="search_plugins",
                                to="models_registry.registeredmodelversion",
                            ),
                        ),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="search_plugins",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "abstract": False,
                    },
                ),
                migrations.CreateModel(
                    name="Study",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("claim", models.CharField(blank=True, default="", max_length=32)),
                        ("claimed_until", models.DateTimeField(null=True)),
                        ("name", models.CharField(max_length=255)),
                        ("parameters", models.JSONField(default=dict)),
                        ("arguments", models.JSONField(default=list)),
                        ("tags", models.JSONField(default=list)),
                        ("options", models.JSONField(default=dict)),
                        ("space", models.JSONField()),
                        ("metric", models.CharField(max_length=200)),
                        (
                            "goal",
                            models.CharField(
                                choices=[("minimize", "Minimize"), ("maximize", "Maximize")], max_length=16
                            ),
                        ),
                        (
                            "value_of",
                            models.CharField(
                                choices=[("last", "Last"), ("best", "Best")], default="last", max_length=16
                            ),
                        ),
                        ("sampler", models.CharField(default="tpe", max_length=16)),
                        ("plugin_arguments", models.JSONField(blank=True, default=dict)),
                        ("plugin_failed", models.BooleanField(default=False)),
                        ("sampler_options", models.JSONField(default=dict)),
                        ("pruner", models.CharField(default="none", max_length=16)),
                        ("seed", models.PositiveIntegerField(default=0)),
                        ("trials_wanted", models.PositiveIntegerField(blank=True, null=True)),
                        ("max_minutes", models.PositiveIntegerField(blank=True, null=True)),
                        ("max_gpu_hours", models.FloatField(blank=True, null=True)),
                        ("at_once", models.PositiveIntegerField(blank=True, null=True)),
                        ("importance", models.JSONField(default=dict)),
                        ("importance_trials", models.PositiveIntegerField(default=0)),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("RUNNING", "Running"),
                                    ("PAUSED", "Paused"),
                                    ("FINISHED", "Finished"),
                                    ("STOPPED", "Stopped"),
                                ],
                                default="RUNNING",
                                max_length=16,
                            ),
                        ),
                        ("reason", models.CharField(max_length=500)),
                        ("dialect", models.CharField(blank=True, default="", max_length=16)),
                        ("asked", models.JSONField(blank=True, default=dict)),
                        ("source", models.JSONField(blank=True, default=dict)),
                        ("revision", models.PositiveIntegerField(default=1)),
                        ("created_at", models.DateTimeField()),
                        ("finished_at", models.DateTimeField(blank=True, null=True)),
                        (
                            "dataset",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="studies",
                                to="datasets.datasetversion",
                            ),
                        ),
                        (
                            "instance_group",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="studies",
                                to="jobs.instancegroup",
                            ),
                        ),
                        (
                            "model",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="studies",
                                to="models_registry.registeredmodelversion",
                            ),
                        ),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="studies",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        (
                            "plugin",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="studies",
                                to="studies.searchplugin",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name_plural": "studies",
                        "ordering": ["-id"],
                        "indexes": [
                            models.Index(
                                condition=models.Q(("state__in", ("RUNNING", "PAUSED"))),
                                fields=["id"],
                                name="study_not_over",
                            ),
                            models.Index(fields=["owner", "-id"], name="study_by_owner"),
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("state__in", ("RUNNING", "PAUSED", "FINISHED", "STOPPED"))),
                                name="study_state",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("goal__in", ("minimize", "maximize"))), name="study_goal"
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("finished_at", None), ("state__in", ("RUNNING", "PAUSED"))),
                                    models.Q(("finished_at__isnull", False), ("state__in", ("FINISHED", "STOPPED"))),
                                    _connector="OR",
                                ),
                                name="study_finished_iff_over",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    ("trials_wanted", None),
                                    models.Q(("trials_wanted__gte", 1), ("trials_wanted__lte", 10000)),
                                    _connector="OR",
                                ),
                                name="study_trials_wanted",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("at_once", None), ("at_once__gte", 1), _connector="OR"),
                                name="study_at_once",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("max_gpu_hours", None), ("max_gpu_hours__gt", 0), _connector="OR"),
                                name="study_gpu_hours",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("max_minutes", None), ("max_minutes__gt", 0), _connector="OR"),
                                name="study_minutes",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="StudyEvent",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "new",
                            models.CharField(
                                choices=[
                                    ("RUNNING", "Running"),
                                    ("PAUSED", "Paused"),
                                    ("FINISHED", "Finished"),
                                    ("STOPPED", "Stopped"),
                                ],
                                max_length=16,
                            ),
                        ),
                        ("reason", models.CharField(max_length=500)),
                        ("actor", models.CharField(blank=True, default="", max_length=150)),
                        ("at", models.DateTimeField()),
                        (
                            "study",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="events", to="studies.study"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["id"],
                    },
                ),
                migrations.CreateModel(
                    name="Trial",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveIntegerField()),
                        ("values", models.JSONField()),
                        (
                            "origin",
                            models.CharField(
                                choices=[
                                    ("sampler", "Sampler"),
                                    ("user", "User"),
                                    ("seed", "Seed"),
                                    ("repeat", "Repeat"),
                                ],
                                default="sampler",
                                max_length=16,
                            ),
                        ),
                        ("job_seed", models.PositiveBigIntegerField(blank=True, null=True)),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("WAITING", "Waiting"),
                                    ("RUNNING", "Running"),
                                    ("COMPLETE", "Complete"),
                                    ("PRUNED", "Pruned"),
                                    ("FAILED", "Failed"),
                                ],
                                default="WAITING",
                                max_length=16,
                            ),
                        ),
                        ("rung", models.PositiveIntegerField(default=0)),
                        ("value", models.FloatField(blank=True, null=True)),
                        ("reported", models.JSONField(default=list)),
                        ("attributes", models.JSONField(default=dict)),
                        ("why", models.CharField(blank=True, default="", max_length=500)),
                        ("is_script_error", models.BooleanField(default=False)),
                        ("created_at", models.DateTimeField()),
                        ("finished_at", models.DateTimeField(blank=True, null=True)),
                        (
                            "job",
                            models.OneToOneField(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="trial",
                                to="jobs.job",
                            ),
                        ),
                        (
                            "repeats",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="repeated_by",
                                to="studies.trial",
                            ),
                        ),
                        (
                            "study",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="trials", to="studies.study"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["study", "number"],
                        "indexes": [models.Index(fields=["study", "state"], name="trial_by_state")],
                        "constraints": [
                            models.UniqueConstraint(fields=("study", "number"), name="trial_once"),
                            models.CheckConstraint(
                                condition=models.Q(
                                    ("state__in", ("WAITING", "RUNNING", "COMPLETE", "PRUNED", "FAILED"))
                                ),
                                name="trial_state",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("state", "COMPLETE"), _negated=True),
                                    ("value__isnull", False),
                                    _connector="OR",
                                ),
                                name="complete_trial_has_a_value",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("job", None), ("state", "WAITING")),
                                    models.Q(("state", "WAITING"), _negated=True),
                                    _connector="OR",
                                ),
                                name="waiting_trial_has_no_training",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("finished_at", None), ("state__in", ("WAITING", "RUNNING"))),
                                    models.Q(
                                        models.Q(("state__in", ("WAITING", "RUNNING")), _negated=True),
                                        ("finished_at__isnull", False),
                                    ),
                                    _connector="OR",
                                ),
                                name="trial_finished_iff_over",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    ("repeats", None), ("origin__in", ("seed", "repeat")), _connector="OR"
                                ),
                                name="trial_repeats_another",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="OptunaCopy",
                    fields=[
                        ("claim", models.CharField(blank=True, default="", max_length=32)),
                        ("claimed_until", models.DateTimeField(null=True)),
                        (
                            "study",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="optuna_copy",
                                serialize=False,
                                to="studies.study",
                            ),
                        ),
                        ("copied_revision", models.PositiveIntegerField(default=0)),
                        ("next_try_at", models.DateTimeField()),
                        ("problem", models.CharField(blank=True, default="", max_length=300)),
                        ("failing_since", models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("failing_since", None), ("problem", "")),
                                    models.Q(
                                        models.Q(("problem", ""), _negated=True), ("failing_since__isnull", False)
                                    ),
                                    _connector="OR",
                                ),
                                name="optuna_copy_fails_iff_it_has_a_problem",
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="PluginCall",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveIntegerField()),
                        ("samples", models.PositiveIntegerField()),
                        ("proposed", models.PositiveIntegerField(default=0)),
                        ("told", models.JSONField(default=list)),
                        (
                            "state",
                            models.CharField(
                                choices=[("ASKED", "Asked"), ("ANSWERED", "Answered"), ("FAILED", "Failed")],
                                default="ASKED",
                                max_length=16,
                            ),
                        ),
                        ("is_lost", models.BooleanField(default=False)),
                        ("created_at", models.DateTimeField()),
                        (
                            "job",
                            models.OneToOneField(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="plugin_call",
                                to="jobs.job",
                            ),
                        ),
                        (
                            "study",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="plugin_calls",
                                to="studies.study",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["study", "number"],
                        "constraints": [
                            models.UniqueConstraint(fields=("study", "number"), name="plugin_call_once"),
                            models.UniqueConstraint(
                                condition=models.Q(("state", "ASKED")),
                                fields=("study",),
                                name="plugin_called_once_at_a_time",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("state__in", ("ASKED", "ANSWERED", "FAILED"))),
                                name="plugin_call_state",
                            ),
                        ],
                    },
                ),
            ],
        ),
    ]
