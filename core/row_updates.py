"""Single statements that write many rows: Django's `bulk_update` compiles a CASE for each value, and its `bulk_create`
prepares each value by itself."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connections, router, transaction
from django.db.models import Model, QuerySet

__all__ = ["update_rows", "upsert_rows"]

#: Rows in one statement.
_ROWS_AT_ONCE = 500


def update_rows(rows: QuerySet[Any], objects: Sequence[Model], columns: Iterable[str]) -> int:
    """Write these columns of the objects, each with its own values.

    Returns the number of objects that are among `rows`; the others stay as they are.
    """
    names = sorted(columns)
    if not names or not objects:
        return 0
    fields = [rows.model._meta.get_field(name) for name in names]
    using = router.db_for_write(rows.model)
    most = min(_ROWS_AT_ONCE, (connections[using].features.max_query_params or 65_535) // (len(names) + 2))
    with transaction.atomic(using):
        return sum(
            _update(using, rows, objects[first : first + most], fields) for first in range(0, len(objects), most)
        )


def upsert_rows(model: type[Model], rows: Sequence[Any], unique: Sequence[str], updated: Sequence[str]) -> None:
    """Insert these rows, or write the columns `updated` of the rows that have the same `unique` ones.

    rows: objects that have the model's attributes, and need not be its instances. The model has columns of numbers,
    texts and times only.
    """
    if not rows:
        return
    connection = connections[router.db_for_write(model)]
    if connection.vendor == "postgresql":
        _upsert_arrays(connection, model._meta, rows, (unique, updated))
    else:
        names = [field.attname for field in _columns(model._meta)]
        made = [model(**{name: getattr(row, name) for name in names}) for row in rows]
        model._default_manager.bulk_create(made, update_conflicts=True, unique_fields=unique, update_fields=updated)


def _columns(meta: Any) -> list[Any]:
    return [field for field in meta.concrete_fields if not field.primary_key]


def _upsert_arrays(connection: Any, meta: Any, rows: Sequence[Any], names: tuple[Sequence[str], ...]) -> None:
    quote, fields = connection.ops.quote_name, _columns(meta)
    unique, updated = ([quote(meta.get_field(name).column) for name in some] for some in names)
    arrays = ", ".join(f"CAST(%s AS {field.db_type(connection)}[])" for field in fields)
    values = [[getattr(row, field.attname) for row in rows] for field in fields]
    # Names come from the models, values are parameters.
    statement = (
        f"INSERT INTO {quote(meta.db_table)} ({', '.join(quote(field.column) for field in fields)})"  # noqa: S608
        f" SELECT * FROM UNNEST({arrays}) ON CONFLICT ({', '.join(unique)})"
        f" DO UPDATE SET {', '.join(f'{column} = EXCLUDED.{column}' for column in updated)}"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def _update(using: str, rows: QuerySet[Any], objects: Sequence[Model], fields: Sequence[Any]) -> int:
    connection, meta = connections[using], rows.model._meta
    quote = connection.ops.quote_name
    key, table = quote(meta.pk.column), quote(meta.db_table)
    among, params = rows.filter(pk__in=[one.pk for one in objects]).order_by().values("pk").query.sql_with_params()
    assigned = ", ".join(
        f"{quote(field.column)} = {_cast(field, f'fresh.column{place}', connection)}"
        for place, field in enumerate(fields, start=2)
    )
    line = f"({', '.join(['%s'] * (len(fields) + 1))})"
    values = [value for one in objects for value in (one.pk, *(_prepared(field, one, connection) for field in fields))]
    # Names come from the models, values are parameters.
    statement = (
        f"UPDATE {table} SET {assigned} FROM (VALUES {', '.join([line] * len(objects))}) AS fresh"  # noqa: S608
        f" WHERE {table}.{key} = fresh.column1 AND {table}.{key} IN ({among})"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [*values, *params])
        return int(cursor.rowcount)


def _prepared(field: Any, one: Model, connection: Any) -> Any:
    return field.get_db_prep_save(getattr(one, field.attname), connection)


def _cast(field: Any, value: str, connection: Any) -> str:
    """Return the value with the column's type: PostgreSQL takes a list of nothing but NULL for text."""
    return f"CAST({value} AS {field.db_type(connection)})" if connection.vendor == "postgresql" else value
