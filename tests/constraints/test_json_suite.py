"""`JsonSchema` against the official test suite of JSON Schema, draft 2020-12.

The suite is in the source distribution of the package `jsonschema`, fetched once with pip into the cache
folder. Each schema of it is either refused or has no text of an invalid value; which valid values it has no
text of is listed here, with the reason.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from constraints.schema_cases import accepts, started

from hfppl.constraints.json_formats import FORMATS
from hfppl.llms.cache_folder import cache_folder

REQUIREMENT = "jsonschema==4.26.0"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
FOLDER = "jsonschema-4.26.0/json/tests/draft2020-12/"


def fetched() -> Path:
    """The source distribution, downloaded if it is not in the cache."""
    path = cache_folder() / f"{REQUIREMENT.replace('==', '-')}.tar.gz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--no-input", "-q"]
            command += ["--no-binary", "jsonschema", "-d", folder, REQUIREMENT]
            pip = subprocess.run(command, capture_output=True, text=True)
            found = sorted(Path(folder).glob("*.tar.gz"))
            if pip.returncode or len(found) != 1:
                # Where the tests have to be complete, a suite that is not there is a failure.
                stop = pytest.fail if os.environ.get("CI") else pytest.skip
                stop(f"pip could not download {REQUIREMENT}, which has the suite in it: {pip.stderr[-300:]}")
            found[0].replace(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == SHA256, f"{path} has SHA-256 {digest}: delete it to have it fetched again"
    return path


@pytest.fixture(scope="module")
def suite() -> dict[str, Any]:
    """The files of the suite, by their names, those about formats as `format/date` and so on."""
    with tarfile.open(fetched()) as archive:
        members = {name.removeprefix(FOLDER): name for name in archive.getnames() if name.startswith(FOLDER)}
        return {
            name.removeprefix("optional/").removesuffix(".json"): json.load(archive.extractfile(member))  # type: ignore[arg-type]
            for name, member in members.items()
            if "/" not in name or name.startswith("optional/format/")
        }


@dataclass
class Verdicts:
    """What became of the schemas of a file.

    Attributes:
        taken: how many were not refused.
        refused: how many were, by what is named.
        without_text: valid values, by the descriptions of schema and value, of which there is no text.
        wrong: invalid values of which there is one.
    """

    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    without_text: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def verdicts(cases: list[Any]) -> Verdicts:
    found = Verdicts()
    for case in cases:
        start = started(case["schema"])
        if isinstance(start, str):
            named = re.match("the JSON schema cannot be used: (.*?) at #", start)
            assert named, start
            found.refused[named[1]] += 1
            continue
        found.taken += 1
        for test in case["tests"]:
            text = json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))
            accepted = accepts(start, text)
            if accepted and not test["valid"]:
                found.wrong.append(f"{case['description']}: {test['description']}: {text}")
            if test["valid"] and not accepted:
                found.without_text.append((case["description"], test["description"]))
    return found


# Schemas taken and refused, by file. A change means that llguidance, or what is refused, has changed.
COUNTS = {
    "additionalProperties": (7, 2), "allOf": (10, 2), "anchor": (0, 4), "anyOf": (7, 1),
    "boolean_schema": (1, 1), "const": (14, 1), "contains": (0, 7), "content": (4, 0), "default": (3, 0),
    "defs": (0, 1), "dependentRequired": (0, 4), "dependentSchemas": (0, 4), "dynamicRef": (0, 20),
    "enum": (13, 1), "exclusiveMaximum": (1, 0), "exclusiveMinimum": (1, 0), "format": (10, 9),
    "if-then-else": (0, 10), "infinite-loop-detection": (1, 0), "items": (10, 0), "maxContains": (0, 4),
    "maxItems": (2, 0), "maxLength": (2, 0), "maxProperties": (3, 0), "maximum": (2, 0),
    "minContains": (0, 8), "minItems": (2, 0), "minLength": (2, 0), "minProperties": (2, 0),
    "minimum": (2, 0), "multipleOf": (4, 1), "not": (0, 9), "oneOf": (2, 9), "pattern": (2, 0),
    "patternProperties": (2, 3), "prefixItems": (4, 0), "properties": (6, 0), "propertyNames": (0, 6),
    "ref": (18, 17), "refRemote": (0, 15), "required": (5, 0), "type": (11, 0), "unevaluatedItems": (1, 26),
    "unevaluatedProperties": (1, 40), "uniqueItems": (3, 3), "vocabulary": (0, 2),
    **{f"format/{name}": (1, 0) for name in FORMATS},
}  # fmt: skip
# How often what is named in a refusal.
REFUSED = {
    "'$ref'": 47, "'unevaluatedProperties'": 32, "'contains'": 19, "'unevaluatedItems'": 19, "'if'": 16,
    "'not'": 11, "'format'": 9, "'propertyNames'": 8, "'oneOf'": 8, "'dependentSchemas'": 7, "'$id'": 6,
    "false": 5, "'dependentRequired'": 4, "'$dynamicRef'": 3, "'patternProperties'": 3, "'uniqueItems'": 3,
    "'then'": 2, "'$schema'": 2, "'const'": 1, "'enum'": 1, "'else'": 1, "'maxContains'": 1,
    "'minContains'": 1, "'multipleOf'": 1,
}  # fmt: skip

ORDER = "properties come in the order of the schema"
POINT = "a whole number is written without a point"
ASSERTED = "formats are enforced"
LEAP_SECOND = "no leap seconds"
CAPITAL = "T and Z are capital"
PLAIN_ADDRESS = "no quotes, brackets or Punycode in addresses"
WITHOUT_TEXT = {
    ("allOf", "allOf", "allOf"): ORDER,
    ("allOf", "allOf with base schema", "valid"): ORDER,
    ("const", "const with object", "same object with different property order is valid"): ORDER,
    ("const", "const with -2.0 matches integer and float types", "float -2.0 is valid"): POINT,
    ("const", "const with 0 does not match other zero-like types", "float zero is valid"): POINT,
    ("const", "const with 1 does not match true", "float one is valid"): POINT,
    ("const", "float and integers are equal up to 64-bit representation limits", "float is valid"): POINT,
    ("enum", "enum with 0 does not match false", "float zero is valid"): POINT,
    ("enum", "enum with 1 does not match true", "float one is valid"): POINT,
    ("enum", "enum with [0] does not match [false]", "[0.0] is valid"): POINT,
    ("enum", "enum with [1] does not match [true]", "[1.0] is valid"): POINT,
    ("type", "integer type matches integers", "a float with zero fractional part is an integer"): POINT,
    **{
        ("format", f"{name} format", f"invalid {name} string is only an annotation by default"): ASSERTED
        for name in FORMATS
    },
    **{
        (f"format/{name}", f"validation of {name} strings", test): reason
        for name, test, reason in [
            ("date-time", "a valid date-time with a leap second, UTC", LEAP_SECOND),
            ("date-time", "a valid date-time with a leap second, with minus offset", LEAP_SECOND),
            ("date-time", "case-insensitive T and Z", CAPITAL),
            ("time", "a valid time string with case-insensitive Z", CAPITAL),
            ("time", "a valid time string with leap second, Zulu", LEAP_SECOND),
            ("time", "valid leap second, large negative time-offset", LEAP_SECOND),
            ("time", "valid leap second, large positive time-offset", LEAP_SECOND),
            ("time", "valid leap second, negative time-offset", LEAP_SECOND),
            ("time", "valid leap second, positive time-offset", LEAP_SECOND),
            ("time", "valid leap second, zero time-offset", LEAP_SECOND),
        ]
    },
    **{
        ("format/email", "validation of e-mail addresses", test): PLAIN_ADDRESS
        for test in [
            "a quoted string with a @ in the local part is valid",
            "a quoted string with a double dot in the local part is valid",
            "a quoted string with a space in the local part is valid",
            "an IPv4-address-literal after the @ is valid",
            "an IPv6-address-literal after the @ is valid",
        ]
    },
    ("format/hostname", "validation of host names", "a valid punycoded IDN hostname"): PLAIN_ADDRESS,
    ("format/uri", "validation of URIs", "a valid URL "): PLAIN_ADDRESS,
}


def test_the_suite(suite: dict[str, Any]) -> None:
    assert set(COUNTS) == {name for name in suite if not name.startswith("format/")} | {
        f"format/{name}" for name in FORMATS
    }
    counts = {}
    refused: Counter[str] = Counter()
    without_text = set()
    for name in COUNTS:
        found = verdicts(suite[name])
        assert not found.wrong, name
        counts[name] = (found.taken, found.refused.total())
        refused += found.refused
        without_text |= {(name, *test) for test in found.without_text}
    assert without_text == set(WITHOUT_TEXT)
    assert counts == COUNTS
    assert refused == REFUSED
