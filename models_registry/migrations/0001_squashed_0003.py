"""All tables at once, for a new database; one that has some of 0001 to 0003 already takes the rest of those."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("models_registry", "0001_initial"),
        ("models_registry", "0002_templates"),
        ("models_registry", "0003_folder_arguments"),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ModelTemplate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("framework", models.CharField(choices=[("PyTorch", "Pytorch")], default="PyTorch", max_length=32)),
                ("path", models.CharField(max_length=4096)),
                ("copy", models.CharField(blank=True, default="", max_length=4096)),
                ("entry_point", models.CharField(max_length=255)),
                ("digest", models.CharField(max_length=64)),
                ("compat", models.JSONField(default=list)),
                ("folder_arguments", models.JSONField(default=list)),
                ("name", models.CharField(max_length=255, unique=True)),
                ("description", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("taken_at", models.DateTimeField()),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="model_templates",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="RegisteredModel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255, unique=True)),
                ("description", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="registered_models",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="RegisteredModelVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("framework", models.CharField(choices=[("PyTorch", "Pytorch")], default="PyTorch", max_length=32)),
                ("path", models.CharField(max_length=4096)),
                ("copy", models.CharField(blank=True, default="", max_length=4096)),
                ("entry_point", models.CharField(max_length=255)),
                ("digest", models.CharField(max_length=64)),
                ("compat", models.JSONField(default=list)),
                ("folder_arguments", models.JSONField(default=list)),
                ("number", models.PositiveIntegerField()),
                (
                    "engine",
                    models.CharField(
                        choices=[
                            ("elastic", "Elastic distributed training"),
                            ("single", "Single node"),
                            ("fixed", "Distributed, fixed size"),
                        ],
                        default="elastic",
                        max_length=16,
                    ),
                ),
                ("settings", models.JSONField(default=dict)),
                ("parameters", models.JSONField(default=dict)),
                ("default_dataset", models.CharField(blank=True, default="", max_length=255)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="models_registry.registeredmodel",
                    ),
                ),
                (
                    "template",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="model_versions",
                        to="models_registry.modeltemplate",
                    ),
                ),
            ],
            options={
                "ordering": ["model", "-number"],
                "constraints": [models.UniqueConstraint(fields=("model", "number"), name="model_version_once")],
            },
        ),
    ]
