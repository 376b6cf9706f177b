"""A query that fits the database: a grammar and a checker together.

The idea: a grammar says what SQL looks like, but not that the columns it selects belong to the table it
selects from, which is named after them. sqlglot knows. `Lark(...) & Predicate(...)` asks the grammar first,
as that is quick, and sqlglot about what the grammar lets through.

    python examples/sql.py --question "The names of the stadiums in Rome."
"""

import argparse
import re

from sqlglot import parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from hfppl import CachedCausalLM, Particles, steer_sync
from hfppl.constraints import Lark, Predicate

TABLES = {
    "singers": {"name": "text", "age": "int", "country": "text"},
    "concerts": {"title": "text", "year": "int", "stadium": "text"},
    "stadiums": {"name": "text", "city": "text", "seats": "int"},
}
EXAMPLE = (
    "Question: The titles of the concerts before 1990.\nSQL:\nSELECT title FROM concerts WHERE year < 1990;"
)
COLUMNS = {column for table in TABLES.values() for column in table}


def grammar() -> Lark:
    """SELECT with any columns of any table."""
    return Lark(rf"""
        start: "SELECT " selected " FROM " table (" WHERE " test (" AND " test)?)? (" ORDER BY " column)? ";"
        selected: "*" | column (", " column)* | "COUNT(*)"
        test: column " " ("=" | "<" | ">") " " value
        value: /[0-9]{{1,4}}/ | /'[A-Za-z ]{{1,20}}'/
        column: {" | ".join(f'"{name}"' for name in sorted(COLUMNS))}
        table: {" | ".join(f'"{name}"' for name in TABLES)}
    """)


def fits(query: str) -> bool:
    """Whether every column of a whole query is one of its table's."""
    try:
        qualify(parse_one(query.rstrip(";")), schema=TABLES)
    except SqlglotError:
        return False
    return True


def can_go_on(text: str) -> bool:
    """Whether what stands up to the last blank may be the beginning of a query that fits."""
    begun, _, after = text.partition(" FROM ")
    table, blank, tests = after.partition(" ")
    if not blank:
        return not after or after.rstrip(";") not in TABLES or fits(text)
    # Of a clause that is not whole, only the columns can be told.
    words = set(re.findall(r"\w+", re.sub("'[^']*'?", "", tests)))
    return fits(f"{begun} FROM {table}") and words & COLUMNS <= set(TABLES[table])


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description="Write an SQL query that fits a database.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--question", default="The names of the singers from France, by age.")
    options = parser.parse_args(argv)
    tables = "\n".join(f"{name}({', '.join(columns)})" for name, columns in TABLES.items())
    prompt = f"The tables of the database:\n{tables}\n\n{EXAMPLE}\n\nQuestion: {options.question}\nSQL:\n"

    lm = CachedCausalLM.from_pretrained(options.model)
    rule = grammar() & Predicate(can_go_on, fits)
    particles = steer_sync(
        lm, prompt, rule, options.n_particles, options.max_tokens, end="boundary", seed=options.seed
    )

    print(prompt)
    for text, probability in particles.posterior().items():
        print(f"{probability:8.1%}  {text}")
    print(f"\nlog marginal likelihood {particles.log_marginal_likelihood:.2f}, ESS {particles.ess:.1f}")
    if particles.n_dead:
        print(f"{particles.n_dead} of {len(particles)} came to the limit of tokens, or to a dead end")
    return particles


if __name__ == "__main__":
    main()
