"""What is written in the keywords of a JSON schema, and what of it llguidance takes exactly.

llguidance reads a number as a float, of more than 15 digits not always the nearest one, and prints it
without an exponent. So numbers are handed over with 15 digits at most, and bounds are moved inwards to
such a number: what meets the moved bound meets the given one, in decimals as in floats.

Each function raises a ValueError with the reason alone for what cannot be used.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Context, Decimal
from typing import Any

from .json_formats import FORMATS
from .regex_dialect import translate

TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")
_WHOLE = 2**53
_DIGITS = 15
_PLACES = 22  # 10**22 is the largest power of ten that is a float
_DECIMALS = Context(prec=60)
_UNSPELLABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]")


# --- numbers


def _exact(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"is a number, not {value!r}")
    if abs(value) > _WHOLE:
        raise ValueError(f"{value!r} is beyond 2**53, from where numbers are no longer exact: keep below it")
    return Decimal(value) if isinstance(value, int) else Decimal(repr(value))


def _plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def bound(value: Any, *, lower: bool, exclusive: bool) -> int | float:
    """A bound that numbers may meet, for one that they may or may not.

    Returns:
        The number nearest to `value` among those inside of it that have 15 digits and 22 decimal places.
    """
    exact = _exact(value)
    places = min(max(_DIGITS - 1 - exact.adjusted(), 0), _PLACES) if exact else _PLACES
    unit = Decimal((0, (1,), -places))
    moved = exact.quantize(unit, ROUND_CEILING if lower else ROUND_FLOOR, _DECIMALS)
    if exclusive and moved == exact:
        moved = _DECIMALS.add(moved, unit if lower else -unit)
    return _plain(moved)


def left_out(keywords: Mapping[str, Any]) -> list[int | float]:
    """Numbers within bounds that llguidance takes only with zeros after them: 0.2 for a maximum of 0.25.

    Args:
        keywords: those of a schema, as far as they are about numbers.
    """
    if "number" not in keywords.get("type", ("number",)):
        return []
    low, high = (_exact(keywords[name]) if name in keywords else None for name in ("minimum", "maximum"))
    found = {
        limit.quantize(Decimal((0, (1,), -places)), ROUND_DOWN, _DECIMALS).normalize()
        for limit in (low, high)
        if limit is not None
        for places in range(1, 1 - int(limit.as_tuple().exponent))
    }
    return [
        float(number)
        for number in sorted(found)
        if number % 1 and (low is None or low <= number) and (high is None or number <= high)
        if "multipleOf" not in keywords or number % _exact(keywords["multipleOf"]) == 0
    ]


def multiple(value: Any) -> int | float:
    """What numbers are to be multiples of."""
    exact = _exact(value)
    if exact <= 0:
        raise ValueError(f"is a number above 0, not {value!r}")
    # llguidance multiplies by ten until it sees a whole number, which it may never, or see the wrong one.
    scaled, places = float(value), 0
    while scaled % 1:
        scaled, places = scaled * 10, places + 1
    if scaled >= 2**32 or Decimal(int(scaled)).scaleb(-places) != exact:
        raise ValueError(
            f"llguidance cannot divide by {value!r} exactly: take a whole number, 0.5, 0.1 or 0.01, or write "
            "strings with a pattern"
        )
    return _plain(exact)


def too_large_together(multiples: Iterable[int | float]) -> bool:
    """Whether llguidance might fail to find the least common multiple of two of them."""
    for a, b in itertools.combinations(map(_exact, multiples), 2):
        scale = Decimal(10) ** max(-int(x.normalize().as_tuple().exponent) for x in (a, b, Decimal(1)))
        if a * scale * b * scale >= 2**32:
            return True
    return False


def count(value: Any) -> int:
    """A length, or a number of items or properties."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
        raise ValueError(f"is a whole number of at least 0, not {value!r}")
    return int(value)


# --- constants


def constant(value: Any) -> Any:
    """A value that stands for itself."""
    match value:
        case bool() | None:
            return value
        case int() | float():
            exact = _exact(value)
            if exact == exact.to_integral_value():
                return int(exact)
            if len(exact.as_tuple().digits) > _DIGITS or -int(exact.as_tuple().exponent) > _PLACES:
                raise ValueError(
                    f"{value!r} has more than {_DIGITS} digits or {_PLACES} decimal places: round it"
                )
            return value
        case str():
            return spelled(value)
        case list():
            return [constant(item) for item in value]
    return {spelled(name): constant(item) for name, item in value.items()}


def constants(value: Any) -> list[Any]:
    """Values of which each stands for itself."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"is a list of values, at least one, not {value!r}")
    return [constant(item) for item in value]


def spelled(text: str) -> str:
    """A string, unless JSON has to write it with an escape such as `\\u0000`."""
    if found := _UNSPELLABLE.search(text):
        raise ValueError(
            f"{text!r} has {found[0]!r} in it, which does not come in the texts here: leave it out"
        )
    return text


def names(value: Any) -> list[str]:
    """Names of properties."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"is a list of names, not {value!r}")
    return [spelled(name) for name in dict.fromkeys(value)]


def types(value: Any) -> list[str]:
    """Names of types."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or any(name not in TYPES for name in found):
        raise ValueError(f"is one of {', '.join(TYPES)}, or a list of them, not {value!r}")
    return found


# --- patterns


def patterns(value: Any) -> list[str]:
    r"""What llguidance is to look for, of a pattern; all of what is returned.

    A string has to match whether `\w`, `\d` and `\s` are about ASCII, as they are in the standard, or about
    Unicode, as they are in Python.
    """
    if not isinstance(value, str):
        raise ValueError(f"is a regular expression, not {value!r}")
    return list(dict.fromkeys(translate(value, flags, in_json=True) for flags in (re.ASCII, 0)))


def name_pattern(value: str) -> str:
    """What llguidance is to look for in names, of which those that do not match matter as well."""
    found = patterns(value)
    if len(found) > 1:
        raise ValueError(
            rf"what \w, \d, \s and the like mean in {value!r} differs from one validator to another: write "
            "the characters, as in [0-9]"
        )
    return found[0]


def format_patterns(value: Any) -> list[str]:
    """What llguidance is to look for, of a format; all of what is returned."""
    if not isinstance(value, str) or value not in FORMATS:
        raise ValueError(f"is one of {', '.join(FORMATS)}, not {value!r}: leave it out, or write a pattern")
    return [translate(f"^(?:{pattern})$", re.ASCII, in_json=True) for pattern in FORMATS[value]]
