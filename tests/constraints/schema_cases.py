"""JSON schemas made at random, each with a function that makes values that satisfy it.

And what the tests of JSON schemas share.
"""

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hfppl import CachedCausalLM
from hfppl.constraints import State
from hfppl.constraints.json_schema import JsonSchema
from hfppl.errors import ConstraintError

BYTES = CachedCausalLM.from_function(
    [*(bytes([i]) for i in range(256)), "<end>"], lambda ids: [0.0] * 257, [256]
)


def started(schema: Any) -> State | str:
    """The beginning of a text of bytes, or why the schema is refused."""
    try:
        return JsonSchema(schema).start(BYTES)
    except ConstraintError as error:
        return str(error)


def accepts(start: State, text: str) -> bool:
    state = start.copy()
    return state.advance_bytes(text.encode()) and state.can_end


Schema = Any
Sampler = Callable[[random.Random], Any]
Case = tuple[Schema, Sampler]

LETTERS = 'abcXYZ 019_-"\\/\n\té中😀'
NAMES = ["id", "name", "a b", "größe", 'q"uote', "n0", "list", "tab\t"]
PATTERNS = [
    ("^[a-z]+$", ["a", "hello"]),
    (r"^\d{3}-\d{4}$", ["123-4567"]),
    ("^(foo|bar)", ["foo", "bar", "fooxé"]),
    (r"^[^\"]{2,5}$", ["ab", "\\/é"]),
    ("^(?:yes|no)?$", ["", "yes", "no"]),
    (r"^\w{1,3}\.(?:py|rs)$", ["a.py", "_9z.rs"]),
    (r"^\s?x", ["x", "\nxyz"]),
]
FORMATS = {
    "date": ["2024-02-29", "1999-12-31"],
    "time": ["12:00:00Z", "23:59:59.25+01:30"],
    "date-time": ["2001-01-01T00:00:00Z"],
    "duration": ["P1D", "PT3H"],
    "email": ["a.b@example.com"],
    "hostname": ["www.example.com"],
    "ipv4": ["127.0.0.1", "255.249.9.0"],
    "ipv6": ["::1", "fe80::1:2", "1:2:3:4:5:6:7:8"],
    "uri": ["https://example.com/a?b#c", "mailto:me@example.com"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
}
# What spoils a schema, and the keyword that its refusal has to name.
SPOILERS: dict[str, Schema] = {
    "uniqueItems": True,
    "not": {"type": "null"},
    "contains": {"type": "null"},
    "dependentRequired": {"a": ["b"]},
    "if": {"type": "null"},
    "propertyNames": {"maxLength": 3},
    "unevaluatedProperties": False,
    "maxLenght": 3,
    "pattern": "(?!a)b",
    "format": "iri",
    "oneOf": [{"minLength": 1}, {"maxLength": 3}],
    "multipleOf": 0.07,
    "enum": [],
    "$ref": "https://example.com/schema",
}


def text(rng: random.Random, least: int, most: int) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(least, most)))


def value(rng: random.Random, depth: int = 1) -> Any:
    """Any JSON value."""
    kind = rng.randrange(7 if depth else 5)
    if kind == 5:
        return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
    if kind == 6:
        return {name: value(rng, depth - 1) for name in rng.sample(NAMES, rng.randrange(3))}
    return [None, rng.random() < 0.5, rng.randint(-50, 50), rng.randint(-99, 99) / 8, text(rng, 0, 4)][kind]


def random_case(seed: int) -> tuple[Schema, Sampler, str | None]:
    """A schema, what makes values for it, and the keyword it is refused for, if it is."""
    rng = random.Random(seed)
    maker = Maker(rng)
    schema, sample = maker.case(3)
    if maker.definitions:
        schema = {"$defs": maker.definitions, "allOf": [schema]}
    if rng.random() < 0.2:
        schema = {"title": "A title", **schema, "description": "x", "default": None, "x-order": 1}
    if rng.random() > 0.1:
        return schema, sample, None
    keyword = rng.choice([name for name in SPOILERS if name not in schema])
    return {**schema, keyword: SPOILERS[keyword]}, sample, keyword


