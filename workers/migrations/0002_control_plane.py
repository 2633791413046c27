from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workers", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="host",
            name="reported_at",
            field=models.FloatField(default=0),
        ),
    ]
