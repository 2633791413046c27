"""Hand the tables of usage, reports and replays over to their own apps, with all rows."""

from django.db import migrations

#: (name of a table as `0001_initial` makes it, its name in the app that owns it now)
_RENAMED = (
    ("jobs_sharelink", "reports_sharelink"),
    ("jobs_reportblock", "reports_reportblock"),
    ("jobs_report", "reports_report"),
    ("jobs_replay", "replay_replay"),
    ("jobs_usagebucket", "usage_usagebucket"),
    ("jobs_usagemark", "usage_usagemark"),
    ("jobs_gpuprice", "usage_gpuprice"),
    ("jobs_usagename", "usage_usagename"),
)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(f"ALTER TABLE {old} RENAME TO {new}", f"ALTER TABLE {new} RENAME TO {old}")
                for old, new in _RENAMED
            ],
            state_operations=[
                migrations.DeleteModel("ShareLink"),
                migrations.DeleteModel("ReportBlock"),
                migrations.DeleteModel("Report"),
                migrations.DeleteModel("Replay"),
                migrations.DeleteModel("UsageBucket"),
                migrations.DeleteModel("UsageMark"),
                migrations.DeleteModel("GpuPrice"),
                migrations.DeleteModel("UsageName"),
            ],
        )
    ]