class Maker:
    """Makes schemas; what they refer to is collected in `definitions`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.definitions: dict[str, Schema] = {}

    def case(self, depth: int) -> Case:
        leaves = [self.constant, self.listed, self.integer, self.number, self.string, self.matching]
        leaves += [self.formatted, self.nullable]
        inner = [self.array, self.prefixed, self.object, self.object, self.object, self.map, self.any_of]
        inner += [self.one_of, self.tagged, self.all_of, self.recursive, self.anything]
        return self.rng.choice(inner if depth and self.rng.random() < 0.3 + depth / 5 else leaves)(depth - 1)

    # --- values without others in them

    def constant(self, depth: int) -> Case:
        found = value(self.rng)
        return {"const": found}, lambda rng: found

    def listed(self, depth: int) -> Case:
        found = [value(self.rng) for _ in range(self.rng.randint(1, 4))]
        return {"enum": found}, lambda rng: rng.choice(found)

    def integer(self, depth: int) -> Case:
        step = self.rng.choice([1, 1, 2, 7, 100])
        low, high = sorted(self.rng.randint(-40, 40) for _ in range(2))
        schema: Schema = {"type": "integer"} | ({"multipleOf": step} if step > 1 else {})
        schema |= self.rng.choice([{}, {"minimum": low * step}, {"exclusiveMinimum": low * step - 0.5}])
        schema |= self.rng.choice([{}, {"maximum": high * step}, {"exclusiveMaximum": high * step + 1}])
        return schema, lambda rng: step * rng.randint(low, high)

    def number(self, depth: int) -> Case:
        step = Decimal(self.rng.choice(["0.01", "0.01", "0.1", "0.25", "0.5", "2"]))
        low, high = sorted(self.rng.randint(-400, 400) for _ in range(2))
        schema: Schema = {"type": "number"}
        if self.rng.random() < 0.3 and step != Decimal("0.25"):
            schema["multipleOf"] = float(step)
        near = float(step / 3)
        schema |= self.rng.choice(
            [{}, {"minimum": float(low * step)}, {"exclusiveMinimum": float(low * step) - near}]
        )
        schema |= self.rng.choice(
            [{}, {"maximum": float(high * step)}, {"exclusiveMaximum": float(high * step) + near}]
        )
        return schema, lambda rng: float(rng.randint(low, high) * step)

    def string(self, depth: int) -> Case:
        least, most = sorted(self.rng.randint(0, 8) for _ in range(2))
        schema = {"type": "string", "minLength": least, "maxLength": most}
        return schema, lambda rng: text(rng, least, most)

    def matching(self, depth: int) -> Case:
        pattern, found = self.rng.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda rng: rng.choice(found)

    def formatted(self, depth: int) -> Case:
        name = self.rng.choice(sorted(FORMATS))
        return {"type": "string", "format": name}, lambda rng: rng.choice(FORMATS[name])

    def nullable(self, depth: int) -> Case:
        schema, sample = self.rng.choice([self.integer, self.string, self.matching])(depth)
        return schema | {"type": [schema["type"], "null"]}, lambda rng: rng.choice([None, sample(rng)])

    def anything(self, depth: int) -> Case:
        return {}, value

    # --- arrays and objects

    def array(self, depth: int) -> Case:
        items, sample = self.case(depth)
        least, most = sorted(self.rng.randint(0, 4) for _ in range(2))
        schema = {"type": "array", "items": items, "minItems": least, "maxItems": most}
        return schema, lambda rng: [sample(rng) for _ in range(rng.randint(least, most))]

    def prefixed(self, depth: int) -> Case:
        cases = [self.case(depth) for _ in range(self.rng.randint(1, 3))]
        rest, sample = self.case(0)
        least = self.rng.randint(0, len(cases))
        schema: Schema = {"type": "array", "prefixItems": [item for item, _ in cases], "minItems": least}
        more = self.rng.randrange(3)
        schema |= {"items": rest} if more else {"items": False}

        def make(rng: random.Random) -> Any:
            found = [each(rng) for _, each in cases]
            if rng.random() < 0.5:
                return found[: rng.randint(least, len(found))]
            return [*found, *(sample(rng) for _ in range(more))]

        return schema, make

    def object(self, depth: int) -> Case:
        rng = self.rng
        cases = {name: self.case(depth) for name in rng.sample(NAMES, rng.randint(0, 4))}
        required = [name for name in cases if rng.random() < 0.5]
        schema: Schema = {"type": "object", "properties": {name: inner for name, (inner, _) in cases.items()}}
        by_name: dict[str, Sampler] = {}
        if rng.random() < 0.3:
            schema["patternProperties"] = {}
            for pattern, name in rng.sample([("^x_", "x_1"), ("^[0-9]+$", "12")], rng.randint(1, 2)):
                schema["patternProperties"][pattern], by_name[name] = self.case(0)
        additional = rng.choice([None, False, self.case(0)])
        other: Sampler | None = value
        if additional is not None:
            schema["additionalProperties"], other = additional or (False, None)
        if other is not None:
            by_name["extra"] = other
            if rng.random() < 0.3:
                required.append("needed")
                cases["needed"] = ({}, other)
        if required or rng.random() < 0.5:
            schema["required"] = required

        def make(rng: random.Random) -> Any:
            found = {n: each(rng) for n, (_, each) in cases.items() if n in required or rng.random() < 0.5}
            return found | {name: each(rng) for name, each in by_name.items() if rng.random() < 0.4}

        return schema, make

    def map(self, depth: int) -> Case:
        inner, sample = self.case(depth)
        least, most = self.rng.randint(0, 1), self.rng.randint(1, 3)
        schema = {"type": "object", "additionalProperties": inner}
        schema |= {"minProperties": least, "maxProperties": most}
        return schema, lambda rng: {n: sample(rng) for n in rng.sample(NAMES, rng.randint(least, most))}

    # --- schemas made of others

    def any_of(self, depth: int) -> Case:
        cases = [self.case(depth) for _ in range(self.rng.randint(1, 3))]
        return {"anyOf": [schema for schema, _ in cases]}, lambda rng: rng.choice(cases)[1](rng)

    def one_of(self, depth: int) -> Case:
        cases = [self.string(0), self.array(depth), self.rng.choice([self.integer, self.number])(0)]
        cases = self.rng.sample(cases, 2)
        return {"oneOf": [schema for schema, _ in cases]}, lambda rng: rng.choice(cases)[1](rng)

    def tagged(self, depth: int) -> Case:
        options, cases = [], []
        for tag in ("cat", "dog"):
            inner, sample = self.case(depth)
            schema = {
                "type": "object",
                "properties": {"kind": {"const": tag}, "of": inner},
                "required": ["kind", "of"],
                "additionalProperties": False,
            }
            options.append(self.define(schema) if self.rng.random() < 0.5 else schema)
            cases.append((tag, sample))

        def make(rng: random.Random) -> Any:
            tag, sample = rng.choice(cases)
            return {"kind": tag, "of": sample(rng)}

        return {"oneOf": options, "discriminator": {"propertyName": "kind"}}, make

    def all_of(self, depth: int) -> Case:
        (a, make_a), (b, make_b) = self.case(depth), self.case(depth)
        part = {"type": "object", "properties": {"a": a}, "required": ["a"]}
        own = {"type": "object", "properties": {"b": b, "a": {}}, "required": ["b"]}
        if self.rng.random() < 0.5:
            part = self.define(part)
        if self.rng.random() < 0.5:
            return {"allOf": [part], **own}, lambda rng: {"a": make_a(rng), "b": make_b(rng)}
        return {**own, "allOf": [part]}, lambda rng: {"b": make_b(rng), "a": make_a(rng)}

    def recursive(self, depth: int) -> Case:
        inner, sample = self.case(0)
        name = f"d{len(self.definitions)}"
        again = {"$ref": f"#/$defs/{name}"}
        if self.rng.random() < 0.5:
            self.definitions[name] = {
                "type": "object",
                "properties": {"value": inner, "next": {"anyOf": [{"type": "null"}, again]}},
                "required": ["value"],
                "additionalProperties": False,
            }

            def make(rng: random.Random, depth: int = 2) -> Any:
                more = make(rng, depth - 1) if depth and rng.random() < 0.5 else None
                return {"value": sample(rng), "next": more}

            return again, make
        self.definitions[name] = {"type": "array", "prefixItems": [inner], "items": again}
        return again, lambda rng: [sample(rng), [sample(rng)], []][: rng.randint(0, 3)]

    def define(self, schema: Schema) -> Schema:
        name = f"d{len(self.definitions)}"
        self.definitions[name] = schema
        return {"$ref": f"#/$defs/{name}"}
