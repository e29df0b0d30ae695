"""SQLite: questions, changes and repairs of databases. The grader reads copies of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

from ..checks import Check, Content, Printed
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]

Row = tuple[object, ...]


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _inserts(table: str, rows: Sequence[Row]) -> str:
    values = ",\n  ".join("(" + ", ".join(_literal(each) for each in row) + ")" for row in rows)
    return f"INSERT INTO {table} VALUES\n  {values};\n"


def _database(path: str, sql: str) -> str:
    return f"sqlite3 {path} <<'END'\nBEGIN;\n{sql}COMMIT;\nEND"


def _answers(path: str, answers: Mapping[str, Sequence[Row]], tables: Sequence[str]) -> Check:
    """These queries give these rows, and these tables are tables: nothing that only looks like one."""
    names = ", ".join(_literal(name) for name in tables)
    queries: dict[str, Sequence[Row]] = {
        "PRAGMA integrity_check;": [("ok",)],
        f"SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ({names}) ORDER BY name;": [
            (name,) for name in sorted(tables)
        ],
        **answers,
    }
    script = "".join(f"SELECT '--';\n{query}\n" for query in queries)
    lines = []
    for rows in queries.values():
        lines += ["--", *("|".join("" if each is None else str(each) for each in row) for row in rows)]
    return Printed(
        f"sqlite3 -batch -safe -bail {path} < /grader/queries.sql",
        "\n".join(lines),
        artifacts=(path, f"{path}-wal"),
        files={"/grader/queries.sql": script},
    )


def revenue(draw: Draw) -> Problem:
    path, answer = f"{draw.word()}.db", f"{draw.word()}.txt"
    regions = draw.words(3)
    customers = [(at, draw.name(), draw.choice(regions)) for at in range(1, draw.size(5, 6) + 1)]
    year, region = draw.number(2018, 2024), customers[0][2]
    orders: list[tuple[int, int, str, int, int]] = []
    for at in range(1, draw.size(20, 30)):
        when = f"{year + draw.choice((-1, 0, 0, 0))}-{draw.number(1, 12):02}-{draw.number(1, 28):02}"
        orders.append((at, draw.choice(customers)[0], when, draw.number(1, 9), draw.number(5, 500)))
    orders.append((len(orders) + 1, 1, f"{year}-06-15", 3, draw.number(100, 900)))
    total: dict[str, int] = {}
    for _, customer, when, count, price in orders:
        _, name, where = customers[customer - 1]
        if where == region and when.startswith(str(year)):
            total[name] = total.get(name, 0) + count * price
    lines = [f"{name}|{total[name]}" for name in sorted(total, key=lambda name: (-total[name], name))]
    query = (
        "SELECT c.name, sum(o.count * o.price) AS t FROM orders o JOIN customers c ON c.id = o.customer"
        f" WHERE c.region = '{region}' AND o.placed LIKE '{year}-%' GROUP BY c.id ORDER BY t DESC, c.name"
    )
    return Problem(
        prompt=f"The SQLite database {path} has customers and orders. Write to {answer}, for each customer"
        f" of the region '{region}' with orders placed in {year}, a line `name|total`: total is the sum of"
        " count * price of those orders. The largest total comes first; equal ones in order of name.",
        setup=_database(
            path,
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, region TEXT);\n"
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id),"
            " placed TEXT, count INTEGER, price INTEGER);\n"
            + _inserts("customers", customers)
            + _inserts("orders", orders),
        ),
        checks=(Content(answer, "\n".join(lines)),),
        solution=f'sqlite3 {path} "{query}" > {answer}',
    )


def add_column(draw: Draw) -> Problem:
    path, table, column = f"{draw.word()}.db", *draw.words(2)
    low = draw.number(200, 700)
    rows: list[Row] = [(at, draw.name(), draw.number(1, 999)) for at in range(1, draw.size(8, 12))]
    marked = [(*row, "high" if int(str(row[2])) >= low else "low") for row in rows]
    index = f"{table}_by_{column}"
    return Problem(
        prompt=f"In the SQLite database {path}, give the table {table} a column {column} of type TEXT, with"
        f" the value 'high' where score is at least {low}, and 'low' elsewhere. Make an index {index} on"
        " that column. Change nothing else.",
        setup=_database(
            path,
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT, score INTEGER);\n"
            + _inserts(table, rows),
        ),
        checks=(
            _answers(
                path,
                {
                    f"SELECT name, type, pk FROM pragma_table_info('{table}');": [
                        ("id", "INTEGER", 1),
                        ("name", "TEXT", 0),
                        ("score", "INTEGER", 0),
                        (column, "TEXT", 0),
                    ],
                    f"SELECT * FROM {table} ORDER BY id;": marked,
                    f"SELECT name FROM pragma_index_info('{index}');": [(column,)],
                },
                [table],
            ),
        ),
        solution=f'sqlite3 {path} "ALTER TABLE {table} ADD COLUMN {column} TEXT;'
        f" UPDATE {table} SET {column} = CASE WHEN score >= {low} THEN 'high' ELSE 'low' END;"
        f' CREATE INDEX {index} ON {table} ({column});"',
    )


def delete_orphans(draw: Draw) -> Problem:
    path, parents, children = f"{draw.word()}.db", *draw.words(2)
    ids = draw.sample(range(1, 99), draw.size(4, 5))
    kept = [(each, draw.name()) for each in sorted(ids)]
    rows: list[Row] = []
    for at in range(1, draw.size(12, 16)):
        owner = draw.choice([*ids, *ids, draw.number(100, 200), None])
        rows.append((at, owner, draw.code()))
    rows.append((len(rows) + 1, 300, draw.code()))
    after = [row for row in rows if row[1] is None or row[1] in ids]
    return Problem(
        prompt=f"In the SQLite database {path}, rows of {children} name a row of {parents} in the column"
        f" owner. Remove those whose owner does not exist in {parents}. Rows without an owner (NULL) stay,"
        " and so does everything else.",
        setup=_database(
            path,
            f"CREATE TABLE {parents} (id INTEGER PRIMARY KEY, name TEXT);\n"
            f"CREATE TABLE {children} (id INTEGER PRIMARY KEY, owner INTEGER, code TEXT);\n"
            + _inserts(parents, kept)
            + _inserts(children, rows),
        ),
        checks=(
            _answers(
                path,
                {
                    f"SELECT * FROM {parents} ORDER BY id;": kept,
                    f"SELECT * FROM {children} ORDER BY id;": after,
                },
                [parents, children],
            ),
        ),
        solution=f'sqlite3 {path} "DELETE FROM {children} WHERE owner NOT IN (SELECT id FROM {parents})"',
    )


def import_csv(draw: Draw) -> Problem:
    path, source, table = f"{draw.word()}.db", f"{draw.word()}.csv", draw.word()
    rows: list[Row] = []
    for at in range(1, draw.size(6, 9)):
        remark = draw.choice((draw.line(2), f"{draw.word()}, {draw.word()}", None))
        rows.append((100 + at, draw.name(), draw.number(-50, 900), remark))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "name", "amount", "remark"])
    writer.writerows(draw.shuffled(rows))
    return Problem(
        prompt=f"Make a SQLite database {path} with a table {table} that has the rows of {source}: columns"
        " id (INTEGER, the primary key), name (TEXT), amount (INTEGER) and remark (TEXT). An empty remark"
        " is NULL.",
        files={source: written.getvalue()},
        checks=(
            _answers(
                path,
                {
                    f"SELECT name, type, pk FROM pragma_table_info('{table}');": [
                        ("id", "INTEGER", 1),
                        ("name", "TEXT", 0),
                        ("amount", "INTEGER", 0),
                        ("remark", "TEXT", 0),
                    ],
                    f"SELECT id, name, amount, typeof(amount), coalesce(remark, 'NULL') FROM {table}"
                    " ORDER BY id;": [
                        (number, name, amount, "integer", "NULL" if remark is None else remark)
                        for number, name, amount, remark in rows
                    ],
                },
                [table],
            ),
        ),
        solution=f"sqlite3 {path} 'CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER,"
        " remark TEXT)'"
        f" '.mode csv' '.import --skip 1 {source} {table}' \"UPDATE {table} SET remark = NULL WHERE remark"
        " = ''\"",
    )


def export_query(draw: Draw) -> Problem:
    path, answer, table = f"{draw.word()}.db", f"{draw.word()}.csv", draw.word()
    rows = []
    for at in range(1, draw.size(7, 9)):
        title = draw.choice((draw.name(), f"{draw.word()}, {draw.word()}", f'a "{draw.word()}"'))
        rows.append((at, title, draw.number(1, 50)))
    low = sorted(count for _, _, count in rows)[len(rows) // 3]
    found = sorted((row for row in rows if row[2] >= low), key=lambda row: (row[2], row[0]))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "title", "stock"])
    writer.writerows(found)
    return Problem(
        prompt=f"Export the rows of the table {table} of the SQLite database {path} whose stock is at least"
        f" {low} to {answer}: a head line id,title,stock, rows by stock, equal ones by id, lines that end"
        " with a line feed alone. Fields with a comma, a blank or a quote may be quoted as sqlite3 and"
        " Python's csv do it: both are right.",
        setup=_database(
            path,
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, title TEXT, stock INTEGER);\n"
            + _inserts(table, rows),
        ),
        checks=(
            Printed(
                "python3 -I -c 'import csv, sys, json; print(json.dumps(list(csv.reader(open(sys.argv[1],"
                f' newline="")))))\' {answer}',
                json.dumps([["id", "title", "stock"], *([str(each) for each in row] for row in found)]),
                artifacts=(answer,),
            ),
        ),
        solution=f"sqlite3 -csv -header {path} 'SELECT id, title, stock FROM {table} WHERE stock >= {low}"
        f" ORDER BY stock, id' | tr -d '\\r' > {answer}",
    )


def merge_databases(draw: Draw) -> Problem:
    path, other, table = f"{draw.word()}.db", f"{draw.word()}.db", draw.word()
    ids = draw.sample(range(1, 200), draw.size(9, 12))
    third = len(ids) // 3
    ours: dict[int, Row] = {}
    theirs: dict[int, Row] = {}
    for at, each in enumerate(ids):
        first, second = draw.sample(range(1000, 9999), 2)
        if at < 2 * third:
            ours[each] = (each, draw.line(2), first)
        if at >= third:
            theirs[each] = (each, draw.line(2), second)
    merged = ours | {
        each: row
        for each, row in theirs.items()
        if each not in ours or int(str(row[2])) > int(str(ours[each][2]))
    }
    create = f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, content TEXT, changed INTEGER);\n"
    return Problem(
        prompt=f"The SQLite databases {path} and {other} both have a table {table}. Bring the rows of"
        f" {other} into {path}: where both have a row of the same id, {path} gets the one with the larger"
        f" number in changed. {other} stays as it is.",
        setup=_database(path, create + _inserts(table, list(ours.values())))
        + "\n"
        + _database(other, create + _inserts(table, list(theirs.values()))),
        checks=(
            _answers(
                path, {f"SELECT * FROM {table} ORDER BY id;": [merged[at] for at in sorted(merged)]}, [table]
            ),
            _answers(
                other, {f"SELECT * FROM {table} ORDER BY id;": [theirs[at] for at in sorted(theirs)]}, [table]
            ),
        ),
        solution=f"sqlite3 {path} \"ATTACH '{other}' AS o; INSERT INTO {table} SELECT * FROM o.{table}"
        " WHERE true"
        " ON CONFLICT (id) DO UPDATE SET content = excluded.content, changed = excluded.changed"
        ' WHERE excluded.changed > changed"',
    )


def split_table(draw: Draw) -> Problem:
    path, things, places = f"{draw.word()}.db", *draw.words(2)
    names = sorted(draw.names(1 + draw.level))
    rows = [(at, draw.code(), draw.choice(names)) for at in range(1, draw.size(8, 10))]
    used = sorted({name for _, _, name in rows})
    return Problem(
        prompt=f"In the SQLite database {path}, the table {things} repeats the names of places in its"
        f" column place. Make a table {places} with the columns id (INTEGER, the primary key) and name"
        f" (TEXT) that has each place once, numbered from 1 in alphabetical order, and have {things} name"
        f" them by a column place_id in place of the column place: {things} has the columns id, code and"
        " place_id in the end.",
        setup=_database(
            path,
            f"CREATE TABLE {things} (id INTEGER PRIMARY KEY, code TEXT, place TEXT);\n"
            + _inserts(things, rows),
        ),
        checks=(
            _answers(
                path,
                {
                    f"SELECT group_concat(name) FROM pragma_table_info('{things}');": [("id,code,place_id",)],
                    f"SELECT id, name FROM {places} ORDER BY id;": list(enumerate(used, start=1)),
                    f"SELECT id, code, place_id FROM {things} ORDER BY id;": [
                        (number, code, 1 + used.index(name)) for number, code, name in rows
                    ],
                },
                [things, places],
            ),
        ),
        solution=f'sqlite3 {path} "CREATE TABLE {places} (id INTEGER PRIMARY KEY, name TEXT);'
        f" INSERT INTO {places} (name) SELECT DISTINCT place FROM {things} ORDER BY place;"
        f" CREATE TABLE new (id INTEGER PRIMARY KEY, code TEXT, place_id INTEGER REFERENCES {places} (id));"
        f" INSERT INTO new SELECT t.id, code, p.id FROM {things} t JOIN {places} p ON p.name = t.place;"
        f' DROP TABLE {things}; ALTER TABLE new RENAME TO {things};"',
    )


TEMPLATES = templates(
    "sqlite",
    revenue,
    add_column,
    delete_orphans,
    import_csv,
    export_query,
    merge_databases,
    split_table,
)
