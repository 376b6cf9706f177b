"""From a JSON schema to one of the same values that llguidance takes for what it says.

What llguidance leaves out, or takes for something else, either gets another form here or is refused.
"""

import difflib
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConstraintError
from . import json_values as values
from .json_forms import (
    AllOf,
    AnyOf,
    Group,
    Place,
    Ref,
    Schema,
    Values,
    exclude_each_other,
    places_with_values,
    pointer,
    referred_place,
)

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
NOTES = {  # what says nothing about which values satisfy a schema
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
    "contentEncoding", "contentMediaType", "contentSchema", "$anchor", "$dynamicAnchor",
    "discriminator",  # of OpenAPI: where to look first for what `oneOf` says anyway
}  # fmt: skip
_REFUSED = {
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames",
    "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef",
    "$vocabulary",
}  # fmt: skip
_WITHOUT_EFFECT = {"uniqueItems": False, "unevaluatedItems": True, "unevaluatedProperties": True}
_VALUES: dict[str, Callable[[Any], Any]] = {
    "type": values.types,
    "multipleOf": values.multiple,
    "required": values.names,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), values.count),
    **dict.fromkeys(("minProperties", "maxProperties"), values.count),
}
_BOUNDS = {  # the inclusive keyword, whether it is a lower one, whether the bound itself is excluded
    "minimum": ("minimum", True, False),
    "exclusiveMinimum": ("minimum", True, True),
    "maximum": ("maximum", False, False),
    "exclusiveMaximum": ("maximum", False, True),
}
_KNOWN = [
    *NOTES, *_REFUSED, *_VALUES, *_BOUNDS, "const", "enum", "pattern", "format", "items", "prefixItems",
    "properties", "patternProperties", "additionalProperties", "allOf", "anyOf", "oneOf", "$ref", "$defs",
    "definitions", "$schema", "$id",
]  # fmt: skip


