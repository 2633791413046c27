from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workers", "0017_separate_users"),
    ]

    operations = [
        migrations.AddField(
            model_name="host",
            name="joined_at",
            field=models.DateTimeField(null=True),
        ),
    ]
