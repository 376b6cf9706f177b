"""`JsonSchema`: what it takes, how its texts are written, and what it refuses."""

import json
import random
import re
from decimal import Decimal
from typing import Any

import pytest
from constraints.schema_cases import BYTES, accepts

from hfppl import CachedCausalLM
from hfppl.constraints import State
from hfppl.constraints.json_schema import JsonSchema
from hfppl.errors import ArgumentError, ConstraintError


def start(schema: Any, **options: Any) -> State:
    return JsonSchema(schema, **options).start(BYTES)


def taken(schema: Any, *texts: str, **options: Any) -> list[str]:
    """Those of the texts that are the constraint's."""
    state = start(schema, **options)
    return [text for text in texts if accepts(state, text)]


# --- ways to give a schema


class Model:
    """Has what a class of pydantic's has."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {
            "title": "Model",
            "type": "object",
            "properties": {"x": {"type": "integer"}},
            "required": ["x"],
        }


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "null"}, "null"),
        ('{"type": "null"}', "null"),
        ("true", '{"a":[1e5,"x"]}'),
        (True, "[]"),
        ({}, "-0.5"),
        (Model, '{"x":3}'),
        (Model(), '{"x":3}'),
        ({"enum": ("a", "b")}, '"b"'),
    ],
)
def test_a_schema_is_json_values_or_a_text_or_a_model(schema: Any, text: str) -> None:
    assert taken(schema, text, '"x', "") == [text]


def test_a_schema_is_read_once() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"const": 1}}}
    constraint = JsonSchema(schema)
    schema["properties"]["a"] = {"const": 2}
    assert constraint.schema["properties"]["a"] == {"const": 1}


def test_repr_shows_the_schema() -> None:
    assert repr(JsonSchema({"const": 1})) == "JsonSchema({'const': 1})"
    assert repr(JsonSchema("true", max_blanks=0)) == "JsonSchema(True, max_blanks=0)"


@pytest.mark.parametrize("schema", [3, None, "{", [], {"const": {1, 2}}, {"const": float("nan")}, "[" * 5000])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ConstraintError, match=r"a JSON schema is|a schema is"):
        JsonSchema(schema)


# --- blanks and order


def test_blanks_are_bounded() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}
    by_blanks = [
        '{"a":[1,2]}',
        '{ "a" : [ 1 , 2 ] }',
        '{"a": [1,\n\t2]}',
        '{"a":   [1, 2]}',
        '{"a": [1    ,2]}',
    ]
    for most in range(5):
        allowed = [text for text, least in zip(by_blanks, [0, 1, 2, 3, 4], strict=True) if least <= most]
        assert taken(schema, *by_blanks, max_blanks=most) == allowed
    assert taken(schema, ' {"a":[]}', '{"a":[]} ', '{"a":[]}\n') == []


@pytest.mark.model
def test_blanks_do_not_follow_blanks_token_by_token() -> None:
    lm = CachedCausalLM.from_pretrained(backend="mock")
    blank = set(b" \t\n\r")
    tokens = [i for i, entry in enumerate(lm.byte_vocab) if entry and blank.issuperset(entry)]
    assert len(tokens) > 10
    state = JsonSchema({"type": "object"}, max_blanks=3).start(lm)
    state.advance_bytes(b'{"a"')
    lengths = {len(lm.byte_vocab[i]) for i in tokens if i in state.mask()}
    assert lengths == {1, 2, 3}
    state.advance(lm.byte_vocab.index(b" "))
    state.advance(lm.byte_vocab.index(b"\n\n"))
    assert not any(i in state.mask() for i in tokens)
    assert lm.byte_vocab.index(b":") in state.mask()


@pytest.mark.parametrize("most", [-1, 1.0, True, "1"])
def test_max_blanks_is_a_count(most: Any) -> None:
    with pytest.raises(ArgumentError, match="max_blanks is a whole number"):
        JsonSchema(True, max_blanks=most)


def test_properties_come_in_the_order_of_the_schema() -> None:
    named = {"type": "object", "properties": {"b": {}, "a": {}}, "required": ["d", "c", "a"]}
    assert taken(named, '{"b":1,"a":1,"d":1,"c":1,"e":1}') != []
    assert taken(named, '{"a":1,"b":1,"d":1,"c":1}', '{"b":1,"a":1,"c":1,"d":1}', '{"d":1,"c":1,"a":1}') == []
    one, two = {"properties": {"x": {}}}, {"properties": {"y": {}}}
    own_last = {"type": "object", "allOf": [one, two], "properties": {"z": {}}}
    own_first = {"type": "object", "properties": {"z": {}}, "allOf": [one, two]}
    for schema, text in [(own_last, '{"x":0,"y":0,"z":0}'), (own_first, '{"z":0,"x":0,"y":0}')]:
        assert taken(schema, '{"x":0,"y":0,"z":0}', '{"z":0,"x":0,"y":0}', '{"y":0,"x":0}') == [text]


# --- strings


def test_each_character_has_one_spelling() -> None:
    texts = [
        r'"\"\\\n\t\b\f\r/é😀"',
        r'"\/"',
        r'"\u00e9"',
        r'"\u000a"',
        r'"\u0001"',
        '"\n"',
        '"\x7f"',
        r'"\x"',
    ]
    assert taken({"type": "string"}, *texts) == texts[:1]
    assert taken({"const": '"\\\n\t\b\f\r/é😀'}, *texts) == texts[:1]


def test_another_spelling_is_not_another_name() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    texts = ['{"a":1,"b":"x"}', r'{"a":1,"\u0061":"x"}', r'{"\u0061":"x"}', '{"b":"x","a":"x"}']
    assert taken(schema, *texts) == texts[:1]


PATTERNS = [
    "", "a", "^a", "a$", "^a$", "^a|b$", "(^a|b)c", "(?:^|x)a(?:$|z)", "^(a|ab)*$", "^[^a]$", '^[^"]*$',
    r"^[^\\]+$", r"^\d+$", r"\D", r"^\w+$", r"^\W$", r"\s", r"^\S+$", "^.$", "^(?s:.)$", "(?i)^É", r"\.",
    "^$", "a{2,3}b", r"^[\s\S]{2}$", r"\/", r"^\u00e9$",
]  # fmt: skip
STRINGS = [
    "", "a", "b", "ab", "ba", "aab", "aaaab", "ac", "xac", "xbc", "xa", "yxa", "xaz", "ya", '"', 'a"', "\\",
    "1", "12", "٣", "é", "É", "éa", "_", "-", " ", "\n", "a\n", "\t\t", "\u2028", "\xa0", ".", "/", "😀",
    "😀😀",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_where_it_does_under_ascii_and_unicode(pattern: str) -> None:
    state = start({"type": "string", "pattern": pattern})
    strict = pattern.replace("$", r"\Z")  # to Python, $ is also before a line break at the end
    for text in STRINGS:
        expected = all(re.search(strict, text, flags) for flags in (re.ASCII, re.UNICODE))
        assert accepts(state, json.dumps(text, ensure_ascii=False)) == expected, text


def test_what_a_pattern_leaves_out_is_not_let_in_escaped() -> None:
    schema = {"type": "string", "pattern": '^[^"]{1,3}$', "minLength": 2}
    assert taken(schema, r'"\""', r'"a\""', r'"\\\n"', '"ab"', '"a"') == [r'"\\\n"', '"ab"']


def test_names_under_a_pattern() -> None:
    schema = {"patternProperties": {"^a$": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    assert taken(schema, '{"a":1}', '{"a":"x"}', '{"b":"x"}', '{"b":1}') == ['{"a":1}', '{"b":"x"}']
    # The name is "a" and a line break, where Python and the standard differ about ^a$.
    assert taken(schema, r'{"a\n":1}', r'{"a\n":"x"}') == []


# --- numbers


def decimal_texts(rng: random.Random, *near: float) -> set[str]:
    """Numbers around others, in plain decimals and with zeros after them."""
    found = {"-0", "0.0", "1e1", "01", "1.", ".5", "+1", "-", "0." + "0" * 30 + "1"}
    for number in (Decimal(repr(each)) for each in near):
        for places in range(5):
            unit = Decimal(1).scaleb(-places)
            found |= {format(number.quantize(unit) + step * unit, "f") for step in range(-2, 3)}
    return found


def test_bounds_are_exact_in_decimals_and_in_floats() -> None:
    rng = random.Random(3)
    n_inside = 0
    for _ in range(150):
        scale = rng.choice([1, 3, 2000])
        low, high = sorted(round(rng.uniform(-scale, scale), rng.randint(0, 3)) for _ in range(2))
        low = rng.choice([low, 0]) if high > 0 else low
        rules = rng.choice([{"minimum": low}, {"exclusiveMinimum": low}, {}])
        rules |= rng.choice([{"maximum": high}, {"exclusiveMaximum": high}])
        if low == high:
            continue
        state = start({"type": "number"} | rules)

        def inside(x: Any, number: type, rules: dict[str, float] = rules) -> bool:
            bounds = {name: number(repr(limit)) for name, limit in rules.items()}
            return bool(
                bounds.get("minimum", x) <= x <= bounds.get("maximum", x)
                and ("exclusiveMinimum" not in bounds or x > bounds["exclusiveMinimum"])
                and ("exclusiveMaximum" not in bounds or x < bounds["exclusiveMaximum"])
            )

        for text in decimal_texts(rng, low, high, 0.0, rng.uniform(-scale, scale)):
            if accepts(state, text):
                json.loads(text)
                assert inside(Decimal(text), Decimal), (rules, text)
                assert inside(float(text), float), (rules, text)
                n_inside += 1
            elif re.fullmatch(r"-?(0|[1-9]\d*)(\.\d{0,20}[1-9])?", text) and text != "-0":
                assert not inside(Decimal(text), Decimal), (rules, text)
    assert n_inside > 3000


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"type": "integer"}, ["0", "-12", "9" * 30], ["1.0", "1e2", "01", "-"]),
        ({"type": "integer", "exclusiveMinimum": 2, "maximum": 4.5}, ["3", "4"], ["2", "5", "3.0"]),
        ({"type": "number"}, ["0", "-0.50", "1e-7", "2E+300"], [".5", "1.", "00"]),
        ({"exclusiveMinimum": 0, "maximum": 0.5, "type": "number"}, ["0.5", "0.001"], ["0", "0.0", "0.6"]),
        ({"type": "number", "exclusiveMaximum": 2}, ["1.9", "1.99", "-7"], ["2", "2.0", "1." + "9" * 20]),
        ({"type": "integer", "multipleOf": 3}, ["0", "-6", "9"], ["1", "-2", "3.0"]),
        ({"type": "integer", "multipleOf": 1.5}, ["0", "3"], ["1", "1.5"]),
        ({"type": "number", "multipleOf": 0.01}, ["0.07", "1.5", "-2"], ["0.075", "1e1"]),
        ({"type": "number", "multipleOf": 0.25}, ["0.25", "0.50", "3"], ["0.30", "0.26"]),
        ({"const": 1.0}, ["1"], ["1.0", "true", "1e0"]),
        ({"enum": [0.1, 1e-7, -0.0]}, ["0.1", "0.0000001", "0"], ["0.10", "1e-7", "false"]),
        ({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}, {"minimum": 1}]}, ["12", "24"], ["4", "6", "0"]),
    ],
)  # fmt: skip
def test_numbers(schema: Any, inside: list[str], outside: list[str]) -> None:
    assert taken(schema, *inside, *outside) == inside


# --- schemas as people write them


def test_a_tagged_union_as_pydantic_writes_it() -> None:
    def animal(name: str, other: dict[str, Any]) -> dict[str, Any]:
        properties = {"kind": {"const": name, "default": name, "title": "Kind", "type": "string"}, **other}
        return {"properties": properties, "required": ["kind", *other], "title": name, "type": "object"}

    schema = {
        "$defs": {"Cat": animal("cat", {"lives": {"type": "integer"}}), "Dog": animal("dog", {})},
        "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    }
    texts = ['{"kind":"cat","lives":9}', '{"kind":"dog"}', '{"kind":"cat"}', '{"kind":"cow"}']
    assert taken(schema, *texts) == texts[:2]


def test_a_tree_that_refers_to_itself() -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    }
    texts = ['{"v":1}', '{"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]}', '{"v":1,"kids":[{}]}', '{"kids":[]}']
    assert taken(schema, *texts) == texts[:2]


def test_references_go_by_json_pointers() -> None:
    schema = {
        "$defs": {"a/b": {"const": 1}, "m~n": {"const": 2}, "per%cent": {"const": 3}, "é": {"const": 4}},
        "properties": {"": {"const": 5}},
        "prefixItems": [{"$ref": f"#/{place}"} for place in ("$defs/a~1b", "$defs/m~0n", "$defs/per%25cent",
                                                            "$defs/%C3%A9", "properties/", "prefixItems/0")],
    }  # fmt: skip
    assert taken(schema, "[1,2,3,4,5,1]", "[1,2,3,4,5,2]", "[2]", "[1,2,3,4,1]") == ["[1,2,3,4,5,1]"]


def test_notes_say_nothing() -> None:
    notes = {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/a",
        "title": "t", "description": "d", "default": 3, "examples": [3], "$comment": "c", "deprecated": True,
        "readOnly": True, "writeOnly": False, "contentMediaType": "text/html", "contentEncoding": "base64",
        "$anchor": "here", "x-mine": {"type": 3}, "uniqueItems": False, "unevaluatedProperties": True,
    }  # fmt: skip
    assert taken({**notes, "type": "string"}, '"a"', "3", "[1,1]") == ['"a"']
    assert taken(notes, '"a"', "3", "[1,1]") == ['"a"', "3", "[1,1]"]


def test_what_can_have_no_end_is_not_begun() -> None:
    endless = {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 1}
    schema = {"$defs": {"e": endless}, "type": "object", "properties": {"a": {"$ref": "#/$defs/e"}, "b": {}}}
    assert taken(schema, '{"b":1}', "{}") == ['{"b":1}', "{}"]
    state = start(schema)
    assert not state.advance_bytes(b'{"a"')
