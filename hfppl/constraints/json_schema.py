"""JSON texts that satisfy a JSON schema."""

import functools
import json
from typing import Any

from ..errors import ArgumentError, ConstraintError
from ..tokens import Vocabulary
from .constraint import Beginning
from .grammar import Grammar
from .json_forms import Place, pointer
from .json_subset import NOTES, Subset

_BLANK = r"[\x20\x0A\x0D\x09]"
_SAY_NOTHING = {*NOTES, "$schema", "$id", "$defs", "definitions"}
_ESCAPES = 'nrbtf\\"'  # each character of a string has one spelling: \u would give it several


class JsonSchema(Grammar):
    r"""JSON texts whose value satisfies a JSON schema of draft 2020-12.

    Supported:

    - `type`, `const`, `enum`, `allOf`, `anyOf`, `oneOf` if its options are seen to exclude each other (by
      type, constants, bounds, or a required property), `$ref` to places in the schema (`#/$defs/...`),
      recursion as well, but without other keywords at the `$ref` that closes the circle;
    - `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`;
    - `minLength`, `maxLength`, `pattern` (Python's syntax as in `Regex`, found anywhere unless anchored; a
      string has to match whether `\d`, `\w`, `\s` are about ASCII or Unicode), `format` (date, time,
      date-time, duration, email, hostname, ipv4, ipv6, uri, uuid), which is enforced;
    - `items`, `prefixItems`, `minItems`, `maxItems`;
    - `properties`, `required`, `additionalProperties`, `patternProperties` with patterns that exclude each
      other, `maxProperties` and `minProperties` as far as they can be counted.

    Everything else is refused by name and place, whatever does not exist (`maxLenght`), exists in older
    drafts only, or is not supported: `not`, `if`, `contains`, `uniqueItems`, `propertyNames`,
    `dependentRequired`, `unevaluatedProperties` and others. Titles, descriptions, defaults and the like say
    nothing about values, and are allowed, as is what begins with `x-`. A schema that no value satisfies is
    refused as far as that is seen.

    Not every JSON text of a value is one of the constraint's:

    - Properties come in the order in which the schema names them: those of `properties`, then others that are
      `required`, then any others. What `allOf`, `anyOf` and `$ref` add comes before if it stands before
      `properties` in the schema, else after. Those not named may come twice; then, the last counts.
    - A whole number where `type` is integer has no point and no exponent. A number with a bound or
      `multipleOf` has no exponent. Bounds are compared exactly, in 15 digits: a number more than 0 is at
      least 1e-22. Numbers of the schema beyond 2**53 are refused, as are constants of more digits.
    - Each character of a string has one spelling: itself, or the short escape (`\"`, `\\`, `\n`, `\t`, ...)
      where JSON demands one. Other control characters do not come.
    - Between the pieces of an object or array there are up to `max_blanks` blanks, tabs or line breaks in a
      row; none before the text and none after it.

    Args:
        schema: a dict, JSON text, a bool, or a class of pydantic's with `model_json_schema`.
        max_blanks: how many blanks may stand in a row; 0 for none at all.

    Raises:
        ArgumentError: if `max_blanks` is not a whole number of at least 0.
        ConstraintError: if the schema cannot be used, with the keyword and a JSON pointer to its schema.
    """

    def __init__(self, schema: Any, *, max_blanks: int = 1) -> None:
        if isinstance(max_blanks, bool) or not isinstance(max_blanks, int) or max_blanks < 0:
            raise ArgumentError(f"max_blanks is a whole number of at least 0, not {max_blanks!r}")
        self.schema = _read(schema)
        self.max_blanks = max_blanks
        try:
            subset = Subset(self.schema)
            lark = _lark(subset.document(), max_blanks)
        except RecursionError:
            raise ConstraintError("the JSON schema is nested too deep: move parts of it into $defs") from None
        try:
            super().__init__(lark)
            _begin(self)
        except ConstraintError as error:
            raise ConstraintError(self._explained(subset, _reason(error))) from None

    def _explained(self, subset: Subset, reason: str) -> str:
        """What llguidance says of the schema, and the innermost schema of which it says the same."""
        place: Place = ()
        for inner in sorted(subset.places, key=len):
            if inner[: len(place)] == place and not {"$defs", "definitions"} & set(inner):
                try:
                    _begin(Grammar(_lark(subset.document(inner), self.max_blanks)))
                except ConstraintError as error:
                    place = inner if _reason(error) == reason else place
        schema = self.schema
        for token in place:
            schema = schema[int(token) if isinstance(schema, list) else token]
        keywords = [repr(word) for word in schema if word not in _SAY_NOTHING] if schema else ["false"]
        return (
            f"the JSON schema cannot be used: {', '.join(keywords)} at {pointer(place)}: no value satisfies "
            f"that, or llguidance cannot do it: {reason}"
        )

    def __repr__(self) -> str:
        blanks = "" if self.max_blanks == 1 else f", max_blanks={self.max_blanks}"
        return f"JsonSchema({self.schema!r}{blanks})"


def _read(schema: Any) -> Any:
    """A schema as JSON values, of which nobody else has a reference."""
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    try:
        return json.loads(schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConstraintError(
            f"a JSON schema is a dict of JSON values, a text of JSON, True, False or a pydantic model, not "
            f"{str(schema)[:100]!r} ({error})"
        ) from None


def _reason(error: ConstraintError) -> str:
    """What of an error of llguidance's is about the schema."""
    return str(error).split("JSON schema: ")[-1].split("\n   1 |")[0][:300]


def _lark(document: dict[str, Any], max_blanks: int) -> str:
    options = {
        "whitespace_flexible": False,
        "whitespace_pattern": f"{_BLANK}{{1,{max_blanks}}}" if max_blanks else None,
        "json_allowed_escapes": _ESCAPES,
    }
    return f"start: %json {json.dumps({'x-guidance': options} | document)}"


def _begin(grammar: Grammar) -> None:
    """Begin a text, for some of what is too much for llguidance shows only then.

    Raises:
        ConstraintError: if it cannot be begun.
    """
    if not grammar._start(_any_bytes()).text_mask():
        raise ConstraintError("no text satisfies it")


@functools.cache
def _any_bytes() -> Beginning:
    return Beginning(Vocabulary([*(bytes([i]) for i in range(256)), b"<end>"], special_ids=[256]), {256}, {})
