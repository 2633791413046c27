from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="delivery",
            name="claim",
            field=models.CharField(blank=True, default="", max_length=32),
        ),
        migrations.AddField(
            model_name="delivery",
            name="claimed_until",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.CheckConstraint(
                condition=models.Q(("state", "waiting"), ("claim", ""), _connector="OR"),
                name="delivery_claimed_while_waiting",
            ),
        ),
    ]
