from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0039_sealed_trainings"),
    ]

    operations = [
        migrations.AddField(
            model_name="jobrun",
            name="began_on",
            field=models.CharField(blank=True, db_default="", default="", max_length=512),
        ),
    ]
