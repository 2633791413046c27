import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Host",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
                ("boot", models.CharField(blank=True, default="", max_length=64)),
                ("last_report_at", models.DateTimeField(blank=True, null=True)),
                ("reported_at", models.FloatField(default=0)),
                ("clock_offsets", models.JSONField(default=list)),
                ("clock_read_at", models.DateTimeField(null=True)),
                ("clock_behind_seconds", models.FloatField(null=True)),
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
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="JoinToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("hosts_left", models.PositiveIntegerField()),
                ("expires_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("hosts_left__gt", 0)), name="join_token_has_uses")
                ],
            },
        ),
        migrations.CreateModel(
            name="ResourceGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64, unique=True)),
                ("description", models.CharField(blank=True, default="", max_length=200)),
                (
                    "kind",
                    models.CharField(choices=[("gpu", "Gpu"), ("service", "Service")], default="gpu", max_length=16),
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
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("index", models.PositiveIntegerField()),
                ("device_model", models.CharField(blank=True, default="", max_length=128)),
                ("device_uuid", models.CharField(blank=True, default="", max_length=128)),
                ("virtual", models.BooleanField(default=False)),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="slots", to="workers.host"
                    ),
                ),
            ],
            options={
                "ordering": ["host__name", "index"],
                "constraints": [models.UniqueConstraint(fields=("host", "index"), name="slot_once_per_host")],
            },
        ),
        migrations.CreateModel(
            name="GpuReading",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("slots", models.PositiveIntegerField()),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="capacity_points", to="workers.host"
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
    ]
