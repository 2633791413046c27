from core.migrations._tables import CreateModels
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("workers", "0001_initial"),
        ("workers", "0002_open_span"),
        ("workers", "0003_intake"),
        ("workers", "0004_dropped_reports"),
        ("workers", "0005_conda"),
        ("workers", "0006_prepared_environments"),
        ("workers", "0007_images"),
        ("workers", "0008_fleets"),
        ("workers", "0009_isolation"),
        ("workers", "0010_gpu_facts"),
        ("workers", "0011_sick_slots"),
        ("workers", "0012_handshake"),
        ("workers", "0013_host_keys"),
        ("workers", "0014_join_limits"),
        ("workers", "0015_broker_users"),
        ("workers", "0016_slot_shares"),
        ("workers", "0017_separate_users"),
    ]

    initial = True

    dependencies = []

    operations = [
        CreateModels(
            operations=[
                migrations.CreateModel(
                    name="Host",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64, unique=True)),
                        (
                            "state",
                            models.CharField(
                                choices=[
                                    ("ONLINE", "Online"),
                                    ("DRAINING", "Draining"),
                                    ("OFFLINE", "Offline"),
                                    ("LOST", "Lost"),
                                ],
                                default="OFFLINE",
                                max_length=16,
                            ),
                        ),
                        ("address", models.CharField(default="127.0.0.1", max_length=255)),
                        ("ncpus", models.PositiveIntegerField(default=0)),
                        ("ngpus", models.PositiveIntegerField(default=0)),
                        ("memory_bytes", models.BigIntegerField(default=0)),
                        ("virtual", models.BooleanField(default=False)),
                        ("nprocs", models.PositiveIntegerField(null=True)),
                        ("ncores", models.PositiveIntegerField(null=True)),
                        ("nthreads", models.PositiveIntegerField(null=True)),
                        ("swap_bytes", models.BigIntegerField(null=True)),
                        ("conda", models.CharField(blank=True, default="", max_length=16)),
                        ("images", models.CharField(blank=True, db_default="", default="", max_length=16)),
                        ("prepares", models.BooleanField(db_default=False, default=False)),
                        ("fleet", models.CharField(blank=True, db_default="", default="", max_length=64)),
                        ("leaving_at", models.DateTimeField(null=True)),
                        ("leaving_why", models.CharField(blank=True, db_default="", default="", max_length=200)),
                        ("drains_for_notice_since", models.DateTimeField(null=True)),
                        (
                            "isolation",
                            models.CharField(
                                blank=True,
                                choices=[
                                    ("walled", "Walled"),
                                    ("separate", "Separate"),
                                    ("shared", "Shared"),
                                    ("none", "None"),
                                ],
                                db_default="",
                                default="",
                                max_length=8,
                            ),
                        ),
                        ("isolation_lacks", models.JSONField(db_default=[], default=list)),
                        ("gpu_software", models.CharField(blank=True, db_default="", default="", max_length=500)),
                        ("gpu_problem", models.CharField(blank=True, db_default="", default="", max_length=500)),
                        ("handshake", models.BooleanField(db_default=False, default=False)),
                        ("cores", models.FloatField(null=True)),
                        ("usable_memory_bytes", models.BigIntegerField(null=True)),
                        ("reserved_cores", models.FloatField(db_default=0.0, default=0.0)),
                        ("reserved_memory_bytes", models.BigIntegerField(db_default=0, default=0)),
                        ("boot", models.CharField(blank=True, default="", max_length=64)),
                        ("last_report_at", models.DateTimeField(blank=True, null=True)),
                        ("reported_at", models.FloatField(default=0)),
                        ("clock_offsets", models.JSONField(default=list)),
                        ("clock_read_at", models.DateTimeField(null=True)),
                        ("clock_behind_seconds", models.FloatField(null=True)),
                        ("key_number", models.PositiveIntegerField(db_default=0, default=0)),
                        ("key_boot", models.PositiveBigIntegerField(db_default=0, default=0)),
                        ("own_broker_user", models.BooleanField(db_default=False, default=False)),
                        ("desired_revision", models.PositiveBigIntegerField(default=0)),
                        ("applied_revision", models.PositiveBigIntegerField(default=0)),
                        ("report_problem", models.CharField(blank=True, default="", max_length=500)),
                        ("removed_at", models.DateTimeField(null=True)),
                        ("removed_boot", models.CharField(blank=True, default="", max_length=64)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                    ],
                    options={
                        "ordering": ["name"],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("removed_at", None), ("state", "OFFLINE"), _connector="OR"),
                                name="host_removed_offers_nothing",
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("own_broker_user", False), ("key_number__gt", 0), _connector="OR"),
                                name="host_broker_user_has_key",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="Intake",
                    fields=[
                        ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                        ("taken_until", models.DateTimeField(null=True)),
                        ("dropped", models.PositiveBigIntegerField(default=0)),
                        ("forged", models.PositiveBigIntegerField(db_default=0, default=0)),
                    ],
                    options={
                        "constraints": [
                            models.CheckConstraint(condition=models.Q(("id", 1)), name="intake_single_row")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="JoinToken",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("digest", models.CharField(max_length=64, unique=True)),
                        ("hosts_left", models.PositiveIntegerField()),
                        ("names", models.JSONField(db_default=[], default=list)),
                        ("networks", models.JSONField(db_default=[], default=list)),
                        ("expires_at", models.DateTimeField()),
                        ("created_by", models.CharField(max_length=150)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                    ],
                    options={
                        "ordering": ["-id"],
                        "constraints": [
                            models.CheckConstraint(
                                condition=models.Q(("hosts_left__gt", 0)), name="join_token_has_uses"
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="ResourceGroup",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("name", models.CharField(max_length=64, unique=True)),
                        ("description", models.CharField(blank=True, default="", max_length=200)),
                        (
                            "kind",
                            models.CharField(
                                choices=[("gpu", "Gpu"), ("service", "Service")], default="gpu", max_length=16
                            ),
                        ),
                        ("slot_rule", models.CharField(default="ngpus", max_length=200)),
                        (
                            "selection",
                            models.CharField(
                                choices=[("static", "Static"), ("dynamic", "Dynamic")], default="dynamic", max_length=16
                            ),
                        ),
                        ("requirement", models.CharField(blank=True, default="", max_length=200)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                        ("hosts", models.ManyToManyField(blank=True, related_name="static_groups", to="workers.host")),
                    ],
                    options={
                        "ordering": ["name"],
                    },
                ),
                migrations.CreateModel(
                    name="Slot",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("index", models.PositiveIntegerField()),
                        ("device_model", models.CharField(blank=True, default="", max_length=128)),
                        ("device_uuid", models.CharField(blank=True, default="", max_length=128)),
                        ("virtual", models.BooleanField(default=False)),
                        ("fault", models.CharField(blank=True, db_default="", default="", max_length=300)),
                        ("sick_since", models.DateTimeField(null=True)),
                        ("sick_why", models.CharField(blank=True, db_default="", default="", max_length=300)),
                        (
                            "host",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="slots", to="workers.host"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["host__name", "index"],
                        "constraints": [
                            models.UniqueConstraint(fields=("host", "index"), name="slot_once_per_host"),
                            models.CheckConstraint(
                                condition=models.Q(
                                    models.Q(("sick_since", None), ("sick_why", "")),
                                    models.Q(("sick_since__isnull", False), models.Q(("sick_why", ""), _negated=True)),
                                    _connector="OR",
                                ),
                                name="slot_sick_for_a_reason",
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="GpuReading",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("at", models.DateTimeField()),
                        ("utilisation_percent", models.FloatField(null=True)),
                        ("idle_since", models.DateTimeField(null=True)),
                        ("memory_used_bytes", models.BigIntegerField(null=True)),
                        ("memory_total_bytes", models.BigIntegerField(null=True)),
                        ("temperature_celsius", models.FloatField(null=True)),
                        ("power_watts", models.FloatField(null=True)),
                        ("counted_claim", models.PositiveBigIntegerField(null=True)),
                        ("counted_from", models.DateTimeField(null=True)),
                        ("busy_ms", models.PositiveIntegerField(default=0)),
                        ("idle_ms", models.PositiveIntegerField(default=0)),
                        ("open_span", models.JSONField(null=True)),
                        (
                            "slot",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.CASCADE, related_name="reading", to="workers.slot"
                            ),
                        ),
                    ],
                ),
                migrations.CreateModel(
                    name="CapacityPoint",
                    fields=[
                        (
                            "id",
                            models.BigAutoField(
                                auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                            ),
                        ),
                        ("at", models.DateTimeField()),
                        ("slots", models.PositiveIntegerField()),
                        (
                            "host",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="capacity_points",
                                to="workers.host",
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["at", "id"],
                        "indexes": [
                            models.Index(fields=["host", "at"], name="capacity_by_host"),
                            models.Index(fields=["at"], name="capacity_by_time"),
                        ],
                    },
                ),
            ],
        ),
    ]
