from core.migrations._tables import CreateModels
import django.core.validators
import django.db.models.deletion
import jobs.models.jobs
import jobs.states
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("jobs", "0001_initial"),
        ("jobs", "0002_rows_of_other_apps"),
        ("jobs", "0003_group_queue"),
        ("jobs", "0004_over_quota"),
        ("jobs", "0005_stall_seconds"),
        ("jobs", "0006_stepped_at"),
        ("jobs", "0007_curve_limits"),
        ("jobs", "0008_growth_limit"),
        ("jobs", "0009_gpu_spans"),
        ("jobs", "0010_chosen_charts"),
        ("jobs", "0011_chosen_grouping"),
        ("jobs", "0012_bundle"),
        ("jobs", "0013_pruned"),
        ("jobs", "0014_gpus_per_process"),
        ("jobs", "0015_positions"),
        ("jobs", "0016_job_source"),
        ("jobs", "0017_environment_software"),
        ("jobs", "0018_kind_ratios"),
        ("jobs", "0019_start_seconds"),
        ("jobs", "0020_named_environments"),
        ("jobs", "0021_lead_number"),
        ("jobs", "0022_folder_environments"),
        ("jobs", "0023_prepared_environments"),
        ("jobs", "0024_required_by_name"),
        ("jobs", "0025_named_require"),
        ("jobs", "0026_required_by_runs"),
        ("jobs", "0027_leaving_hosts"),
        ("jobs", "0028_series"),
        ("jobs", "0029_value_digest"),
        ("jobs", "0030_idle_gpus"),
        ("jobs", "0031_sealed"),
        ("jobs", "0032_stacks"),
        ("jobs", "0033_time_by_cause"),
        ("jobs", "0034_secrets"),
        ("jobs", "0035_gpu_weights"),
        ("jobs", "0036_least_isolation"),
        ("jobs", "0037_recordings"),
        ("jobs", "0038_cores_and_memory"),
    ]

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("datasets", "0001_initial"),
        ("models_registry", "0001_initial"),
        ("workers", "0006_prepared_environments"),
    ]

    operations = [
        CreateModels(
            operations=[
                migrations.CreateModel(
                    name="Checkpoint",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("attempt", models.PositiveIntegerField()),
                        ("step", models.PositiveBigIntegerField()),
                        ("epoch", models.PositiveIntegerField()),
                        ("path", models.CharField(max_length=1024)),
                        ("size_bytes", models.BigIntegerField()),
                        ("sha256", models.CharField(max_length=64)),
                        ("problem", models.CharField(blank=True, default="", max_length=500)),
                        ("kept", models.BooleanField(default=False)),
                        ("created_at", models.DateTimeField()),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="checkpoints", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "-step"],
                        "indexes": [models.Index(fields=["-created_at", "-id"], name="checkpoint_by_time")],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "attempt", "step"), name="checkpoint_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="InstanceGroup",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64, unique=True)),
                        ("description", models.CharField(blank=True, default="", max_length=200)),
                        ("template", models.CharField(blank=True, default="", max_length=64)),
                        (
                            "state",
                            models.CharField(
                                choices=[("REGISTERED", "Registered"), ("STARTED", "Started"), ("STOPPED", "Stopped")],
                                default="STARTED",
                                max_length=16,
                            ),
                        ),
                        ("revision", models.PositiveIntegerField(default=1)),
                        (
                            "policy",
                            models.CharField(
                                choices=[
                                    ("fifo", "Fifo"),
                                    ("priority", "Priority"),
                                    ("fairshare", "Fairshare"),
                                    ("goodput", "Goodput"),
                                ],
                                default="fairshare",
                                max_length=16,
                            ),
                        ),
                        (
                            "aim",
                            models.CharField(
                                choices=[("soon", "Soon"), ("even", "Even"), ("used", "Used")],
                                default="soon",
                                max_length=16,
                            ),
                        ),
                        ("gpu_weights", models.CharField(blank=True, db_default="", default="", max_length=2000)),
                        ("preemption", models.BooleanField(default=False)),
                        ("reclaim_grace_seconds", models.PositiveIntegerField(default=10)),
                        ("minimum_run_seconds", models.PositiveIntegerField(default=0)),
                        ("idle_after_seconds", models.PositiveIntegerField(db_default=900, default=900)),
                        ("idle_reclaims", models.BooleanField(db_default=False, default=False)),
                        ("idle_grace_seconds", models.PositiveIntegerField(db_default=300, default=300)),
                        ("default_priority", models.PositiveIntegerField(default=5000)),
                        ("lowest_priority", models.PositiveIntegerField(default=1)),
                        ("highest_priority", models.PositiveIntegerField(default=10000)),
                        ("quota", models.PositiveIntegerField(blank=True, null=True)),
                        ("weight", models.PositiveIntegerField(default=1)),
                        ("borrows", models.BooleanField(default=True)),
                        ("lends", models.BooleanField(default=True)),
                        (
                            "least_isolation",
                            models.CharField(
                                blank=True,
                                choices=[("", "Any"), ("walled", "Walls"), ("separate", "Users of their own")],
                                db_default="",
                                default="",
                                max_length=8,
                            ),
                        ),
                        ("execution_user", models.CharField(blank=True, default="", max_length=64)),
                        ("deployment_directory", models.CharField(blank=True, default="", max_length=4096)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        (
                            "admins",
                            models.ManyToManyField(
                                blank=True, related_name="administered_groups", to=settings.AUTH_USER_MODEL
                            ),
                        ),
                        (
                            "members",
                            models.ManyToManyField(
                                blank=True, related_name="instance_groups", to=settings.AUTH_USER_MODEL
                            ),
                        ),
                        (
                            "resource_group",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="instance_groups",
                                to="workers.resourcegroup",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("weight__gte", 1), ("quota__isnull", False), _connector="OR"),
                                name="instance_group_weight",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    ("lowest_priority__gte", 1),
                                    ("default_priority__gte", models.F("lowest_priority")),
                                    ("highest_priority__gte", models.F("default_priority")),
                                    ("highest_priority__lte", 10000),
                                ),
                                name="instance_group_priorities_in_order",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("state__in", ["REGISTERED", "STARTED", "STOPPED"])),
                                name="instance_group_state",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Job",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("min_slots", models.PositiveIntegerField(default=1)),
                        ("max_slots", models.PositiveIntegerField()),
                        (
                            "priority",
                            models.PositiveIntegerField(
                                default=5000,
                                validators=[
                                    django.core.validators.MinValueValidator(1),
                                    django.core.validators.MaxValueValidator(10000),
                                ],
                            ),
                        ),
                        ("max_seconds", models.PositiveIntegerField(blank=True, null=True)),
                        (
                            "exactness",
                            models.CharField(
                                choices=[("sum", "Sum"), ("bitwise", "Bitwise")], default="sum", max_length=16
                            ),
                        ),
                        ("virtual_ranks", models.PositiveIntegerField(blank=True, null=True)),
                        (
                            "adaptive",
                            models.CharField(
                                choices=[("script", "Script"), ("off", "Off")], default="script", max_length=16
                            ),
                        ),
                        (
                            "autolog",
                            models.CharField(choices=[("on", "On"), ("off", "Off")], default="on", max_length=16),
                        ),
                        (
                            "placement",
                            models.CharField(
                                choices=[
                                    ("script", "Script"),
                                    ("any", "Any"),
                                    ("equal", "Equal"),
                                    ("one_host", "One Host"),
                                ],
                                default="any",
                                max_length=16,
                            ),
                        ),
                        (
                            "gpus_per_process",
                            models.CharField(
                                choices=[("script", "Script"), ("one", "One"), ("all", "All")],
                                default="script",
                                max_length=16,
                            ),
                        ),
                        ("cpus_per_gpu", models.PositiveIntegerField(blank=True, null=True)),
                        ("memory_gib_per_gpu", models.PositiveIntegerField(blank=True, null=True)),
                        ("effective_batch_size", models.PositiveIntegerField(blank=True, null=True)),
                        ("seed", models.PositiveBigIntegerField(default=0)),
                        ("checkpoint_seconds", models.PositiveIntegerField(blank=True, null=True)),
                        ("checkpoints_kept", models.PositiveIntegerField(blank=True, null=True)),
                        ("stall_seconds", models.PositiveIntegerField(blank=True, null=True)),
                        ("log_pattern", models.CharField(blank=True, default="", max_length=500)),
                        ("named_environment", models.CharField(blank=True, default="", max_length=64)),
                        ("requirements", models.TextField(blank=True, default="")),
                        ("environment", models.JSONField(default=dict)),
                        ("secrets", models.CharField(blank=True, db_default="", default="", max_length=2600)),
                        ("name", models.CharField(max_length=255)),
                        ("name_folded", jobs.models.jobs.FoldedName(default="", editable=False, max_length=255)),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("PENDING", "PENDING"),
                                    ("STARTING", "STARTING"),
                                    ("RUNNING", "RUNNING"),
                                    ("PREEMPTING", "PREEMPTING"),
                                    ("CANCELLING", "CANCELLING"),
                                    ("SUSPENDED", "SUSPENDED"),
                                    ("SUCCEEDED", "SUCCEEDED"),
                                    ("FAILED", "FAILED"),
                                    ("CANCELLED", "CANCELLED"),
                                ],
                                default=jobs.states.JobState["PENDING"],
                                max_length=16,
                            ),
                        ),
                        ("parameters", models.JSONField(default=dict)),
                        ("arguments", models.JSONField(default=list)),
                        ("dialect", models.CharField(blank=True, default="", max_length=16)),
                        ("submitted_args", models.TextField(blank=True, default="")),
                        ("bundle", models.PositiveBigIntegerField(blank=True, null=True)),
                        ("bundle_rank", models.PositiveSmallIntegerField(default=0)),
                        ("hidden_at", models.DateTimeField(blank=True, null=True)),
                        ("log_pattern_revision", models.PositiveIntegerField(default=0)),
                        (
                            "starts_from",
                            models.CharField(
                                choices=[("nothing", "Nothing"), ("weights", "Weights"), ("checkpoint", "Checkpoint")],
                                default="nothing",
                                max_length=16,
                            ),
                        ),
                        ("initial_file", models.CharField(blank=True, default="", max_length=255)),
                        (
                            "reason_code",
                            models.CharField(
                                choices=[
                                    ("SUBMITTED", "SUBMITTED"),
                                    ("STARTED", "STARTED"),
                                    ("HOST_LOST", "HOST_LOST"),
                                    ("HOST_LEAVES", "HOST_LEAVES"),
                                    ("GPUS_IDLE", "GPUS_IDLE"),
                                    ("RANK_LOST", "RANK_LOST"),
                                    ("GROWTH_GIVEN_UP", "GROWTH_GIVEN_UP"),
                                    ("STACK_STOPPED", "STACK_STOPPED"),
                                    ("LAUNCH_TIMEOUT", "LAUNCH_TIMEOUT"),
                                    ("ENVIRONMENT_BUILDING", "ENVIRONMENT_BUILDING"),
                                    ("ENVIRONMENT_FAILED", "ENVIRONMENT_FAILED"),
                                    ("ENVIRONMENT_CHANGED", "ENVIRONMENT_CHANGED"),
                                    ("SECRETS_FAILED", "SECRETS_FAILED"),
                                    ("EXIT_NONZERO", "EXIT_NONZERO"),
                                    ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
                                    ("NO_PROGRESS", "NO_PROGRESS"),
                                    ("TIME_LIMIT", "TIME_LIMIT"),
                                    ("PRIORITY_CHANGED", "PRIORITY_CHANGED"),
                                    ("SUSPENDED_BY_USER", "SUSPENDED_BY_USER"),
                                    ("RESUMED_BY_USER", "RESUMED_BY_USER"),
                                    ("CANCELLED_BY_USER", "CANCELLED_BY_USER"),
                                    ("PRUNED", "PRUNED"),
                                    ("COMPLETED", "COMPLETED"),
                                    ("RESTORED", "RESTORED"),
                                    ("CHECKPOINT_FAILED", "CHECKPOINT_FAILED"),
                                    ("HALTED", "HALTED"),
                                    ("HALT_TIMEOUT", "HALT_TIMEOUT"),
                                    ("PROFILE_REFUSED", "PROFILE_REFUSED"),
                                    ("BATCH_PINNED", "BATCH_PINNED"),
                                    ("SIZE_SHOWS", "SIZE_SHOWS"),
                                    ("REPORT_SET_ASIDE", "REPORT_SET_ASIDE"),
                                    ("WAITING_FOR_SLOTS", "WAITING_FOR_SLOTS"),
                                    ("OVER_QUOTA", "OVER_QUOTA"),
                                    ("GROUP_STOPPED", "GROUP_STOPPED"),
                                    ("GANG_TOO_LARGE_NOW", "GANG_TOO_LARGE_NOW"),
                                    ("BEHIND_HIGHER_PRIORITY", "BEHIND_HIGHER_PRIORITY"),
                                    ("GRANTED", "GRANTED"),
                                    ("BACKFILLED", "BACKFILLED"),
                                    ("GREW_INTO_FREE_SLOTS", "GREW_INTO_FREE_SLOTS"),
                                    ("SHRUNK_FOR_FAIR_SHARE", "SHRUNK_FOR_FAIR_SHARE"),
                                    ("PREEMPTED_BY_PRIORITY", "PREEMPTED_BY_PRIORITY"),
                                    ("GAVE_WAY", "GAVE_WAY"),
                                    ("RECLAIMED_BY_OWNER", "RECLAIMED_BY_OWNER"),
                                    ("REBALANCED", "REBALANCED"),
                                    ("UNCHANGED", "UNCHANGED"),
                                    ("LIMIT_CHANGED", "LIMIT_CHANGED"),
                                    ("GREW_FOR_GOODPUT", "GREW_FOR_GOODPUT"),
                                    ("MOVED_FOR_GOODPUT", "MOVED_FOR_GOODPUT"),
                                    ("SHRUNK_FOR_GOODPUT", "SHRUNK_FOR_GOODPUT"),
                                    ("AT_ITS_KNEE", "AT_ITS_KNEE"),
                                    ("PROFILING", "PROFILING"),
                                    ("PREPARING", "PREPARING"),
                                ],
                                default=jobs.states.Reason["SUBMITTED"],
                                max_length=32,
                            ),
                        ),
                        ("reason_params", models.JSONField(default=dict)),
                        ("submitted_at", models.DateTimeField()),
                        ("started_at", models.DateTimeField(blank=True, null=True)),
                        ("finished_at", models.DateTimeField(blank=True, null=True)),
                        (
                            "dataset",
                            models.ForeignKey(
                                blank=True,
                                db_index=False,
                                null=True,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="jobs",
                                to="datasets.datasetversion",
                            ),
                        ),
                        (
                            "initial_checkpoint",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="continued_by",
                                to="jobs.checkpoint",
                            ),
                        ),
                        (
                            "initial_job",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="weights_taken_by",
                                to="jobs.job",
                            ),
                        ),
                        (
                            "instance_group",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="jobs",
                                to="jobs.instancegroup",
                            ),
                        ),
                        (
                            "model",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="jobs",
                                to="models_registry.registeredmodelversion",
                            ),
                        ),
                        (
                            "owner",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="jobs",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-id"],
                        "indexes": [
                            models.Index(
                                fields=[
                                    "-submitted_at",
                                    "-id",
                                    "owner",
                                    "state",
                                    "model",
                                    "dataset",
                                    "instance_group",
                                    "finished_at",
                                    "name_folded",
                                    "priority",
                                ],
                                name="job_by_submission",
                            ),
                            models.Index(
                                fields=[
                                    "owner",
                                    "-submitted_at",
                                    "-id",
                                    "state",
                                    "model",
                                    "dataset",
                                    "instance_group",
                                    "finished_at",
                                    "name_folded",
                                    "priority",
                                ],
                                name="job_by_owner",
                            ),
                            models.Index(
                                fields=[
                                    "state",
                                    "-submitted_at",
                                    "-id",
                                    "owner",
                                    "model",
                                    "dataset",
                                    "instance_group",
                                    "finished_at",
                                    "name_folded",
                                    "priority",
                                ],
                                name="job_by_state",
                            ),
                            models.Index(
                                fields=[
                                    "model",
                                    "-submitted_at",
                                    "-id",
                                    "owner",
                                    "state",
                                    "dataset",
                                    "instance_group",
                                    "finished_at",
                                    "name_folded",
                                    "priority",
                                ],
                                name="job_by_model",
                            ),
                            models.Index(
                                fields=[
                                    "dataset",
                                    "-submitted_at",
                                    "-id",
                                    "owner",
                                    "state",
                                    "model",
                                    "instance_group",
                                    "finished_at",
                                    "name_folded",
                                    "priority",
                                ],
                                name="job_by_dataset",
                            ),
                            models.Index(
                                fields=[
                                    "name_folded",
                                    "id",
                                    "owner",
                                    "state",
                                    "model",
                                    "dataset",
                                    "instance_group",
                                    "submitted_at",
                                    "finished_at",
                                    "priority",
                                ],
                                name="job_by_name",
                            ),
                            models.Index(
                                fields=[
                                    "-priority",
                                    "-id",
                                    "owner",
                                    "state",
                                    "model",
                                    "dataset",
                                    "instance_group",
                                    "submitted_at",
                                    "finished_at",
                                    "name_folded",
                                ],
                                name="job_by_priority",
                            ),
                            models.Index(
                                condition=models.Q(("finished_at__isnull", False)),
                                fields=[
                                    "-finished_at",
                                    "-id",
                                    "owner",
                                    "state",
                                    "model",
                                    "dataset",
                                    "instance_group",
                                    "submitted_at",
                                    "name_folded",
                                    "priority",
                                ],
                                name="job_by_end",
                            ),
                            models.Index(
                                condition=models.Q(("finished_at__isnull", True)),
                                fields=[
                                    "-submitted_at",
                                    "-id",
                                    "owner",
                                    "state",
                                    "model",
                                    "dataset",
                                    "instance_group",
                                    "finished_at",
                                    "name_folded",
                                    "priority",
                                ],
                                name="job_not_over",
                            ),
                        ],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("min_slots__gte", 1), ("max_slots__gte", models.F("min_slots"))),
                                name="job_slots_in_order",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("priority__gte", 1), ("priority__lte", 10000)),
                                name="job_priority_range",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("max_seconds", None), ("max_seconds__gte", 10), _connector="OR"),
                                name="job_max_seconds",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(
                                        ("finished_at__isnull", False),
                                        (
                                            "state__in",
                                            [
                                                jobs.states.JobState["CANCELLED"],
                                                jobs.states.JobState["FAILED"],
                                                jobs.states.JobState["SUCCEEDED"],
                                            ],
                                        ),
                                    ),
                                    models.Q(
                                        models.Q(
                                            (
                                                "state__in",
                                                [
                                                    jobs.states.JobState["CANCELLED"],
                                                    jobs.states.JobState["FAILED"],
                                                    jobs.states.JobState["SUCCEEDED"],
                                                ],
                                            ),
                                            _negated=True,
                                        ),
                                        ("finished_at__isnull", True),
                                    ),
                                    _connector="OR",
                                ),
                                name="job_finished_iff_terminal",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="ChosenColumns",
                    fields=[
                        (
                            "owner",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="job_columns",
                                serialize=False,
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        ("columns", models.CharField(max_length=2000)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("columns", ""), _negated=True), name="chosen_columns_are_some"
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="GroupQueue",
                    fields=[
                        (
                            "group",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="queue",
                                serialize=False,
                                to="jobs.instancegroup",
                            ),
                        ),
                        ("jobs", models.JSONField()),
                    ],
                ),
                migrations.CreateModel(
                    name="Environment",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("digest", models.CharField(max_length=64, unique=True)),
                        ("python", models.CharField(max_length=200)),
                        ("platform", models.CharField(max_length=200)),
                        ("packages", models.JSONField()),
                        ("origins", models.JSONField(default=dict)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("digest", ""), _negated=True), models.Q(("python", ""), _negated=True)
                                ),
                                name="environment_is_named",
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="GpuSpans",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("at", models.DateTimeField()),
                        ("seconds", models.PositiveSmallIntegerField()),
                        ("spans", models.JSONField()),
                        (
                            "host",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="workers.host"
                            ),
                        ),
                    ],
                    options={
                        "indexes": [
                            models.Index(fields=["host", "at"], name="gpu_spans_by_host"),
                            models.Index(fields=["seconds", "at"], name="gpu_spans_by_age"),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="JobRun",
                    fields=[
                        (
                            "job",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="run",
                                serialize=False,
                                to="jobs.job",
                            ),
                        ),
                        ("attempt", models.PositiveIntegerField(default=0)),
                        ("target_revision", models.PositiveIntegerField(default=0)),
                        ("target_slots", models.PositiveIntegerField(default=0)),
                        ("target_kind", models.CharField(blank=True, default="", max_length=128)),
                        ("slots", models.PositiveIntegerField(default=0)),
                        ("generation", models.PositiveIntegerField(default=0)),
                        ("first_max_slots", models.PositiveIntegerField(default=0)),
                        ("lead_host", models.CharField(blank=True, default="", max_length=64)),
                        ("lead_number", models.PositiveIntegerField(db_default=0, default=0)),
                        ("sealed", models.BooleanField(db_default=False, default=False)),
                        ("completed_attempt", models.PositiveIntegerField(default=0)),
                        ("fruitless_starts", models.PositiveIntegerField(default=0)),
                        ("micro_batch_limits", models.JSONField(default=dict)),
                        ("halt_until", models.DateTimeField(blank=True, null=True)),
                        ("failure", models.JSONField(default=dict)),
                        ("given_up", models.JSONField(default=dict)),
                        ("after_stop", models.CharField(blank=True, default="", max_length=16)),
                        ("ends_at", models.DateTimeField(blank=True, null=True)),
                        ("warned", models.BooleanField(default=False)),
                        ("growth_limit", models.PositiveIntegerField(blank=True, null=True)),
                        ("idle_warned_at", models.DateTimeField(null=True)),
                        ("idle_shrunk_at", models.DateTimeField(null=True)),
                        ("idle_kept_until", models.DateTimeField(null=True)),
                        ("idle_keeps", models.PositiveSmallIntegerField(db_default=0, default=0)),
                        ("stacks_number", models.PositiveIntegerField(db_default=0, default=0)),
                        ("stacks_at", models.DateTimeField(blank=True, null=True)),
                        ("stacks_by", models.CharField(blank=True, db_default="", default="", max_length=150)),
                        ("recordings", models.JSONField(blank=True, db_default={}, default=dict)),
                        ("backfilled_for", models.PositiveBigIntegerField(blank=True, null=True)),
                        ("over_quota", models.BooleanField(default=False)),
                        ("step", models.PositiveBigIntegerField(default=0)),
                        ("stepped_at", models.DateTimeField(blank=True, null=True)),
                        ("epoch", models.PositiveIntegerField(default=0)),
                        ("progress", models.FloatField(blank=True, null=True)),
                        ("saved_at", models.DateTimeField(blank=True, null=True)),
                        ("final_metrics", models.JSONField(default=dict)),
                        ("value_sha256", models.CharField(db_default=None, max_length=64, null=True)),
                        ("curve_sources", models.JSONField(default=dict)),
                        ("positions", models.JSONField(default=dict)),
                        ("curve_limits", models.JSONField(default=dict)),
                        ("series", models.JSONField(db_default={}, default=dict)),
                        ("error", models.JSONField(default=dict)),
                        (
                            "required",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="runs",
                                to="jobs.requiredenvironment",
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="JobSource",
                    fields=[
                        (
                            "job",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="source",
                                serialize=False,
                                to="jobs.job",
                            ),
                        ),
                        ("repository", models.CharField(blank=True, default="", max_length=2000)),
                        ("commit", models.CharField(blank=True, default="", max_length=64)),
                        ("branch", models.CharField(blank=True, default="", max_length=255)),
                        ("is_dirty", models.BooleanField(default=False)),
                        ("diff", models.TextField(blank=True, default="")),
                        ("left_out", models.JSONField(default=list)),
                        ("problem", models.CharField(blank=True, default="", max_length=500)),
                        ("command", models.TextField(blank=True, default="")),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    ("diff", ""),
                                    models.Q(("is_dirty", True), models.Q(("commit", ""), _negated=True)),
                                    _connector="OR",
                                ),
                                name="source_diff_of_commit",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("repository", ""), _negated=True),
                                    models.Q(("commit", ""), _negated=True),
                                    models.Q(("branch", ""), _negated=True),
                                    models.Q(("problem", ""), _negated=True),
                                    models.Q(("command", ""), _negated=True),
                                    _connector="OR",
                                ),
                                name="source_says_something",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Generation",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("attempt", models.PositiveIntegerField()),
                        ("number", models.PositiveIntegerField()),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("FORMING", "FORMING"),
                                    ("ACTIVE", "ACTIVE"),
                                    ("ABANDONED", "ABANDONED"),
                                    ("SUPERSEDED", "SUPERSEDED"),
                                    ("ENDED", "ENDED"),
                                ],
                                default=jobs.states.GenerationState["FORMING"],
                                max_length=16,
                            ),
                        ),
                        ("world_size", models.PositiveIntegerField()),
                        ("members", models.JSONField(default=list)),
                        ("target_revision", models.PositiveIntegerField(default=0)),
                        ("planned_at", models.DateTimeField(null=True)),
                        ("active_at", models.DateTimeField(null=True)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="generations", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "attempt", "number"],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "attempt", "number"), name="generation_once"),
                            models.UniqueConstraint(
                                condition=models.Q(("state", jobs.states.GenerationState["ACTIVE"])),
                                fields=("job",),
                                name="generation_one_active",
                            ),
                            models.UniqueConstraint(
                                condition=models.Q(("state", jobs.states.GenerationState["FORMING"])),
                                fields=("job",),
                                name="generation_one_forming",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="AttemptSoftware",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("attempt", models.PositiveIntegerField()),
                        ("host", models.CharField(max_length=64)),
                        ("cuda", models.CharField(blank=True, default="", max_length=200)),
                        ("nccl", models.CharField(blank=True, default="", max_length=200)),
                        ("driver", models.CharField(blank=True, default="", max_length=200)),
                        (
                            "environment",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="used_by",
                                to="jobs.environment",
                            ),
                        ),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="software", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "attempt", "host"],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "attempt", "host"), name="software_of_host_once"),
                            models.CheckConstraint(condition=models.Q(("attempt__gte", 1)), name="software_of_attempt"),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="AllocationPoint",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("at", models.DateTimeField()),
                        ("slots", models.PositiveIntegerField()),
                        ("attempt", models.PositiveIntegerField()),
                        ("generation", models.PositiveIntegerField()),
                        (
                            "reason_code",
                            models.CharField(
                                choices=[
                                    ("SUBMITTED", "SUBMITTED"),
                                    ("STARTED", "STARTED"),
                                    ("HOST_LOST", "HOST_LOST"),
                                    ("HOST_LEAVES", "HOST_LEAVES"),
                                    ("GPUS_IDLE", "GPUS_IDLE"),
                                    ("RANK_LOST", "RANK_LOST"),
                                    ("GROWTH_GIVEN_UP", "GROWTH_GIVEN_UP"),
                                    ("STACK_STOPPED", "STACK_STOPPED"),
                                    ("LAUNCH_TIMEOUT", "LAUNCH_TIMEOUT"),
                                    ("ENVIRONMENT_BUILDING", "ENVIRONMENT_BUILDING"),
                                    ("ENVIRONMENT_FAILED", "ENVIRONMENT_FAILED"),
                                    ("ENVIRONMENT_CHANGED", "ENVIRONMENT_CHANGED"),
                                    ("SECRETS_FAILED", "SECRETS_FAILED"),
                                    ("EXIT_NONZERO", "EXIT_NONZERO"),
                                    ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
                                    ("NO_PROGRESS", "NO_PROGRESS"),
                                    ("TIME_LIMIT", "TIME_LIMIT"),
                                    ("PRIORITY_CHANGED", "PRIORITY_CHANGED"),
                                    ("SUSPENDED_BY_USER", "SUSPENDED_BY_USER"),
                                    ("RESUMED_BY_USER", "RESUMED_BY_USER"),
                                    ("CANCELLED_BY_USER", "CANCELLED_BY_USER"),
                                    ("PRUNED", "PRUNED"),
                                    ("COMPLETED", "COMPLETED"),
                                    ("RESTORED", "RESTORED"),
                                    ("CHECKPOINT_FAILED", "CHECKPOINT_FAILED"),
                                    ("HALTED", "HALTED"),
                                    ("HALT_TIMEOUT", "HALT_TIMEOUT"),
                                    ("PROFILE_REFUSED", "PROFILE_REFUSED"),
                                    ("BATCH_PINNED", "BATCH_PINNED"),
                                    ("SIZE_SHOWS", "SIZE_SHOWS"),
                                    ("REPORT_SET_ASIDE", "REPORT_SET_ASIDE"),
                                    ("WAITING_FOR_SLOTS", "WAITING_FOR_SLOTS"),
                                    ("OVER_QUOTA", "OVER_QUOTA"),
                                    ("GROUP_STOPPED", "GROUP_STOPPED"),
                                    ("GANG_TOO_LARGE_NOW", "GANG_TOO_LARGE_NOW"),
                                    ("BEHIND_HIGHER_PRIORITY", "BEHIND_HIGHER_PRIORITY"),
                                    ("GRANTED", "GRANTED"),
                                    ("BACKFILLED", "BACKFILLED"),
                                    ("GREW_INTO_FREE_SLOTS", "GREW_INTO_FREE_SLOTS"),
                                    ("SHRUNK_FOR_FAIR_SHARE", "SHRUNK_FOR_FAIR_SHARE"),
                                    ("PREEMPTED_BY_PRIORITY", "PREEMPTED_BY_PRIORITY"),
                                    ("GAVE_WAY", "GAVE_WAY"),
                                    ("RECLAIMED_BY_OWNER", "RECLAIMED_BY_OWNER"),
                                    ("REBALANCED", "REBALANCED"),
                                    ("UNCHANGED", "UNCHANGED"),
                                    ("LIMIT_CHANGED", "LIMIT_CHANGED"),
                                    ("GREW_FOR_GOODPUT", "GREW_FOR_GOODPUT"),
                                    ("MOVED_FOR_GOODPUT", "MOVED_FOR_GOODPUT"),
                                    ("SHRUNK_FOR_GOODPUT", "SHRUNK_FOR_GOODPUT"),
                                    ("AT_ITS_KNEE", "AT_ITS_KNEE"),
                                    ("PROFILING", "PROFILING"),
                                    ("PREPARING", "PREPARING"),
                                ],
                                max_length=32,
                            ),
                        ),
                        ("reason_params", models.JSONField(default=dict)),
                        ("pause_ms", models.FloatField(null=True)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="allocation", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "at", "id"],
                        "indexes": [models.Index(fields=["at"], name="allocation_by_time")],
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("job", "attempt", "generation", "slots"), name="allocation_once"
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="JobEvent",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("seq", models.PositiveIntegerField()),
                        ("old", models.CharField(blank=True, max_length=16)),
                        ("new", models.CharField(max_length=16)),
                        (
                            "reason",
                            models.CharField(
                                choices=[
                                    ("SUBMITTED", "SUBMITTED"),
                                    ("STARTED", "STARTED"),
                                    ("HOST_LOST", "HOST_LOST"),
                                    ("HOST_LEAVES", "HOST_LEAVES"),
                                    ("GPUS_IDLE", "GPUS_IDLE"),
                                    ("RANK_LOST", "RANK_LOST"),
                                    ("GROWTH_GIVEN_UP", "GROWTH_GIVEN_UP"),
                                    ("STACK_STOPPED", "STACK_STOPPED"),
                                    ("LAUNCH_TIMEOUT", "LAUNCH_TIMEOUT"),
                                    ("ENVIRONMENT_BUILDING", "ENVIRONMENT_BUILDING"),
                                    ("ENVIRONMENT_FAILED", "ENVIRONMENT_FAILED"),
                                    ("ENVIRONMENT_CHANGED", "ENVIRONMENT_CHANGED"),
                                    ("SECRETS_FAILED", "SECRETS_FAILED"),
                                    ("EXIT_NONZERO", "EXIT_NONZERO"),
                                    ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
                                    ("NO_PROGRESS", "NO_PROGRESS"),
                                    ("TIME_LIMIT", "TIME_LIMIT"),
                                    ("PRIORITY_CHANGED", "PRIORITY_CHANGED"),
                                    ("SUSPENDED_BY_USER", "SUSPENDED_BY_USER"),
                                    ("RESUMED_BY_USER", "RESUMED_BY_USER"),
                                    ("CANCELLED_BY_USER", "CANCELLED_BY_USER"),
                                    ("PRUNED", "PRUNED"),
                                    ("COMPLETED", "COMPLETED"),
                                    ("RESTORED", "RESTORED"),
                                    ("CHECKPOINT_FAILED", "CHECKPOINT_FAILED"),
                                    ("HALTED", "HALTED"),
                                    ("HALT_TIMEOUT", "HALT_TIMEOUT"),
                                    ("PROFILE_REFUSED", "PROFILE_REFUSED"),
                                    ("BATCH_PINNED", "BATCH_PINNED"),
                                    ("SIZE_SHOWS", "SIZE_SHOWS"),
                                    ("REPORT_SET_ASIDE", "REPORT_SET_ASIDE"),
                                    ("WAITING_FOR_SLOTS", "WAITING_FOR_SLOTS"),
                                    ("OVER_QUOTA", "OVER_QUOTA"),
                                    ("GROUP_STOPPED", "GROUP_STOPPED"),
                                    ("GANG_TOO_LARGE_NOW", "GANG_TOO_LARGE_NOW"),
                                    ("BEHIND_HIGHER_PRIORITY", "BEHIND_HIGHER_PRIORITY"),
                                    ("GRANTED", "GRANTED"),
                                    ("BACKFILLED", "BACKFILLED"),
                                    ("GREW_INTO_FREE_SLOTS", "GREW_INTO_FREE_SLOTS"),
                                    ("SHRUNK_FOR_FAIR_SHARE", "SHRUNK_FOR_FAIR_SHARE"),
                                    ("PREEMPTED_BY_PRIORITY", "PREEMPTED_BY_PRIORITY"),
                                    ("GAVE_WAY", "GAVE_WAY"),
                                    ("RECLAIMED_BY_OWNER", "RECLAIMED_BY_OWNER"),
                                    ("REBALANCED", "REBALANCED"),
                                    ("UNCHANGED", "UNCHANGED"),
                                    ("LIMIT_CHANGED", "LIMIT_CHANGED"),
                                    ("GREW_FOR_GOODPUT", "GREW_FOR_GOODPUT"),
                                    ("MOVED_FOR_GOODPUT", "MOVED_FOR_GOODPUT"),
                                    ("SHRUNK_FOR_GOODPUT", "SHRUNK_FOR_GOODPUT"),
                                    ("AT_ITS_KNEE", "AT_ITS_KNEE"),
                                    ("PROFILING", "PROFILING"),
                                    ("PREPARING", "PREPARING"),
                                ],
                                max_length=32,
                            ),
                        ),
                        ("detail", models.JSONField(default=dict)),
                        ("actor", models.CharField(max_length=150)),
                        ("at", models.DateTimeField()),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="events", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "seq"],
                        "constraints": [models.UniqueConstraint(fields=("job", "seq"), name="job_event_once")],
                    },
                ),
                migrations.CreateModel(
                    name="JobProfile",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("batch_size", models.PositiveIntegerField()),
                        ("most_micro_batch", models.PositiveIntegerField(default=0)),
                        ("micro_batches", models.JSONField(default=dict)),
                        ("parameters", models.JSONField(default=dict)),
                        ("adapted", models.JSONField(null=True)),
                        ("worth", models.FloatField(default=1.0)),
                        ("largest_ranks", models.PositiveIntegerField(default=1)),
                        ("points", models.PositiveIntegerField(default=0)),
                        ("pause_seconds", models.FloatField(null=True)),
                        ("start_seconds", models.FloatField(null=True)),
                        ("revision", models.PositiveIntegerField(default=0)),
                        ("at", models.DateTimeField()),
                        (
                            "job",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE, related_name="profile", to="jobs.job"
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="JobTag",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=40)),
                        (
                            "job",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="tags",
                                to="jobs.job",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "indexes": [models.Index(fields=["name", "job"], name="job_tag_by_name")],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "name"), name="job_tag_once"),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("name", ""), _negated=True),
                                    models.Q(("name__contains", ","), _negated=True),
                                ),
                                name="job_tag_is_a_word",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Journal",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=255, unique=True)),
                        ("host", models.CharField(max_length=64)),
                        ("number", models.PositiveBigIntegerField(default=0)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="journals", to="jobs.job"
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="KindSpeedRatio",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("code", models.CharField(max_length=64)),
                        ("kind", models.CharField(max_length=128)),
                        ("base", models.CharField(max_length=128)),
                        ("ratio", models.FloatField()),
                        ("at", models.DateTimeField(db_index=True)),
                        (
                            "job",
                            models.ForeignKey(
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="kind_ratios",
                                to="jobs.job",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-at", "-pk"],
                        "indexes": [models.Index(fields=["code", "-at"], name="kind_ratio_by_code")],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "kind", "base"), name="kind_ratio_once_per_job"),
                            models.CheckConstraint(
                                condition=models.Q(("kind", models.F("base")), _negated=True),
                                name="kind_ratio_of_two_kinds",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("ratio__gte", 0.001), ("ratio__lte", 1000.0)),
                                name="kind_ratio_is_plausible",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="MetricPoint",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64)),
                        ("step", models.PositiveBigIntegerField()),
                        ("epoch", models.PositiveIntegerField()),
                        ("value", models.FloatField(null=True)),
                        ("at", models.DateTimeField()),
                        ("is_even", models.BooleanField(db_default=True, default=True)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="metrics", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "name", "step"],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "name", "step"), name="metric_once_per_step")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Note",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveIntegerField()),
                        ("text", models.TextField(blank=True)),
                        ("author", models.CharField(max_length=150)),
                        ("at", models.DateTimeField()),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="notes", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "-number"],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "number"), name="note_once"),
                            models.CheckConstraint(condition=models.Q(("number__gte", 1)), name="note_number"),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Rank",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("attempt", models.PositiveIntegerField()),
                        ("member_id", models.CharField(max_length=128)),
                        ("host", models.CharField(max_length=64)),
                        ("slot", models.PositiveIntegerField()),
                        ("pid", models.PositiveIntegerField()),
                        ("started_at", models.FloatField()),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("LAUNCHING", "LAUNCHING"),
                                    ("JOINING", "JOINING"),
                                    ("READY", "READY"),
                                    ("RUNNING", "RUNNING"),
                                    ("STOPPING", "STOPPING"),
                                    ("EXITED", "EXITED"),
                                    ("LOST", "LOST"),
                                ],
                                default=jobs.states.RankState["LAUNCHING"],
                                max_length=16,
                            ),
                        ),
                        ("rank", models.PositiveIntegerField(blank=True, null=True)),
                        ("generation", models.PositiveIntegerField(default=0)),
                        ("grouped", models.BooleanField(default=False)),
                        ("exit", models.JSONField(default=dict)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="ranks", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "attempt", "id"],
                        "constraints": [
                            models.UniqueConstraint(fields=("job", "attempt", "member_id"), name="rank_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="RequiredEnvironment",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("key", models.CharField(max_length=64, unique=True)),
                        ("lines", models.TextField()),
                        ("is_pinned", models.BooleanField(default=False)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("key", ""), _negated=True), models.Q(("lines", ""), _negated=True)
                                ),
                                name="required_environment_says_what",
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="NamedEnvironment",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64, unique=True)),
                        (
                            "kind",
                            models.CharField(
                                choices=[("text", "Requirements"), ("lock", "Locked project"), ("folder", "Folder")],
                                max_length=16,
                            ),
                        ),
                        ("source", models.TextField(blank=True, default="")),
                        ("lock", models.TextField(blank=True, default="")),
                        ("folder", models.CharField(blank=True, default="", max_length=1000)),
                        ("lines", models.TextField()),
                        ("notes", models.CharField(blank=True, default="", max_length=1000)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        ("changed_at", models.DateTimeField(auto_now=True)),
                        (
                            "groups",
                            models.ManyToManyField(blank=True, related_name="environments", to="jobs.instancegroup"),
                        ),
                        (
                            "required",
                            models.ForeignKey(
                                editable=False,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="names",
                                to="jobs.requiredenvironment",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("name", ""), _negated=True), models.Q(("lines", ""), _negated=True)
                                ),
                                name="named_environment_says_something",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("folder", ""), ("kind", "lock"), models.Q(("lock", ""), _negated=True)),
                                    models.Q(("folder", ""), ("kind", "text"), ("lock", "")),
                                    models.Q(
                                        ("kind", "folder"),
                                        ("lock", ""),
                                        ("source", ""),
                                        models.Q(("folder", ""), _negated=True),
                                    ),
                                    _connector="OR",
                                ),
                                name="named_environment_kind",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="HostEnvironment",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("number", models.PositiveIntegerField(default=1)),
                        ("is_fresh", models.BooleanField(default=False)),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("asked", "asked for"),
                                    ("building", "being prepared"),
                                    ("ready", "ready"),
                                    ("failed", "failed"),
                                ],
                                default="asked",
                                max_length=16,
                            ),
                        ),
                        ("since", models.DateTimeField()),
                        ("log", models.CharField(blank=True, default="", max_length=4096)),
                        ("digest", models.CharField(blank=True, default="", max_length=128)),
                        ("why", models.TextField(blank=True, default="")),
                        ("size_bytes", models.BigIntegerField(null=True)),
                        ("memory_bytes", models.BigIntegerField(null=True)),
                        (
                            "host",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="environments",
                                to="workers.host",
                            ),
                        ),
                        (
                            "environment",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="hosts",
                                to="jobs.requiredenvironment",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["environment", "host"],
                        "constraints": [
                            models.UniqueConstraint(fields=("host", "environment"), name="environment_of_host_once"),
                            models.CheckConstraint(
                                condition=models.Q(("state", "failed"), ("why", ""), _connector="OR"),
                                name="environment_of_host_why",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="SavedFilter",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64)),
                        ("parameters", models.CharField(max_length=2000)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="job_filters",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["owner", "name"],
                        "constraints": [
                            models.UniqueConstraint(fields=("owner", "name"), name="saved_filter_named_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="SchedulerLease",
                    fields=[
                        ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                        ("epoch", models.PositiveBigIntegerField(default=0)),
                        ("holder", models.CharField(blank=True, default="", max_length=255)),
                        ("expires_at", models.DateTimeField(null=True)),
                        ("decided_at", models.DateTimeField(null=True)),
                        ("cycles", models.PositiveBigIntegerField(default=0)),
                        ("cycles_seconds", models.FloatField(default=0)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(condition=models.Q(("id", 1)), name="scheduler_lease_single_row")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Secret",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=128)),
                        ("sealed", models.TextField()),
                        ("is_file", models.BooleanField(default=False)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        ("changed_at", models.DateTimeField()),
                        (
                            "group",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="training_secrets",
                                to="jobs.instancegroup",
                            ),
                        ),
                        (
                            "owner",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="training_secrets",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["name", "id"],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("group__isnull", False), ("owner", None)),
                                    models.Q(("group", None), ("owner__isnull", False)),
                                    _connector="OR",
                                ),
                                name="secret_of_user_or_group",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("name", ""), _negated=True), models.Q(("sealed", ""), _negated=True)
                                ),
                                name="secret_has_name_and_value",
                            ),
                            models.UniqueConstraint(fields=("owner", "name"), name="one_secret_of_a_name_and_user"),
                            models.UniqueConstraint(fields=("group", "name"), name="one_secret_of_a_name_and_group"),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="SecretUse",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="secret_uses", to="jobs.job"
                            ),
                        ),
                        (
                            "secret",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="uses", to="jobs.secret"
                            ),
                        ),
                    ],
                    options={
                        "constraints": [models.UniqueConstraint(fields=("job", "secret"), name="secret_of_job_once")],
                    },
                ),
                migrations.CreateModel(
                    name="SlotClaim",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("gpu_model", models.CharField(blank=True, default="", max_length=128)),
                        ("attempt", models.PositiveIntegerField()),
                        ("claimed_at", models.DateTimeField()),
                        ("vacating_at", models.DateTimeField(blank=True, null=True)),
                        ("vacate_revision", models.PositiveBigIntegerField(blank=True, null=True)),
                        ("released_at", models.DateTimeField(blank=True, null=True)),
                        ("trains_from", models.DateTimeField(blank=True, null=True)),
                        ("trained_until", models.DateTimeField(blank=True, null=True)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT, related_name="claims", to="jobs.job"
                            ),
                        ),
                        (
                            "slot",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT, related_name="claims", to="workers.slot"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["id"],
                        "indexes": [
                            models.Index(
                                condition=models.Q(("released_at__isnull", True)),
                                fields=["job"],
                                name="open_claims_of_job",
                            ),
                            models.Index(fields=["claimed_at"], name="claims_by_start"),
                            models.Index(fields=["released_at"], name="claims_by_end"),
                        ],
                        "constraints": [
                            models.UniqueConstraint(
                                condition=models.Q(("released_at__isnull", True)),
                                fields=("slot",),
                                name="slot_held_by_one_job",
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="GpuActivity",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("at", models.DateTimeField()),
                        ("busy_ms", models.PositiveIntegerField()),
                        ("idle_ms", models.PositiveIntegerField()),
                        (
                            "claim",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="activity",
                                to="jobs.slotclaim",
                            ),
                        ),
                    ],
                    options={
                        "indexes": [models.Index(fields=["at"], name="gpu_activity_by_time")],
                        "constraints": [models.UniqueConstraint(fields=("claim", "at"), name="gpu_activity_once")],
                    },
                ),
                migrations.CreateModel(
                    name="SubmissionKey",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("key", models.CharField(max_length=128)),
                        ("digest", models.CharField(max_length=64)),
                        (
                            "job",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="submission_key",
                                to="jobs.job",
                            ),
                        ),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "constraints": [
                            models.UniqueConstraint(fields=("owner", "key"), name="one_job_of_a_submission_key")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="ThroughputPoint",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("gpu_model", models.CharField(max_length=128)),
                        ("hosts", models.PositiveIntegerField()),
                        ("ranks", models.PositiveIntegerField()),
                        ("micro_batch", models.PositiveIntegerField()),
                        ("compute_seconds", models.FloatField()),
                        ("step_seconds", models.FloatField()),
                        ("steps", models.PositiveIntegerField()),
                        ("at", models.DateTimeField()),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="throughput", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["job", "gpu_model", "ranks", "hosts", "micro_batch"],
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("job", "gpu_model", "hosts", "ranks", "micro_batch"),
                                name="throughput_once_per_shape",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("hosts__gte", 1), ("ranks__gte", models.F("hosts"))),
                                name="throughput_ranks_on_hosts",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("compute_seconds__gt", 0), ("step_seconds__gt", 0)),
                                name="throughput_takes_time",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="TimeByCause",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("ranks", models.JSONField(default=dict)),
                        ("former", models.JSONField(default=list)),
                        ("points", models.JSONField(default=list)),
                        ("at", models.DateTimeField()),
                        (
                            "job",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE, related_name="time_by_cause", to="jobs.job"
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="TrainedVersion",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "checkpoint",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.PROTECT,
                                related_name="versions",
                                to="jobs.checkpoint",
                            ),
                        ),
                        (
                            "version",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="trained",
                                to="models_registry.registeredmodelversion",
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="UnstoredEntry",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("journal", models.CharField(max_length=255)),
                        ("number", models.PositiveBigIntegerField()),
                        ("host", models.CharField(max_length=64)),
                        ("kind", models.CharField(max_length=64)),
                        ("data", models.TextField()),
                        ("error", models.CharField(max_length=500)),
                        ("traceback", models.TextField(blank=True, default="")),
                        ("tries", models.PositiveIntegerField(default=1)),
                        ("first_at", models.DateTimeField()),
                        ("last_at", models.DateTimeField()),
                        ("set_aside_at", models.DateTimeField(blank=True, null=True)),
                        ("more", models.PositiveIntegerField(default=0)),
                        (
                            "job",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="unstored_entries",
                                to="jobs.job",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-id"],
                        "indexes": [models.Index(fields=["-last_at"], name="unstored_entry_by_time")],
                        "constraints": [
                            models.UniqueConstraint(fields=("journal", "number"), name="unstored_entry_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Validation",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        (
                            "split",
                            models.CharField(
                                choices=[("validation", "Validation"), ("testing", "Testing")],
                                default="validation",
                                max_length=16,
                            ),
                        ),
                        ("result", models.JSONField(default=dict)),
                        (
                            "job",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE, related_name="validation", to="jobs.job"
                            ),
                        ),
                        (
                            "trained",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="validations", to="jobs.job"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-job_id"],
                    },
                ),
                migrations.CreateModel(
                    name="ChosenCharts",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("order", models.JSONField(default=list)),
                        ("hidden", models.JSONField(default=list)),
                        ("group", models.CharField(blank=True, max_length=200)),
                        ("changed_at", models.DateTimeField(auto_now=True)),
                        (
                            "model",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to="models_registry.registeredmodel",
                            ),
                        ),
                        (
                            "owner",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="job_charts",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "constraints": [models.UniqueConstraint(fields=("owner", "model"), name="chosen_charts_once")],
                    },
                ),
                migrations.CreateModel(
                    name="DefaultEnvironment",
                    fields=[
                        (
                            "group",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE,
                                primary_key=True,
                                related_name="default_environment",
                                serialize=False,
                                to="jobs.instancegroup",
                            ),
                        ),
                        (
                            "environment",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="default_of",
                                to="jobs.namedenvironment",
                            ),
                        ),
                    ],
                ),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                CreateModels(
                    operations=[
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
                            options={
                                "db_table": "usage_usagename",
                            },
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
                                    models.UniqueConstraint(
                                        fields=("gpu_model", "valid_from"), name="gpu_price_once_per_day"
                                    ),
                                    models.CheckConstraint(
                                        condition=models.Q(("per_hour__gte", 0)), name="gpu_price_not_negative"
                                    ),
                                ],
                                "db_table": "usage_gpuprice",
                            },
                        ),
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
                                        condition=models.Q(("end__gt", models.F("start"))),
                                        name="replay_window_in_order",
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
                                "db_table": "replay_replay",
                            },
                        ),
                        migrations.CreateModel(
                            name="Report",
                            fields=[
                                (
                                    "id",
                                    models.BigAutoField(
                                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                                    ),
                                ),
                                ("title", models.CharField(max_length=200)),
                                (
                                    "readers",
                                    models.CharField(
                                        choices=[
                                            ("everybody", "Everybody"),
                                            ("group", "Members of the owner's instance groups"),
                                            ("owner", "Only the owner"),
                                        ],
                                        default="owner",
                                        max_length=16,
                                    ),
                                ),
                                ("created_at", models.DateTimeField()),
                                ("changed_at", models.DateTimeField()),
                                (
                                    "owner",
                                    models.ForeignKey(
                                        on_delete=django.db.models.deletion.CASCADE,
                                        related_name="reports",
                                        to=settings.AUTH_USER_MODEL,
                                    ),
                                ),
                            ],
                            options={
                                "ordering": ["-id"],
                                "constraints": [
                                    models.CheckConstraint(
                                        condition=models.Q(("title", ""), _negated=True), name="report_has_a_title"
                                    ),
                                    models.CheckConstraint(
                                        condition=models.Q(("readers__in", ["everybody", "group", "owner"])),
                                        name="report_readers",
                                    ),
                                ],
                                "db_table": "reports_report",
                            },
                        ),
                        migrations.CreateModel(
                            name="ReportBlock",
                            fields=[
                                (
                                    "id",
                                    models.BigAutoField(
                                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                                    ),
                                ),
                                ("place", models.PositiveIntegerField()),
                                (
                                    "kind",
                                    models.CharField(
                                        choices=[
                                            ("text", "Text"),
                                            ("chart", "Chart"),
                                            ("table", "Table"),
                                            ("note", "Note"),
                                        ],
                                        max_length=8,
                                    ),
                                ),
                                ("title", models.CharField(blank=True, default="", max_length=255)),
                                ("text", models.TextField(blank=True, default="")),
                                ("edits", models.PositiveIntegerField(default=0)),
                                ("data", models.JSONField(default=dict)),
                                ("size_bytes", models.PositiveIntegerField(default=0)),
                                ("sources", models.JSONField(default=list)),
                                ("added_at", models.DateTimeField()),
                                (
                                    "report",
                                    models.ForeignKey(
                                        on_delete=django.db.models.deletion.CASCADE,
                                        related_name="blocks",
                                        to="jobs.report",
                                    ),
                                ),
                            ],
                            options={
                                "ordering": ["report", "place"],
                                "constraints": [
                                    models.UniqueConstraint(fields=("report", "place"), name="report_block_place"),
                                    models.CheckConstraint(
                                        condition=models.Q(("kind__in", ("text", "chart", "table", "note"))),
                                        name="report_block_kind",
                                    ),
                                    models.CheckConstraint(
                                        condition=models.Q(("size_bytes__lte", 524288)), name="report_block_size"
                                    ),
                                    models.CheckConstraint(
                                        condition=models.Q(
                                            models.Q(("kind__in", ("text", "note")), ("size_bytes", 0)),
                                            models.Q(
                                                ("kind__in", ("chart", "table")),
                                                ("edits", 0),
                                                ("size_bytes__gt", 0),
                                                ("text", ""),
                                            ),
                                            _connector="OR",
                                        ),
                                        name="report_block_has_text_or_data",
                                    ),
                                ],
                                "db_table": "reports_reportblock",
                            },
                        ),
                        migrations.CreateModel(
                            name="ShareLink",
                            fields=[
                                (
                                    "id",
                                    models.BigAutoField(
                                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                                    ),
                                ),
                                ("digest", models.CharField(max_length=64, unique=True)),
                                ("created_at", models.DateTimeField()),
                                ("expires_at", models.DateTimeField()),
                                ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                                ("uses", models.PositiveIntegerField(default=0)),
                                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                                (
                                    "report",
                                    models.ForeignKey(
                                        on_delete=django.db.models.deletion.CASCADE,
                                        related_name="links",
                                        to="jobs.report",
                                    ),
                                ),
                            ],
                            options={
                                "ordering": ["-id"],
                                "constraints": [
                                    models.CheckConstraint(
                                        condition=models.Q(("expires_at__gt", models.F("created_at"))),
                                        name="share_link_ends_later",
                                    ),
                                    models.CheckConstraint(
                                        condition=models.Q(
                                            models.Q(("last_used_at", None), ("uses", 0)),
                                            models.Q(("last_used_at__isnull", False), ("uses__gt", 0)),
                                            _connector="OR",
                                        ),
                                        name="share_link_used_iff_counted",
                                    ),
                                ],
                                "db_table": "reports_sharelink",
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
                                "db_table": "usage_usagemark",
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
                                        to="jobs.usagename",
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
                                "db_table": "usage_usagebucket",
                            },
                        ),
                    ],
                ),
            ],
        ),
    ]
