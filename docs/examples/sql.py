"""The verifier ``sql``: whether a query gives the rows of the reference query, in SQLite.

The reference is the right query. The column ``databases`` has one SQL script, or a list of several,
each of which makes a database in memory. Both queries run on each of them, because a wrong query
may be right on one. ``"ordered": true`` compares the order of the rows too; names of columns do not
matter, and numbers agree to nine digits. The answer is the block fenced as ``sql``, a block without
a language, or the whole response if it begins like a query.

A query may only read: everything else is refused, also attached files, settings, and functions
whose result is not always the same. It ends after ``MOST_STEPS`` steps of SQLite or ``MOST_ROWS``
rows.

    correct    same_rows        on every database
    incorrect  other_rows       ``evidence`` has the number of the database
    incorrect  failed           it does not run, or does something else than read
    incorrect  too_slow
    incorrect  no_query
    undecided  several_queries

Not covered: other dialects of SQL; the current time, as in ``date('now')``.
"""

import json
import sqlite3
from collections import Counter

from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision, Verifier

MOST_STEPS, MOST_ROWS, MOST_BYTES = 5_000_000, 10_000, 1_000_000
_STEPS_AT_ONCE = 100_000
_READING = {
    *(sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION),
    sqlite3.SQLITE_RECURSIVE,
}
_OUTSIDE = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
_CHANGING = {
    *("random", "randomblob", "load_extension"),
    *("current_date", "current_time", "current_timestamp"),
}

Row = tuple[object, ...]


class TooSlowError(Exception):
    """A query has used up its steps."""


def may_read(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    is_changing = action == sqlite3.SQLITE_FUNCTION and second in _CHANGING
    allowed = action in _READING and not is_changing
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def may_build(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action in _OUTSIDE else sqlite3.SQLITE_OK


def rows_of(script: str, query: str) -> list[Row]:
    """The rows of a query on a new database.

    Raises:
        TooSlowError: It, or the script, takes too many steps.
        sqlite3.Error, sqlite3.Warning: It does not run.
    """
    left = MOST_STEPS // _STEPS_AT_ONCE

    def spend() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection = sqlite3.connect(":memory:")
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        connection.set_progress_handler(spend, _STEPS_AT_ONCE)
        connection.set_authorizer(may_build)
        connection.executescript(script)
        connection.set_authorizer(may_read)
        rows = connection.execute(query).fetchmany(MOST_ROWS + 1)
    except sqlite3.OperationalError as error:
        if left < 0:
            raise TooSlowError from error
        raise
    finally:
        connection.close()
    if len(rows) > MOST_ROWS:
        raise TooSlowError
    return [tuple(map(plain, row)) for row in rows]


def plain(value: object) -> object:
    """A value in a form in which equal values are equal."""
    if isinstance(value, float):
        rounded = float(f"{value:.9g}")
        return int(rounded) if rounded.is_integer() else rounded
    return value.hex() if isinstance(value, bytes) else value


def arguments(problem: Problem) -> tuple[list[str], bool]:
    args = json.loads(problem.verifier_args)
    databases, ordered = args.get("databases"), args.get("ordered", False)
    scripts = [databases] if isinstance(databases, str) else databases
    if not isinstance(scripts, list) or not scripts or not all(isinstance(s, str) for s in scripts):
        raise ValueError("there is no database; give SQL scripts in the column databases")
    if not isinstance(ordered, bool):
        raise ValueError(f"ordered must be true or false, not {ordered!r}")
    return scripts, ordered


class Sql(Verifier):
    """The verifier ``sql``, described in this module's docstring."""

    name = "sql"
    version = "1"
    argument_columns = ("databases", "ordered")
    # A judge would compare the texts of two queries, which says nothing about their rows.
    accepts_others = True
    domain = "code"

    def check_reference(self, problem: Problem) -> str | None:
        try:
            scripts, _ = arguments(problem)
        except ValueError as error:
            return str(error)
        found = []
        for number, script in enumerate(scripts, 1):
            try:
                found += rows_of(script, problem.reference)
            except TooSlowError:
                return f"the reference query takes too long on database {number}; use fewer rows"
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                return f"the reference query or database {number} does not run: {error}; correct it"
        return None if found else "the reference query gives no rows in any database; add some"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        parts = [part.partition("\n") for part in text.split("```")[1::2]]
        for languages in (("sql", "sqlite"), ("",)):
            queries = {body.strip() for tag, _, body in parts if tag.strip().lower() in languages}
            if len(queries) > 1:
                return Decision("undecided", "several_queries")
            if queries:
                return queries.pop()
        begins = text.split(maxsplit=1)[0].lower() in ("select", "with")
        return text.strip() if begins else Decision("incorrect", "no_query")

    def decide(self, problem: Problem, candidate: str) -> Decision:
        scripts, ordered = arguments(problem)
        found = None
        for number, script in enumerate(scripts, 1):
            evidence = json.dumps({"database": number})
            right = rows_of(script, problem.reference)
            try:
                rows = rows_of(script, candidate)
            except TooSlowError:
                return Decision("incorrect", "too_slow", evidence=evidence)
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):
                return Decision("incorrect", "failed", evidence=evidence)
            if not ordered:
                rows.sort(key=repr)
            found = found or json.dumps(rows)[:MOST_BYTES]
            if (rows != right) if ordered else (Counter(rows) != Counter(right)):
                return Decision("incorrect", "other_rows", found, evidence=evidence)
        return Decision("correct", "same_rows", found)
