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
            name="ModelTemplate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255, unique=True)),
                ("description", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "readers",
                    models.CharField(
                        choices=[
                            ("everybody", "Everybody"),
                            ("group", "Members of the owner's instance groups"),
                            ("owner", "Only the owner"),
                        ],
                        default="everybody",
                        max_length=16,
                    ),
                ),
                ("framework", models.CharField(choices=[("PyTorch", "Pytorch")], default="PyTorch", max_length=32)),
                ("path", models.CharField(max_length=4096)),
                ("copy", models.CharField(blank=True, default="", max_length=4096)),
                ("entry_point", models.CharField(max_length=255)),
                ("digest", models.CharField(max_length=64)),
                ("compat", models.JSONField(default=list)),
                ("folder_arguments", models.JSONField(default=list)),
                ("script", models.JSONField(default=dict)),
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
                "abstract": False,
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
                    "readers",
                    models.CharField(
                        choices=[
                            ("everybody", "Everybody"),
                            ("group", "Members of the owner's instance groups"),
                            ("owner", "Only the owner"),
                        ],
                        default="everybody",
                        max_length=16,
                    ),
                ),
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
                "abstract": False,
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
                ("script", models.JSONField(default=dict)),
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
