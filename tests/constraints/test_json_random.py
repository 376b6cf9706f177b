"""`JsonSchema` on schemas made at random, with the package `jsonschema` as the judge.

Numbers are compared as decimals, in the schema and in the text: what is exact must not look wrong for the
judge's rounding.
"""

import decimal
import functools
import itertools
import json
import random
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from constraints.schema_cases import BYTES, LETTERS, NAMES, accepts, random_case, started, value

from hfppl import CachedCausalLM
from hfppl.constraints import State
from hfppl.constraints.json_schema import JsonSchema


def decimals(text: str) -> Any:
    def read(number: str) -> Any:
        try:
            return Decimal(number)
        except decimal.InvalidOperation:  # an exponent beyond all bounds
            return float(number)

    return json.loads(text, parse_float=read)


def judge(schema: Any) -> Any:
    """Tells whether a text of JSON is valid."""
    validator = jsonschema.Draft202012Validator(
        decimals(json.dumps(schema)), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    return lambda text: validator.is_valid(decimals(text))


def written(found: Any) -> str:
    """A value as the constraint writes it, if its properties are in order."""

    def plain(inner: Any) -> Any:
        if isinstance(inner, float) and inner.is_integer():
            return int(inner)
        if isinstance(inner, list):
            return [plain(item) for item in inner]
        return {name: plain(item) for name, item in inner.items()} if isinstance(inner, dict) else inner

    return json.dumps(plain(found), ensure_ascii=False, separators=(",", ":"))


# --- walks through masks


@pytest.fixture(scope="module")
def real() -> CachedCausalLM:
    return CachedCausalLM.from_pretrained(backend="mock")


def walk(state: State, lm: CachedCausalLM, closing: list[int], rng: random.Random) -> str:
    """A text of allowed tokens, chosen at random, after 40 of them rather such as bring it to its end."""
    text = b""
    for step in range(1000):
        if state.can_end and (rng.random() < 0.3 or step > 40):
            return text.decode()
        mask = state.text_mask()
        if not mask:
            assert state.can_end, text
            return text.decode()
        nearer = [i for i in closing if i in mask]
        if nearer and rng.random() < (0.6 if step > 40 else 0.15):
            token = rng.choice(nearer)
        else:
            ids = mask.ids
            few = [int(ids[rng.randrange(len(ids))]) for _ in range(20 if step > 40 else 1)]
            token = min(few, key=lambda i: len(lm.byte_vocab[i]))
        assert state.advance(token)
        text += lm.byte_vocab[token]
    raise AssertionError(f"no end after {text[-100:]!r}")


@pytest.mark.model
@pytest.mark.parametrize(
    ("seeds", "refused"),
    [(range(200), 26), pytest.param(range(200, 5000), 458, marks=pytest.mark.long)],
)
def test_texts_are_valid_and_valid_values_have_texts(
    real: CachedCausalLM, seeds: Iterable[int], refused: int
) -> None:
    closing = [real.byte_vocab.index(entry) for entry in (b'"', b"]", b"}", b"null", b"0", b"@", b":")]
    n_refused = 0
    for seed in seeds:
        schema, sample, keyword = random_case(seed)
        if keyword is not None:
            n_refused += 1
            assert f"{keyword!r} at #" in str(started(schema)), seed
            continue
        start = JsonSchema(schema).start(real)
        is_valid = judge(schema)
        rng = random.Random(seed)
        for _ in range(3):
            text = walk(start.copy(), real, closing, rng)
            assert is_valid(text), (seed, text)
            found = sample(rng)
            assert is_valid(json.dumps(found)), (seed, found)
            assert accepts(start, written(found)), (seed, found)
    assert n_refused == refused


# --- valid texts, changed


def changed(found: Any, rng: random.Random) -> Any:
    """A value like another, but for something in it."""
    chance = rng.random()
    if chance < 0.2 or found is None or isinstance(found, bool):
        return value(rng)
    if isinstance(found, str):
        i = rng.randint(0, len(found))
        return rng.choice(
            [found[:i] + found[i + 1 :], found[:i] + rng.choice(LETTERS) + found[i:], found * 2]
        )
    if isinstance(found, int | float):
        return rng.choice([found + 1, found - 1, -found, found + 0.5, found * 100, found + 0.01])
    places = list(found) if isinstance(found, dict) else list(range(len(found)))
    copy = found.copy()
    if places and chance < 0.7:
        place = rng.choice(places)
        copy[place] = changed(found[place], rng)
    elif places and chance < 0.85:
        del copy[rng.choice(places)]
    elif isinstance(found, dict):
        copy[rng.choice([*NAMES, "extra", "needed", "x_2", "7", "a", "b", "value", "kind"])] = value(rng)
    else:
        copy.insert(rng.randint(0, len(found)), value(rng))
    return copy


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 2500), marks=pytest.mark.long)])
def test_what_is_invalid_has_no_text(seeds: Iterable[int]) -> None:
    rng = random.Random(0)
    n_invalid = n_other = 0
    for seed in seeds:
        schema, sample, keyword = random_case(seed)
        if keyword is not None:
            continue
        start = JsonSchema(schema).start(BYTES)
        is_valid = judge(schema)
        for _ in range(10):
            text = written(changed(changed(sample(rng), rng), rng))
            valid = is_valid(text)
            n_invalid += not valid
            assert valid or not accepts(start, text), (seed, text)
            i = rng.randint(0, len(text))
            piece = rng.choice(' ,"}]{[:0123-.eE\\u\n\t')
            for other in (text[:i] + text[i + 1 :], text[:i] + piece + text[i:], text[:i] + text[i - 9 :]):
                if accepts(start, other):
                    n_other += 1
                    assert is_valid(other), (seed, other)
    assert n_invalid > 400
    assert n_other > 100