class Subset:
    """A schema, and each of the schemas inside it, in forms that llguidance can be given.

    Attributes:
        places: the reduced schemas, by where they stand.
    """

    def __init__(self, schema: Any) -> None:
        """Raises: ConstraintError, naming keyword and place, for what has no such form."""
        self.places: dict[Place, Schema] = {}
        self._refs: list[tuple[Place, Place]] = []
        self._one_ofs: list[tuple[Place, list[Schema]]] = []
        self._multiples: list[tuple[Place, int | float]] = []
        self._reduce(schema, ())
        for at, target in self._refs:
            if target not in self.places:
                raise refusal("$ref", at, f"there is no schema at {pointer(target)}: correct the reference")
        self._possible = places_with_values(self.places, (target for _, target in self._refs))
        self._check_multiples()
        self._check_one_ofs()

    def document(self, place: Place = ()) -> dict[str, Any]:
        """The schema at a place, and all that it refers to, for llguidance."""
        names: dict[Place, str] = {}
        root = self._written(self.places[place], names)
        definitions: dict[str, Any] = {}
        while len(definitions) < len(names):
            target, name = list(names.items())[len(definitions)]
            definitions[name] = self._written(self.places[target], names)
        return {"$defs": definitions, "allOf": [root]}

    def _written(self, schema: Schema, names: dict[Place, str]) -> Any:
        def write(inner: Schema) -> Any:
            return self._written(inner, names)

        def write_all(inner: Mapping[str, Schema]) -> dict[str, Any]:
            return {name: write(part) for name, part in inner.items()}

        match schema:
            case bool():
                return schema
            case Ref(target):
                if target not in self._possible:
                    return False  # llguidance would begin what cannot come to an end
                return {"$ref": f"#/$defs/{names.setdefault(target, str(len(names)))}"}
            case Values(found):
                return {"enum": found}
            case AllOf(parts):
                return {"allOf": [write(part) for part in parts]}
            case AnyOf(options):
                return {"anyOf": [write(option) for option in options]}
        written = {
            "prefixItems": [write(item) for item in schema.prefix],
            "items": write(schema.items),
            "properties": write_all(schema.properties),
            "patternProperties": write_all(schema.patterns),
            "additionalProperties": write(schema.additional),
        }
        return schema.keywords | {key: part for key, part in written.items() if part not in (True, [], {})}

    # --- the keywords of one schema

    def _reduce(self, schema: Any, at: Place) -> Schema:
        if isinstance(schema, bool):
            reduced: Schema = schema
        elif isinstance(schema, dict):
            reduced = self._reduce_keywords(schema, at)
        else:
            keyword = at[-1] if at else "schema"
            raise refusal(keyword, at[:-1], f"a schema is an object, true or false, not {schema!r}")
        self.places[at] = reduced
        return reduced

    def _reduce_keywords(self, schema: dict[str, Any], at: Place) -> Schema:
        group = Group()
        parts: list[Schema] = []
        first = 0  # the parts before those: the properties of the group come after theirs
        for keyword, value in schema.items():
            if keyword == "properties":
                first = len(parts)
            if not self._put(group, keyword, value, at):
                parts += self._parts(keyword, value, at)
        if group.keywords.get("minProperties", 0) > len(group.keywords.get("required", ())) + 1:
            raise refusal(
                "minProperties",
                at,
                "names that are not required may come twice in the texts here, and so cannot be counted: "
                "list all of them but one in 'required'",
            )
        if group.additional is not False:
            # To Python, $ is also before a line break at the very end: no name is to depend on that.
            broken = [pattern.replace("$", r"\u{A}$") for pattern in group.patterns if "$" in pattern]
            group.patterns.update(dict.fromkeys(broken, False))
        if group != Group():
            numbers = values.left_out(group.keywords)
            parts.insert(first, AnyOf([group, Values(numbers)]) if numbers else group)
        if len(parts) < 2:
            return parts[0] if parts else True
        return AllOf(parts)

    def _put(self, group: Group, keyword: str, value: Any, at: Place) -> bool:
        """Put a keyword into a group; returns whether it belongs there."""
        if keyword in _VALUES:
            group.keywords[keyword] = self._value(_VALUES[keyword], value, keyword, at)
            if keyword == "multipleOf":
                self._multiples.append((at, group.keywords[keyword]))
            return True
        if keyword in _BOUNDS:
            name, lower, exclusive = _BOUNDS[keyword]
            read = functools.partial(values.bound, lower=lower, exclusive=exclusive)
            limit = self._value(read, value, keyword, at)
            group.keywords[name] = (max if lower else min)(limit, group.keywords.get(name, limit))
            return True
        match keyword:
            case "items":
                group.items = self._reduce(value, (*at, keyword))
            case "additionalProperties":
                group.additional = self._reduce(value, (*at, keyword))
            case "prefixItems":
                group.prefix = self._list(value, keyword, at)
            case "properties":
                group.properties = self._named(value, keyword, at, values.spelled)
            case "patternProperties":
                group.patterns = self._named(value, keyword, at, values.name_pattern)
            case _:
                return False
        return True

    def _parts(self, keyword: str, value: Any, at: Place) -> list[Schema]:
        """What a keyword says, if it does not belong into a group."""
        match keyword:
            case "const":
                return [Values([self._value(values.constant, value, keyword, at)])]
            case "enum":
                return [Values(self._value(values.constants, value, keyword, at))]
            case "pattern":
                return [
                    Group({"pattern": found}) for found in self._value(values.patterns, value, keyword, at)
                ]
            case "format":
                found = self._value(values.format_patterns, value, keyword, at)
                return [Group({"pattern": pattern}) for pattern in found]
            case "allOf" | "anyOf" | "oneOf":
                schemas = self._list(value, keyword, at)
                if not schemas:
                    raise refusal(keyword, at, "is a list of schemas, at least one")
                if keyword == "oneOf":
                    self._one_ofs.append((at, schemas))
                return schemas if keyword == "allOf" else [AnyOf(schemas)]
            case "$ref":
                target = self._value(referred_place, value, keyword, at)
                self._refs.append((at, target))
                return [Ref(target)]
            case "$defs" | "definitions":
                self._named(value, keyword, at, str)
            case _:
                self._check_note(keyword, value, at)
        return []

    def _check_note(self, keyword: str, value: Any, at: Place) -> None:
        """Refuse a keyword, unless it says nothing about which values satisfy the schema."""
        if keyword in NOTES or keyword.startswith("x-"):
            return
        if keyword in _WITHOUT_EFFECT and value is _WITHOUT_EFFECT[keyword]:
            return
        if keyword == "$schema":
            if not isinstance(value, str) or value.rstrip("#") != _DRAFT:
                raise refusal(
                    keyword, at, f"is {_DRAFT}, not {value!r}: leave it out if that makes no difference"
                )
        elif keyword == "$id":
            if at:
                raise refusal(keyword, at, "changes what references are relative to: leave it out")
        elif keyword in _REFUSED:
            raise refusal(
                keyword, at, "is not supported: leave it out, and check what it says with a Predicate"
            )
        else:
            near = difflib.get_close_matches(keyword, _KNOWN, 1, 0.75)
            advice = f"did you mean {near[0]!r}?" if near else "leave it out"
            raise refusal(keyword, at, f"is no keyword of JSON Schema 2020-12: {advice}")

    def _value(self, read: Callable[[Any], Any], value: Any, keyword: str, at: Place) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise refusal(keyword, at, str(error)) from None

    def _list(self, value: Any, keyword: str, at: Place) -> list[Schema]:
        if not isinstance(value, list):
            raise refusal(keyword, at, f"is a list of schemas, not {value!r}")
        return [self._reduce(schema, (*at, keyword, str(i))) for i, schema in enumerate(value)]

    def _named(self, value: Any, keyword: str, at: Place, read: Callable[[str], str]) -> dict[str, Schema]:
        if not isinstance(value, dict):
            raise refusal(keyword, at, f"is an object of schemas, not {value!r}")
        found: dict[str, Schema] = {}
        for name, schema in value.items():
            key = self._value(read, name, keyword, at)
            reduced = self._reduce(schema, (*at, keyword, name))
            found[key] = AllOf([found[key], reduced]) if key in found else reduced
        return found

    # --- what shows when all schemas are there

    def _check_multiples(self) -> None:
        found = [value for _, value in self._multiples]
        # What is referred to may be met with itself.
        if values.too_large_together(found * 2 if self._refs else found):
            at = self._multiples[-1][0]
            raise refusal(
                "multipleOf",
                at,
                "is too large for llguidance to be combined with the others: take a smaller one",
            )

    def _check_one_ofs(self) -> None:
        for at, options in self._one_ofs:
            for (i, a), (j, b) in itertools.combinations(enumerate(options), 2):
                if not exclude_each_other(a, b, self.places):
                    raise refusal(
                        "oneOf",
                        at,
                        f"the options {i} and {j} are not seen to exclude each other: write anyOf if a value "
                        "may satisfy both, or require a property in them that has another const in each",
                    )


def refusal(keyword: str, at: Place, reason: str) -> ConstraintError:
    """The error about a keyword of the schema at a place."""
    return ConstraintError(f"the JSON schema cannot be used: {keyword!r} at {pointer(at)}: {reason}")
