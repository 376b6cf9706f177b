"""The few forms that a JSON schema is reduced to, and what can be known of them.

A schema is true, false, or one of the forms here. Schemas refer to each other by their place, the tokens
of a JSON pointer; `places` is all schemas of a document by theirs.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

Place: TypeAlias = tuple[str, ...]

_KINDS = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})
_DEPTH = (
    32  # of references and parts followed, before it is given up to show that two schemas exclude each other
)


@dataclass(frozen=True, slots=True)
class Ref:
    """What stands at a place."""

    place: Place


@dataclass(frozen=True, slots=True)
class Values:
    """One of a list of values."""

    values: list[Any]


@dataclass(frozen=True, slots=True)
class AllOf:
    """What all parts hold of."""

    parts: list["Schema"]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """What at least one option holds of."""

    options: list["Schema"]


@dataclass(slots=True)
class Group:
    """Keywords about a value itself, and about what it holds.

    Attributes:
        keywords: those without schemas in them, as in a JSON schema; `type` is a list.
        prefix: schemas of the first items.
        items: schema of the others.
        properties: schemas of properties, by name.
        patterns: schemas of properties, by a pattern of the name.
        additional: schema of the other properties.
    """

    keywords: dict[str, Any] = field(default_factory=dict)
    prefix: list["Schema"] = field(default_factory=list)
    items: "Schema" = True
    properties: dict[str, "Schema"] = field(default_factory=dict)
    patterns: dict[str, "Schema"] = field(default_factory=dict)
    additional: "Schema" = True

    @property
    def types(self) -> list[str]:
        """What `type` allows."""
        return list(self.keywords.get("type", ("null", "boolean", "object", "array", "number", "string")))


Schema: TypeAlias = bool | Ref | Values | AllOf | AnyOf | Group


def pointer(place: Place) -> str:
    """A place as a JSON pointer."""
    return "#" + "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in place)


def referred_place(reference: Any) -> Place:
    """The place that `$ref` names; a ValueError with the reason if it names none in the same document."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise ValueError(
            f"{reference!r} leads out of the schema: copy what it names into $defs, and write #/$defs/name"
        )
    fragment = unquote(reference[1:])
    if fragment and not fragment.startswith("/"):
        raise ValueError(f"{reference!r} names an anchor: write its place instead, as in #/$defs/name")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in fragment.split("/")[1:])


def places_with_values(places: Mapping[Place, Schema], wanted: Iterable[Place]) -> set[Place]:
    """Of the places wanted, those whose schema some value satisfies, as far as references decide it.

    A schema that refers to itself has a value only if one can be built up from schemas that have.
    """
    found: set[Place] = set()
    rest = set(wanted)
    while new := {place for place in rest if _has_value(places[place], found)}:
        found |= new
        rest -= new
    return found


def _has_value(schema: Schema, known: set[Place]) -> bool:
    """Whether a value may satisfy a schema, if references lead to values at the `known` places only."""
    match schema:
        case bool():
            return schema
        case Ref(place):
            return place in known
        case Values():
            return True
        case AllOf(parts):
            return all(_has_value(part, known) for part in parts)
        case AnyOf(options):
            return any(_has_value(option, known) for option in options)
    return any(_has_value_of(kind, schema, known) for kind in schema.types)


def _has_value_of(kind: str, group: Group, known: set[Place]) -> bool:
    if kind == "array":
        length = group.keywords.get("minItems", 0)
        needed = group.prefix[:length]
        if length > len(group.prefix):
            needed = [*needed, group.items]
    elif kind == "object":
        names = group.keywords.get("required", ())
        other = group.additional if not group.patterns else True  # which pattern a name matches is left open
        needed = [group.properties.get(name, other) for name in names]
    else:
        return True
    return all(_has_value(schema, known) for schema in needed)


def exclude_each_other(a: Schema, b: Schema, places: Mapping[Place, Schema]) -> bool:
    """Whether it can be shown that no value satisfies both schemas.

    It is shown by types, by lists of values, by bounds of numbers, and by a property that one of the two
    requires and about which they exclude each other.
    """
    return _apart(a, b, places, _KINDS, _DEPTH)


def _apart(a: Schema, b: Schema, places: Mapping[Place, Schema], kinds: frozenset[str], depth: int) -> bool:
    """Whether no value of one of the `kinds` satisfies both schemas."""
    if depth == 0:
        return False
    kinds &= _kinds(a, places, depth) & _kinds(b, places, depth)
    if not kinds:
        return True
    for x, y in ((a, b), (b, a)):
        match x:
            case Ref(place):
                return _apart(places[place], y, places, kinds, depth - 1)
            case AnyOf(options):
                return all(_apart(option, y, places, kinds, depth - 1) for option in options)
    for x, y in ((a, b), (b, a)):
        if isinstance(x, AllOf):
            return any(_apart(part, y, places, kinds, depth - 1) for part in x.parts)
    if isinstance(a, Values) and isinstance(b, Values):
        return not {_text(value) for value in a.values} & {_text(value) for value in b.values}
    if not isinstance(a, Group) or not isinstance(b, Group):
        return False
    if kinds <= {"integer", "fraction"}:
        return _below(a, b) or _below(b, a)
    required = [*a.keywords.get("required", ()), *b.keywords.get("required", ())]
    return kinds == {"object"} and any(
        _apart(_property(a, name), _property(b, name), places, _KINDS, depth - 1) for name in required
    )


def _kinds(schema: Schema, places: Mapping[Place, Schema], depth: int) -> frozenset[str]:
    """The kinds of values that may satisfy a schema, or more."""
    if depth == 0 or schema is True:
        return _KINDS
    match schema:
        case Ref(place):
            return _kinds(places[place], places, depth - 1)
        case Values(values):
            return frozenset(_kind(value) for value in values)
        case AllOf(parts):
            return _KINDS.intersection(*(_kinds(part, places, depth - 1) for part in parts))
        case AnyOf(options):
            return frozenset().union(*(_kinds(option, places, depth - 1) for option in options))
        case Group():
            return frozenset(
                kind
                for name in schema.types
                for kind in (("integer", "fraction") if name == "number" else (name,))
            )
    return frozenset()


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "fraction"
        case list():
            return "array"
    return "object"


def _text(value: Any) -> str:
    """The same for equal values alone: true is not 1 here."""
    return json.dumps(value, sort_keys=True)


def _below(a: Group, b: Group) -> bool:
    return bool(a.keywords.get("maximum", float("inf")) < b.keywords.get("minimum", float("-inf")))


def _property(group: Group, name: str) -> Schema:
    """A schema that holds of a property."""
    return group.properties.get(name, True if group.patterns else group.additional)
