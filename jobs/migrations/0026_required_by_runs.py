from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0025_named_require")]

    operations = [migrations.RenameField("jobrun", "environment", "required")]
