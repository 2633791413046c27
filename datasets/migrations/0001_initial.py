import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "__first__"),
    ]

    operations = [
        migrations.CreateModel(
            name="Dataset",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255, unique=True)),
                ("description", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[("images", "Images for Object Classification"), ("csv", "CSV Files"), ("any", "Any")],
                        default="any",
                        max_length=16,
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="datasets",
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
            name="DatasetVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("path", models.CharField(max_length=4096)),
                ("training", models.CharField(blank=True, default="", max_length=4096)),
                ("validation", models.CharField(blank=True, default="", max_length=4096)),
                ("testing", models.CharField(blank=True, default="", max_length=4096)),
                ("is_uploaded", models.BooleanField(default=False)),
                ("archive", models.CharField(blank=True, default="", max_length=4096)),
                ("archive_name", models.CharField(blank=True, default="", max_length=255)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("WAITING", "Waiting"),
                            ("CHECKING", "Checking"),
                            ("READY", "Ready"),
                            ("INVALID", "Invalid"),
                        ],
                        default="WAITING",
                        max_length=16,
                    ),
                ),
                ("progress", models.FloatField(default=0)),
                ("problem", models.TextField(blank=True, default="")),
                ("claim", models.CharField(blank=True, default="", max_length=32)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("size_bytes", models.BigIntegerField(null=True)),
                ("file_count", models.PositiveIntegerField(null=True)),
                ("digest", models.CharField(blank=True, default="", max_length=64)),
                ("summary", models.JSONField(default=dict)),
                ("samples", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="datasets.dataset"
                    ),
                ),
            ],
            options={
                "ordering": ["dataset", "-number"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ("WAITING", "CHECKING"))),
                        fields=["id"],
                        name="dataset_version_unchecked",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("dataset", "number"), name="dataset_version_once"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ("WAITING", "CHECKING", "READY", "INVALID"))),
                        name="dataset_version_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "READY"), _negated=True),
                            models.Q(("file_count__isnull", False), ("problem", ""), ("size_bytes__isnull", False)),
                            _connector="OR",
                        ),
                        name="dataset_version_ready_is_checked",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "INVALID"), _negated=True),
                            models.Q(("problem", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="dataset_version_invalid_says_why",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "CHECKING"), models.Q(("claim", ""), _negated=True)),
                            models.Q(models.Q(("state", "CHECKING"), _negated=True), ("claim", "")),
                            _connector="OR",
                        ),
                        name="dataset_version_claimed_while_checked",
                    ),
                ],
            },
        ),
    ]
