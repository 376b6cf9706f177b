"""`JsonSchema`: what is refused, by name and place, and inputs on which such constraints have gone wrong."""

import json
from typing import Any

import pytest
from constraints.schema_cases import BYTES, accepts

from hfppl import CachedCausalLM
from hfppl.constraints import JsonSchema
from hfppl.errors import ConstraintError

X_REQUIRED = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string", "maxLenght": 3}, r"'maxLenght' at #: .*did you mean 'maxLength'"),
        ({"properties": {"a": {"not": {}}}}, "'not' at #/properties/a: is not supported"),
        ({"if": {}, "then": {}}, "'if' at #"),
        ({"items": {"contains": {}}}, "'contains' at #/items"),
        ({"uniqueItems": True}, "'uniqueItems' at #"),
        ({"propertyNames": {"maxLength": 2}}, "'propertyNames' at #"),
        ({"dependentRequired": {"a": ["b"]}}, "'dependentRequired' at #"),
        ({"unevaluatedProperties": False}, "'unevaluatedProperties' at #"),
        ({"$dynamicRef": "#a"}, "'\\$dynamicRef' at #"),
        ({"prefixItems": [{}], "additionalItems": False}, "'additionalItems' at #: is no keyword"),
        ({"dependencies": {}}, "'dependencies' at #: is no keyword"),
        ({"nullable": True}, "'nullable' at #: is no keyword"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "'\\$schema' at #"),
        ({"$ref": "#/$defs/missing"}, "'\\$ref' at #: there is no schema at #/\\$defs/missing"),
        ({"$ref": "https://example.com/other.json"}, "'\\$ref' at #"),
        ({"allOf": [{"$ref": "other.json"}]}, "'\\$ref' at #/allOf/0"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, "'oneOf' at #: the options 0 and 1"),
        ({"format": "iri"}, "'format' at #"),
        ({"pattern": "(?!ab)[a-c]{2}"}, "'pattern' at #"),
        ({"pattern": "(a)\\1"}, "'pattern' at #"),
        ({"pattern": "("}, "'pattern' at #"),
        ({"items": [{}, {}]}, "'items' at #"),
        ({"type": "int"}, "'type' at #"),
        ({"type": []}, "'type' at #"),
        ({"enum": []}, "'enum' at #"),
        ({"properties": {"x": {"enum": []}}, "required": ["x"]}, "'enum' at #/properties/x"),
        ({"minLength": -1}, "'minLength' at #"),
        ({"minLength": "1"}, "'minLength' at #"),
        ({"maximum": "3"}, "'maximum' at #"),
        ({"multipleOf": 0}, "'multipleOf' at #"),
        ({"required": "x"}, "'required' at #"),
        ({"required": ["x", 3]}, "'required' at #"),
        ({"properties": []}, "'properties' at #"),
        ({"properties": {"a": 3}}, "'a' at #/properties|'properties' at #"),
        ({"anyOf": []}, "'anyOf' at #"),
        ({"$defs": {"unused": {"not": {}}}}, r"'not' at #/\$defs/unused"),
    ],
)
def test_what_is_not_supported_is_named_with_its_place(schema: Any, named: str) -> None:
    with pytest.raises(ConstraintError, match=named):
        JsonSchema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "object", "properties": {"x": False}, "required": ["x"]},
        {"const": 1, "enum": [2, 3]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    ],
)
def test_a_schema_that_no_value_satisfies_is_refused(schema: Any) -> None:
    with pytest.raises(ConstraintError, match="JSON schema"):
        JsonSchema(schema)


def test_every_byte_of_a_token_counts() -> None:
    tokens = ["{}", '{"', "x", '":', "{", "}", ",}", "0.98", "0999", "3", "3.5.5", "12", "<end>"]
    lm = CachedCausalLM.from_function(tokens, lambda ids: [0.0] * len(tokens), eos_token_ids=[12])

    def allowed(text: str) -> set[str]:
        state = JsonSchema(X_REQUIRED | {"additionalProperties": False}, max_blanks=0).start(lm)
        assert state.advance_bytes(text.encode())
        return {tokens[i] for i in state.mask()}

    assert allowed("") == {'{"', "{"}
    assert allowed('{"x":') == {"3", "12"}
    assert allowed('{"x":3') == {"3", "12", "0999", "}"}
    assert allowed('{"x":0') == {"}"}
    assert allowed('{"x":3}') == {"<end>"}


def test_special_tokens_are_no_text_inside_a_string() -> None:
    tokens = ["</s>", '"', "<", "/", "s", ">", "a"]
    lm = CachedCausalLM.from_function(tokens, lambda ids: [0.0] * 7, eos_token_ids=[0])
    state = JsonSchema({"type": "string"}).start(lm)
    for token_id in (1, 2, 3, 4, 5):
        assert {tokens[i] for i in state.mask()} == ({'"'} if token_id == 1 else set(tokens[1:]))
        state.advance(token_id)
    assert not state.can_end
    state.advance(1)
    assert {tokens[i] for i in state.mask()} == {"</s>"}


@pytest.mark.parametrize(
    ("schema", "texts", "n_valid"),
    [
        (
            {"type": "object", "patternProperties": {"^n": {"type": "integer"}}},
            ['{"n":1}', '{"m":"x"}', '{"n":"x"}'],
            2,
        ),
        ({"type": "object", "required": ["a"]}, ['{"a":1}', "{}", '{"b":1}'], 1),
        ({"patternProperties": {"^n": {"type": "integer"}}}, ['{"n":1}', "3", '{"n":"x"}'], 2),
        ({"required": ["a"]}, ['{"a":1}', "[]", "{}"], 2),
        ({"minimum": 3}, ["3", '"x"', "2"], 2),
        ({"maxLength": 1}, ['"a"', "12", '"ab"'], 2),
    ],
)
def test_a_keyword_counts_with_and_without_a_type(schema: Any, texts: list[str], n_valid: int) -> None:
    state = JsonSchema(schema).start(BYTES)
    assert [text for text in texts if accepts(state, text)] == texts[:n_valid]


@pytest.mark.model
def test_nested_arrays_of_bounded_strings_begin_at_once() -> None:
    strings = {"type": "array", "items": {"type": "string", "maxLength": 100}, "maxItems": 15}
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"type": "array", "items": strings, "maxItems": 15} for i in range(10)},
        "required": [f"p{i}" for i in range(10)],
        "additionalProperties": False,
    }
    lm = CachedCausalLM.from_pretrained(backend="mock")
    state = JsonSchema(schema).start(lm)
    assert 0 < len(state.mask()) < 10
    state.advance_bytes(b'{"p0":[["')
    assert len(state.mask()) > 30_000
    text = json.dumps({f"p{i}": [["x" * 100] * 15] for i in range(10)})
    assert accepts(JsonSchema(schema).start(BYTES), text)
    assert not accepts(JsonSchema(schema).start(BYTES), text.replace("x" * 100, "x" * 101))
