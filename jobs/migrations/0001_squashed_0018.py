"""All tables at once, for a new database; one that has some of 0001 to 0018 already takes the rest of those."""

import django.core.validators
import django.db.models.deletion
import jobs.models
import jobs.states
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("jobs", "0001_initial"),
        ("jobs", "0002_control_plane"),
        ("jobs", "0003_checkpoints"),
        ("jobs", "0004_virtual_ranks"),
        ("jobs", "0005_halting"),
        ("jobs", "0006_failures"),
        ("jobs", "0007_starts_from"),
        ("jobs", "0008_job_list"),
        ("jobs", "0009_allocation_by_time"),
        ("jobs", "0010_validations"),
        ("jobs", "0011_saved_filter"),
        ("jobs", "0012_initial_file"),
        ("jobs", "0013_instance_group_terms"),
        ("jobs", "0014_usage"),
        ("jobs", "0015_scheduler_cycles"),
        ("jobs", "0016_group_stopped"),
        ("jobs", "0017_wmla_submissions"),
        ("jobs", "0018_hidden_job"),
    ]

    dependencies = [
        ("datasets", "0001_squashed_0002"),
        ("models_registry", "0001_squashed_0003"),
        ("workers", "0001_squashed_0007"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("incarnation", models.PositiveIntegerField()),
                ("step", models.PositiveBigIntegerField()),
                ("epoch", models.PositiveIntegerField()),
                ("path", models.CharField(max_length=1024)),
                ("size_bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("problem", models.CharField(blank=True, default="", max_length=500)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["job", "-step"],
            },
        ),
        migrations.CreateModel(
            name="Topic",
            fields=[
                ("name", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("seq", models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="UsageName",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=128, unique=True)),
            ],
        ),
        migrations.CreateModel(
            name="GpuPrice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("gpu_model", models.CharField(max_length=128)),
                ("valid_from", models.DateField()),
                ("per_hour", models.DecimalField(decimal_places=4, max_digits=12)),
            ],
            options={
                "ordering": ["gpu_model", "valid_from"],
                "constraints": [
                    models.UniqueConstraint(fields=("gpu_model", "valid_from"), name="gpu_price_once_per_day"),
                    models.CheckConstraint(condition=models.Q(("per_hour__gte", 0)), name="gpu_price_not_negative"),
                ],
            },
        ),
        migrations.CreateModel(
            name="InstanceGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
                        choices=[("fifo", "Fifo"), ("priority", "Priority"), ("fairshare", "Fairshare")],
                        default="fairshare",
                        max_length=16,
                    ),
                ),
                ("preemption", models.BooleanField(default=False)),
                ("reclaim_grace_seconds", models.PositiveIntegerField(default=10)),
                ("minimum_run_seconds", models.PositiveIntegerField(default=0)),
                ("default_priority", models.PositiveIntegerField(default=5000)),
                ("lowest_priority", models.PositiveIntegerField(default=1)),
                ("highest_priority", models.PositiveIntegerField(default=10000)),
                ("quota", models.PositiveIntegerField(blank=True, null=True)),
                ("weight", models.PositiveIntegerField(default=1)),
                ("borrows", models.BooleanField(default=True)),
                ("lends", models.BooleanField(default=True)),
                ("execution_user", models.CharField(blank=True, default="", max_length=64)),
                ("deployment_directory", models.CharField(blank=True, default="", max_length=4096)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "admins",
                    models.ManyToManyField(blank=True, related_name="administered_groups", to=settings.AUTH_USER_MODEL),
                ),
                (
                    "members",
                    models.ManyToManyField(blank=True, related_name="instance_groups", to=settings.AUTH_USER_MODEL),
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
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255)),
                ("name_folded", jobs.models.FoldedName(default="", editable=False, max_length=255)),
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
                ("parameters", models.JSONField(default=dict)),
                ("arguments", models.JSONField(default=list)),
                ("dialect", models.CharField(blank=True, default="", max_length=16)),
                ("submitted_args", models.TextField(blank=True, default="")),
                ("hidden_at", models.DateTimeField(blank=True, null=True)),
                (
                    "exactness",
                    models.CharField(choices=[("sum", "Sum"), ("bitwise", "Bitwise")], default="sum", max_length=16),
                ),
                ("virtual_ranks", models.PositiveIntegerField(blank=True, null=True)),
                ("effective_batch_size", models.PositiveIntegerField(blank=True, null=True)),
                ("seed", models.PositiveBigIntegerField(default=0)),
                ("checkpoint_seconds", models.PositiveIntegerField(blank=True, null=True)),
                ("checkpoints_kept", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "starts_from",
                    models.CharField(
                        choices=[("nothing", "Nothing"), ("weights", "Weights"), ("checkpoint", "Checkpoint")],
                        default="nothing",
                        max_length=16,
                    ),
                ),
                ("initial_file", models.CharField(blank=True, default="", max_length=255)),
                ("incarnation", models.PositiveIntegerField(default=0)),
                ("target_revision", models.PositiveIntegerField(default=0)),
                ("target_slots", models.PositiveIntegerField(default=0)),
                ("slots", models.PositiveIntegerField(default=0)),
                ("generation", models.PositiveIntegerField(default=0)),
                ("first_max_slots", models.PositiveIntegerField(default=0)),
                ("lead_host", models.CharField(blank=True, default="", max_length=64)),
                ("completed_incarnation", models.PositiveIntegerField(default=0)),
                ("fruitless_starts", models.PositiveIntegerField(default=0)),
                ("halt_until", models.DateTimeField(blank=True, null=True)),
                ("failure", models.JSONField(default=dict)),
                ("given_up", models.JSONField(default=dict)),
                ("after_stop", models.CharField(blank=True, default="", max_length=16)),
                ("step", models.PositiveBigIntegerField(default=0)),
                ("epoch", models.PositiveIntegerField(default=0)),
                ("progress", models.FloatField(blank=True, null=True)),
                ("final_metrics", models.JSONField(default=dict)),
                (
                    "reason_code",
                    models.CharField(
                        choices=[
                            ("WAITING_FOR_SLOTS", "WAITING_FOR_SLOTS"),
                            ("OVER_QUOTA", "OVER_QUOTA"),
                            ("GROUP_STOPPED", "GROUP_STOPPED"),
                            ("GANG_TOO_LARGE_NOW", "GANG_TOO_LARGE_NOW"),
                            ("BEHIND_HIGHER_PRIORITY", "BEHIND_HIGHER_PRIORITY"),
                            ("GRANTED", "GRANTED"),
                            ("GREW_INTO_FREE_SLOTS", "GREW_INTO_FREE_SLOTS"),
                            ("SHRUNK_FOR_FAIR_SHARE", "SHRUNK_FOR_FAIR_SHARE"),
                            ("PREEMPTED_BY_PRIORITY", "PREEMPTED_BY_PRIORITY"),
                            ("RECLAIMED_BY_OWNER", "RECLAIMED_BY_OWNER"),
                            ("REBALANCED", "REBALANCED"),
                            ("UNCHANGED", "UNCHANGED"),
                            ("SUBMITTED", "SUBMITTED"),
                            ("STARTED", "STARTED"),
                            ("HOST_LOST", "HOST_LOST"),
                            ("RANK_LOST", "RANK_LOST"),
                            ("STACK_STOPPED", "STACK_STOPPED"),
                            ("LAUNCH_TIMEOUT", "LAUNCH_TIMEOUT"),
                            ("EXIT_NONZERO", "EXIT_NONZERO"),
                            ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
                            ("NO_PROGRESS", "NO_PROGRESS"),
                            ("TIME_LIMIT", "TIME_LIMIT"),
                            ("PRIORITY_CHANGED", "PRIORITY_CHANGED"),
                            ("LIMIT_CHANGED", "LIMIT_CHANGED"),
                            ("SUSPENDED_BY_USER", "SUSPENDED_BY_USER"),
                            ("RESUMED_BY_USER", "RESUMED_BY_USER"),
                            ("CANCELLED_BY_USER", "CANCELLED_BY_USER"),
                            ("COMPLETED", "COMPLETED"),
                            ("RESTORED", "RESTORED"),
                            ("CHECKPOINT_FAILED", "CHECKPOINT_FAILED"),
                            ("HALTED", "HALTED"),
                            ("HALT_TIMEOUT", "HALT_TIMEOUT"),
                        ],
                        default=jobs.states.Reason["SUBMITTED"],
                        max_length=32,
                    ),
                ),
                ("reason_params", models.JSONField(default=dict)),
                ("reason_text", models.TextField(default="")),
                ("error", models.JSONField(default=dict)),
                ("submitted_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "dataset",
                    models.ForeignKey(
                        db_index=False,
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
            },
        ),
        migrations.CreateModel(
            name="Generation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("incarnation", models.PositiveIntegerField()),
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
                "ordering": ["job", "incarnation", "number"],
            },
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="job",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="checkpoints", to="jobs.job"
            ),
        ),
        migrations.CreateModel(
            name="AllocationPoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("slots", models.PositiveIntegerField()),
                ("incarnation", models.PositiveIntegerField()),
                ("generation", models.PositiveIntegerField()),
                (
                    "reason_code",
                    models.CharField(
                        choices=[
                            ("WAITING_FOR_SLOTS", "WAITING_FOR_SLOTS"),
                            ("OVER_QUOTA", "OVER_QUOTA"),
                            ("GROUP_STOPPED", "GROUP_STOPPED"),
                            ("GANG_TOO_LARGE_NOW", "GANG_TOO_LARGE_NOW"),
                            ("BEHIND_HIGHER_PRIORITY", "BEHIND_HIGHER_PRIORITY"),
                            ("GRANTED", "GRANTED"),
                            ("GREW_INTO_FREE_SLOTS", "GREW_INTO_FREE_SLOTS"),
                            ("SHRUNK_FOR_FAIR_SHARE", "SHRUNK_FOR_FAIR_SHARE"),
                            ("PREEMPTED_BY_PRIORITY", "PREEMPTED_BY_PRIORITY"),
                            ("RECLAIMED_BY_OWNER", "RECLAIMED_BY_OWNER"),
                            ("REBALANCED", "REBALANCED"),
                            ("UNCHANGED", "UNCHANGED"),
                            ("SUBMITTED", "SUBMITTED"),
                            ("STARTED", "STARTED"),
                            ("HOST_LOST", "HOST_LOST"),
                            ("RANK_LOST", "RANK_LOST"),
                            ("STACK_STOPPED", "STACK_STOPPED"),
                            ("LAUNCH_TIMEOUT", "LAUNCH_TIMEOUT"),
                            ("EXIT_NONZERO", "EXIT_NONZERO"),
                            ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
                            ("NO_PROGRESS", "NO_PROGRESS"),
                            ("TIME_LIMIT", "TIME_LIMIT"),
                            ("PRIORITY_CHANGED", "PRIORITY_CHANGED"),
                            ("LIMIT_CHANGED", "LIMIT_CHANGED"),
                            ("SUSPENDED_BY_USER", "SUSPENDED_BY_USER"),
                            ("RESUMED_BY_USER", "RESUMED_BY_USER"),
                            ("CANCELLED_BY_USER", "CANCELLED_BY_USER"),
                            ("COMPLETED", "COMPLETED"),
                            ("RESTORED", "RESTORED"),
                            ("CHECKPOINT_FAILED", "CHECKPOINT_FAILED"),
                            ("HALTED", "HALTED"),
                            ("HALT_TIMEOUT", "HALT_TIMEOUT"),
                        ],
                        max_length=32,
                    ),
                ),
                ("reason_text", models.TextField(default="")),
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
            },
        ),
        migrations.CreateModel(
            name="JobEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.PositiveIntegerField()),
                ("old", models.CharField(blank=True, max_length=16)),
                ("new", models.CharField(max_length=16)),
                (
                    "reason",
                    models.CharField(
                        choices=[
                            ("WAITING_FOR_SLOTS", "WAITING_FOR_SLOTS"),
                            ("OVER_QUOTA", "OVER_QUOTA"),
                            ("GROUP_STOPPED", "GROUP_STOPPED"),
                            ("GANG_TOO_LARGE_NOW", "GANG_TOO_LARGE_NOW"),
                            ("BEHIND_HIGHER_PRIORITY", "BEHIND_HIGHER_PRIORITY"),
                            ("GRANTED", "GRANTED"),
                            ("GREW_INTO_FREE_SLOTS", "GREW_INTO_FREE_SLOTS"),
                            ("SHRUNK_FOR_FAIR_SHARE", "SHRUNK_FOR_FAIR_SHARE"),
                            ("PREEMPTED_BY_PRIORITY", "PREEMPTED_BY_PRIORITY"),
                            ("RECLAIMED_BY_OWNER", "RECLAIMED_BY_OWNER"),
                            ("REBALANCED", "REBALANCED"),
                            ("UNCHANGED", "UNCHANGED"),
                            ("SUBMITTED", "SUBMITTED"),
                            ("STARTED", "STARTED"),
                            ("HOST_LOST", "HOST_LOST"),
                            ("RANK_LOST", "RANK_LOST"),
                            ("STACK_STOPPED", "STACK_STOPPED"),
                            ("LAUNCH_TIMEOUT", "LAUNCH_TIMEOUT"),
                            ("EXIT_NONZERO", "EXIT_NONZERO"),
                            ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
                            ("NO_PROGRESS", "NO_PROGRESS"),
                            ("TIME_LIMIT", "TIME_LIMIT"),
                            ("PRIORITY_CHANGED", "PRIORITY_CHANGED"),
                            ("LIMIT_CHANGED", "LIMIT_CHANGED"),
                            ("SUSPENDED_BY_USER", "SUSPENDED_BY_USER"),
                            ("RESUMED_BY_USER", "RESUMED_BY_USER"),
                            ("CANCELLED_BY_USER", "CANCELLED_BY_USER"),
                            ("COMPLETED", "COMPLETED"),
                            ("RESTORED", "RESTORED"),
                            ("CHECKPOINT_FAILED", "CHECKPOINT_FAILED"),
                            ("HALTED", "HALTED"),
                            ("HALT_TIMEOUT", "HALT_TIMEOUT"),
                        ],
                        max_length=32,
                    ),
                ),
                ("text", models.TextField()),
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
            },
        ),
        migrations.CreateModel(
            name="Journal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
            name="MetricPoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                ("step", models.PositiveBigIntegerField()),
                ("epoch", models.PositiveIntegerField()),
                ("value", models.FloatField(null=True)),
                ("at", models.DateTimeField()),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="metrics", to="jobs.job"
                    ),
                ),
            ],
            options={
                "ordering": ["job", "name", "step"],
            },
        ),
        migrations.CreateModel(
            name="Rank",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("incarnation", models.PositiveIntegerField()),
                ("wid", models.CharField(max_length=128)),
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
                ("exit", models.JSONField(default=dict)),
                (
                    "job",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="ranks", to="jobs.job"),
                ),
            ],
            options={
                "ordering": ["job", "incarnation", "id"],
            },
        ),
        migrations.CreateModel(
            name="SavedFilter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
            name="SlotClaim",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("gpu_model", models.CharField(blank=True, default="", max_length=128)),
                ("incarnation", models.PositiveIntegerField()),
                ("claimed_at", models.DateTimeField()),
                ("vacating_at", models.DateTimeField(blank=True, null=True)),
                ("vacate_revision", models.PositiveBigIntegerField(blank=True, null=True)),
                ("released_at", models.DateTimeField(blank=True, null=True)),
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
            },
        ),
        migrations.CreateModel(
            name="GpuActivity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("busy_ms", models.PositiveIntegerField()),
                ("idle_ms", models.PositiveIntegerField()),
                (
                    "claim",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="activity", to="jobs.slotclaim"
                    ),
                ),
            ],
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
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="usage_mark_single_row")],
            },
        ),
        migrations.CreateModel(
            name="UsageBucket",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hours", models.PositiveSmallIntegerField()),
                ("start_hour", models.PositiveIntegerField()),
                (
                    "dimension",
                    models.PositiveSmallIntegerField(
                        choices=[(1, "User"), (2, "Group"), (3, "Job"), (4, "Host"), (5, "Gpu Model"), (6, "Capacity")]
                    ),
                ),
                ("subject", models.PositiveBigIntegerField()),
                ("held_ms", models.PositiveBigIntegerField()),
                ("busy_ms", models.PositiveBigIntegerField(default=0)),
                ("idle_ms", models.PositiveBigIntegerField(default=0)),
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
        ),
        migrations.CreateModel(
            name="Validation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
        migrations.AddConstraint(
            model_name="instancegroup",
            constraint=models.CheckConstraint(condition=models.Q(("weight__gte", 1)), name="instance_group_weight"),
        ),
        migrations.AddConstraint(
            model_name="instancegroup",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("lowest_priority__gte", 1),
                    ("default_priority__gte", models.F("lowest_priority")),
                    ("highest_priority__gte", models.F("default_priority")),
                    ("highest_priority__lte", 10000),
                ),
                name="instance_group_priorities_in_order",
            ),
        ),
        migrations.AddConstraint(
            model_name="instancegroup",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["REGISTERED", "STARTED", "STOPPED"])), name="instance_group_state"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
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
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("min_slots__gte", 1), ("max_slots__gte", models.F("min_slots"))),
                name="job_slots_in_order",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__gte", 1), ("priority__lte", 10000)), name="job_priority_range"
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
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
        ),
        migrations.AddConstraint(
            model_name="generation",
            constraint=models.UniqueConstraint(fields=("job", "incarnation", "number"), name="generation_once"),
        ),
        migrations.AddConstraint(
            model_name="generation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", jobs.states.GenerationState["ACTIVE"])),
                fields=("job",),
                name="generation_one_active",
            ),
        ),
        migrations.AddConstraint(
            model_name="generation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", jobs.states.GenerationState["FORMING"])),
                fields=("job",),
                name="generation_one_forming",
            ),
        ),
        migrations.AddConstraint(
            model_name="checkpoint",
            constraint=models.UniqueConstraint(fields=("job", "incarnation", "step"), name="checkpoint_once"),
        ),
        migrations.AddIndex(
            model_name="allocationpoint",
            index=models.Index(fields=["at"], name="allocation_by_time"),
        ),
        migrations.AddConstraint(
            model_name="allocationpoint",
            constraint=models.UniqueConstraint(
                fields=("job", "incarnation", "generation", "slots"), name="allocation_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="jobevent",
            constraint=models.UniqueConstraint(fields=("job", "seq"), name="job_event_once"),
        ),
        migrations.AddConstraint(
            model_name="metricpoint",
            constraint=models.UniqueConstraint(fields=("job", "name", "step"), name="metric_once_per_step"),
        ),
        migrations.AddConstraint(
            model_name="rank",
            constraint=models.UniqueConstraint(fields=("job", "incarnation", "wid"), name="rank_once"),
        ),
        migrations.AddConstraint(
            model_name="savedfilter",
            constraint=models.UniqueConstraint(fields=("owner", "name"), name="saved_filter_named_once"),
        ),
        migrations.AddIndex(
            model_name="slotclaim",
            index=models.Index(
                condition=models.Q(("released_at__isnull", True)), fields=["job"], name="open_claims_of_job"
            ),
        ),
        migrations.AddIndex(
            model_name="slotclaim",
            index=models.Index(fields=["claimed_at"], name="claims_by_start"),
        ),
        migrations.AddIndex(
            model_name="slotclaim",
            index=models.Index(fields=["released_at"], name="claims_by_end"),
        ),
        migrations.AddConstraint(
            model_name="slotclaim",
            constraint=models.UniqueConstraint(
                condition=models.Q(("released_at__isnull", True)), fields=("slot",), name="slot_held_by_one_job"
            ),
        ),
        migrations.AddIndex(
            model_name="gpuactivity",
            index=models.Index(fields=["at"], name="gpu_activity_by_time"),
        ),
        migrations.AddConstraint(
            model_name="gpuactivity",
            constraint=models.UniqueConstraint(fields=("claim", "at"), name="gpu_activity_once"),
        ),
        migrations.AddConstraint(
            model_name="usagebucket",
            constraint=models.UniqueConstraint(
                fields=("hours", "dimension", "start_hour", "subject", "gpu_model"), name="usage_bucket_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="usagebucket",
            constraint=models.CheckConstraint(
                condition=models.Q(("hours__in", (1, 24))), name="usage_bucket_hour_or_day"
            ),
        ),
    ]
