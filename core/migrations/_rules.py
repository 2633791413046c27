"""What migrations do besides making tables: the group of the viewers, and that nobody rewrites the audit."""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

#: What was done stays as it was written down. (Old entries may be deleted as a whole, by who owns the database.)
REFUSALS = {
    "sqlite": [
        "CREATE TRIGGER audit_is_not_rewritten BEFORE UPDATE ON core_auditentry "
        "BEGIN SELECT RAISE(ABORT, 'entries of the audit are not rewritten'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION audit_is_not_rewritten() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'entries of the audit are not rewritten' USING ERRCODE = 'integrity_constraint_violation'; "
        "END $$",
        "CREATE TRIGGER audit_is_not_rewritten BEFORE UPDATE ON core_auditentry "
        "FOR EACH ROW EXECUTE FUNCTION audit_is_not_rewritten()",
    ],
}


def refuse_to_rewrite(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    for statement in REFUSALS[editor.connection.vendor]:
        editor.execute(statement)


def allow_to_rewrite(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute("DROP FUNCTION audit_is_not_rewritten CASCADE")


def make_group(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("auth", "Group").objects.get_or_create(name="viewers")