# --- all values of a small world

LEAVES = [None, True, False, 0, 1, 2, -1, 1.5, 0.2, 2.75, "", "a", "b", "ab", "ba", "aé", [], {}]
LETTER_NAMES = ["a", "b", "aa"]
KEY_PATTERNS = ["^a", "b$", "a", "^[ab]+$"]
TYPES = ["object", "array", "string", "number", "integer", "null", ["string", "null"], ["object", "array"]]


@functools.cache
def world() -> list[tuple[str, list[str]]]:
    """Values as JSON, each with its texts in all orders of properties."""
    rng = random.Random(5)
    found: list[Any] = [*LEAVES]
    for size in (1, 1, 2, 2, 3):
        for _ in range(10):
            found.append([rng.choice(found) for _ in range(min(size, 2))])
            found.append({name: rng.choice(found[: len(LEAVES)]) for name in rng.sample(LETTER_NAMES, size)})
    return [(json.dumps(each), [written(order) for order in orders(each)]) for each in found]


def orders(found: Any) -> list[Any]:
    if isinstance(found, list):
        return [list(items) for items in itertools.product(*map(orders, found))]
    if isinstance(found, dict):
        names = itertools.permutations(found)
        return [
            dict(zip(order, inner, strict=True))
            for order in names
            for inner in itertools.product(*(orders(found[name]) for name in order))
        ]
    return [found]


def any_schema(rng: random.Random, depth: int) -> Any:
    """A schema of any keywords together, whether or not that makes sense."""

    def inner() -> Any:
        return any_schema(rng, depth - 1) if depth else rng.choice([True, False, {"type": "integer"}])

    def several() -> list[Any]:
        return [inner() for _ in range(rng.randint(1, 3))]

    if rng.random() < 0.1:
        return rng.choice([True, {}, False])
    keywords = {
        "type": lambda: rng.choice(TYPES),
        "enum": lambda: [*rng.sample(LEAVES, 3), ["a"], {"a": 1, "b": None}],
        rng.choice(["minimum", "exclusiveMinimum"]): lambda: rng.choice([-1, 0, 0.2, 1, 1.5]),
        rng.choice(["maximum", "exclusiveMaximum"]): lambda: rng.choice([0, 0.25, 1, 2.8, 3]),
        "multipleOf": lambda: rng.choice([1, 2, 0.5, 0.1]),
        "minLength": lambda: rng.randint(0, 2),
        "maxLength": lambda: rng.randint(0, 3),
        "pattern": lambda: rng.choice(KEY_PATTERNS),
        "items": inner,
        "prefixItems": several,
        "minItems": lambda: rng.randint(0, 2),
        "maxItems": lambda: rng.randint(0, 3),
        "properties": lambda: {name: inner() for name in rng.sample(LETTER_NAMES, 2)},
        "required": lambda: rng.sample(LETTER_NAMES, rng.randint(1, 2)),
        "additionalProperties": inner,
        "patternProperties": lambda: {rng.choice(KEY_PATTERNS): inner()},
        "minProperties": lambda: rng.randint(0, 1),
        "maxProperties": lambda: rng.randint(0, 3),
    }
    if depth:
        keywords |= {"allOf": several, "anyOf": several, "$ref": lambda: "#/$defs/x"}
        keywords |= {"oneOf": lambda: [{"type": "string"}, inner()]} if rng.random() < 0.2 else {}
    return {name: keywords[name]() for name in rng.sample(sorted(keywords), rng.randint(1, 5))}


@pytest.mark.parametrize(
    ("seeds", "taken"), [(range(60), 40), pytest.param(range(60, 2000), 800, marks=pytest.mark.long)]
)
def test_a_value_has_a_text_exactly_if_it_is_valid(seeds: Iterable[int], taken: int) -> None:
    n_taken = 0
    for seed in seeds:
        rng = random.Random(seed)
        schema = {"$defs": {"x": any_schema(rng, 1)}, "allOf": [any_schema(rng, 2)]}
        if "$ref" in json.dumps(schema["$defs"]):
            continue  # the judge has no answer to a schema that is itself
        is_valid = judge(schema)
        start = started(schema)
        if isinstance(start, str):
            if "Unsatisfiable" in start:
                assert not any(is_valid(found) for found, _ in world()), (seed, start)
            continue
        n_taken += 1
        for found, texts in world():
            assert any(accepts(start, text) for text in texts) == is_valid(found), (seed, found)
    assert n_taken >= taken
