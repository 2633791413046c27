from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0006_stepped_at"),
    ]

    operations = [
        migrations.AddField(
            model_name="jobrun",
            name="curve_limits",
            field=models.JSONField(default=dict),
        ),
    ]
