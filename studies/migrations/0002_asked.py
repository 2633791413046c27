from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("studies", "0001_initial")]

    operations = [
        migrations.AddField(model_name="study", name="asked", field=models.JSONField(blank=True, default=dict)),
    ]
