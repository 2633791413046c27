from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_group_queue")]

    operations = [
        migrations.RenameField("JobRun", "above_part", "over_quota"),
        migrations.RenameField("JobRun", "gives_way_to", "backfilled_for"),
    ]
