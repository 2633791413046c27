import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("jobs", "0002_rows_of_other_apps"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # `jobs.0001` makes the tables, and `jobs.0002` gives them the names that they have here.
        migrations.SeparateDatabaseAndState(
            state_operations=[
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
                                choices=[("text", "Text"), ("chart", "Chart"), ("table", "Table"), ("note", "Note")],
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
                                on_delete=django.db.models.deletion.CASCADE, related_name="blocks", to="reports.report"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["report", "place"],
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
                                on_delete=django.db.models.deletion.CASCADE, related_name="links", to="reports.report"
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["-id"],
                    },
                ),
                migrations.AddConstraint(
                    model_name="report",
                    constraint=models.CheckConstraint(
                        condition=models.Q(("title", ""), _negated=True), name="report_has_a_title"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="report",
                    constraint=models.CheckConstraint(
                        condition=models.Q(("readers__in", ["everybody", "group", "owner"])), name="report_readers"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="reportblock",
                    constraint=models.UniqueConstraint(fields=("report", "place"), name="report_block_place"),
                ),
                migrations.AddConstraint(
                    model_name="reportblock",
                    constraint=models.CheckConstraint(
                        condition=models.Q(("kind__in", ("text", "chart", "table", "note"))), name="report_block_kind"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="reportblock",
                    constraint=models.CheckConstraint(
                        condition=models.Q(("size_bytes__lte", 524288)), name="report_block_size"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="reportblock",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind__in", ("text", "note")), ("size_bytes", 0)),
                            models.Q(
                                ("kind__in", ("chart", "table")), ("edits", 0), ("size_bytes__gt", 0), ("text", "")
                            ),
                            _connector="OR",
                        ),
                        name="report_block_has_text_or_data",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="sharelink",
                    constraint=models.CheckConstraint(
                        condition=models.Q(("expires_at__gt", models.F("created_at"))), name="share_link_ends_later"
                    ),
                ),
                migrations.AddConstraint(
                    model_name="sharelink",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("last_used_at", None), ("uses", 0)),
                            models.Q(("last_used_at__isnull", False), ("uses__gt", 0)),
                            _connector="OR",
                        ),
                        name="share_link_used_iff_counted",
                    ),
                ),
            ]
        )
    ]
