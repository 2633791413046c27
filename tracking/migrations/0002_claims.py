from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tracking", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="mirrorstate",
            name="claim",
            field=models.CharField(blank=True, default="", max_length=32),
        ),
        migrations.AddField(
            model_name="mirrorstate",
            name="claimed_until",
            field=models.DateTimeField(null=True),
        ),
    ]
