"""All tables at once, for a new database; one that has some of 0001 to 0006 already takes the rest of those."""

import django.core.serializers.json
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from webapp.migrations._rules import allow_to_rewrite, make_group, refuse_to_rewrite


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("webapp", "0001_initial"),
        ("webapp", "0002_uploads"),
        ("webapp", "0003_viewers"),
        ("webapp", "0004_audit"),
        ("webapp", "0005_accounts"),
        ("webapp", "0006_logons"),
    ]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=150)),
                ("verb", models.CharField(max_length=64)),
                ("kind", models.CharField(max_length=64)),
                ("key", models.CharField(max_length=64)),
                ("name", models.CharField(max_length=255)),
                ("before", models.JSONField(default=dict, encoder=django.core.serializers.json.DjangoJSONEncoder)),
                ("after", models.JSONField(default=dict, encoder=django.core.serializers.json.DjangoJSONEncoder)),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [
                    models.Index(fields=["at", "id"], name="audit_by_time"),
                    models.Index(fields=["kind", "key", "at", "id"], name="audit_by_object"),
                    models.Index(fields=["kind", "at", "id"], name="audit_by_kind"),
                    models.Index(fields=["actor", "at", "id"], name="audit_by_actor"),
                ],
            },
        ),
        migrations.CreateModel(
            name="OneTimeLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64)),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="one_time_link",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("session_hash", models.CharField(blank=True, default="", max_length=128)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(fields=("user", "name"), name="one_api_token_of_a_name")],
            },
        ),
        migrations.CreateModel(
            name="Upload",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=32, unique=True)),
                ("name", models.CharField(max_length=255)),
                ("size_bytes", models.BigIntegerField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="uploads", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("size_bytes__gt", 0)), name="upload_has_bytes")
                ],
            },
        ),
        migrations.RunPython(make_group, migrations.RunPython.noop),
        migrations.RunPython(refuse_to_rewrite, allow_to_rewrite),
    ]
