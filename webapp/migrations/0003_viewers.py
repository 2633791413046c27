from django.db import migrations

from webapp.migrations._rules import make_group


class Migration(migrations.Migration):
    dependencies = [("webapp", "0002_uploads"), ("auth", "0012_alter_user_first_name_max_length")]

    operations = [migrations.RunPython(make_group, migrations.RunPython.noop)]
