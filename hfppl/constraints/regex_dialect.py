"""From Python's regular expressions to those of llguidance, without a change of meaning.

Engines differ in what they read into the same pattern: which letters `\\w` holds, what `(?i)` makes equal,
where `$` may stand. So Python's own parser reads the pattern here, and what is written out of its tree
is what all engines agree on: code points and ranges of them, sequences, alternatives, repeats. Whatever
has no such form is refused by name.

The parser and its names are private to Python (`re._parser`), but have stayed the same from 3.11 to 3.14.
"""

import functools
import re
import threading
import warnings
from collections.abc import Iterable
from re import _constants as sre  # type: ignore[attr-defined]  # private, so that no stub knows it
from re import _parser as sre_parser  # type: ignore[attr-defined]  # the same
from typing import Any

import numpy as np

from ..errors import ConstraintError

_Ranges = list[tuple[int, int]]  # of code points, both ends included

_TOP = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_TYPES = re.ASCII | re.LOCALE | re.UNICODE  # in a scope, one of these takes the place of another
_KEPT = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE
_IN_JSON = 1 << 16  # no flag of Python's: says to `_node` and `_one_of` what `in_json` says to `translate`
# What JSON can write by its number only, which the strings of a JSON schema never hold here, and DEL.
_NOT_IN_JSON = ((0x00, 0x07), (0x0B, 0x0B), (0x0E, 0x1F), (0x7F, 0x7F))

_POSIX = re.compile(
    r"(?<!\\)(?:\\\\)*"  # not an escaped bracket
    r"(\[:\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\])"
)
_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
_LOOK_AHEAD = (
    "a look-ahead, (?=...) or (?!...), has no counterpart: combine constraints instead, as in "
    r"Regex(r'\w+') & ~Regex(r'no\w*')"
)
_REFUSED = {
    sre.ASSERT: _LOOK_AHEAD,
    sre.ASSERT_NOT: _LOOK_AHEAD,
    sre.FAILURE: _LOOK_AHEAD,
    sre.GROUPREF: r"a back-reference, \1 or (?P=name), has no counterpart: write out the texts that may "
    "come twice, as in (?:aa|bb)",
    sre.GROUPREF_EXISTS: "a conditional group, (?(1)...|...), has no counterpart: write both cases out as "
    "alternatives, as in (?:<a>|a)",
    sre.POSSESSIVE_REPEAT: "a possessive repeat, such as a++ or a*+, has no counterpart: write a+ or a*, and "
    "let what follows begin otherwise",
    sre.ATOMIC_GROUP: "an atomic group, (?>...), has no counterpart: write (?:...)",
}
_REFUSED_AT = {
    sre.AT_BOUNDARY: r"the word boundary \b has no counterpart: write the characters that may stand on "
    r"either side of it, as in \w+(?:\W+\w+)*",
    sre.AT_NON_BOUNDARY: r"\B, which is no word boundary, has no counterpart: write the characters that may "
    "stand on either side of it",
    sre.AT_END_STRING: r"the anchor \Z (or \z) is read differently from one engine to another: leave it out, "
    "as a text always matches as a whole",
}
_ANCHORS = {sre.AT_BEGINNING: "^", sre.AT_BEGINNING_STRING: r"\A", sre.AT_END: "$"}

_parsing = threading.Lock()


def translate(pattern: str, flags: int, *, in_json: bool = False) -> str:
    """A pattern for llguidance, of the texts that match a pattern of Python as a whole.

    Args:
        pattern: as for `re.compile`.
        flags: as for `re.compile`; what does not bear on which texts match is left out.
        in_json: whether the pattern is one of a JSON schema: it may match anywhere in a text, so that its
            anchors are kept, and control characters without a short escape in JSON are left out.

    Raises:
        ConstraintError: with the reason alone, if Python does not understand the pattern, if it uses
            what has no counterpart, or if no text matches it.
    """
    if posix := _POSIX.search(pattern):
        raise ConstraintError(
            f"the POSIX class {posix[1]} is not one to Python: write the characters, as in [a-zA-Z]"
        )
    try:
        tree = _parse(pattern, flags & _KEPT)
        translated = _sequence(tree, tree.state.flags | (_IN_JSON if in_json else 0), True, True)
    except RecursionError:
        raise ConstraintError("its groups are nested too deep: write it with fewer levels") from None
    if translated is None:
        raise ConstraintError("it matches no text at all: look for a set of characters that is empty")
    return translated


def _parse(pattern: str, flags: int) -> Any:
    """Python's parse tree. Of what Python might read otherwise one day, it warns: that is refused."""
    # The filters of warnings belong to the whole process: two threads must not set them crosswise.
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        try:
            return sre_parser.parse(pattern, flags)
        except FutureWarning as warning:
            raise ConstraintError(
                f"{str(warning).lower()}, which other engines read as such and Python does not: put a "
                r"backslash before the character if it stands for itself, as in [\[] or [a\-\-b], or write "
                "all the characters of the set out"
            ) from None
        except (re.error, OverflowError) as error:
            raise ConstraintError(str(error)) from error
        except ValueError as error:
            advice = "; for (?u), pass ascii=False" if "UNICODE" in str(error) else ""
            raise ConstraintError(f"{error}{advice}") from error


def _sequence(items: Any, flags: int, at_start: bool, at_end: bool) -> str | None:
    """What a sequence of nodes becomes.

    Args:
        items: a sequence of the parse tree.
        flags: those in force here.
        at_start: whether nothing of the text can come before it.
        at_end: whether nothing of the text can come after it.

    Returns:
        A pattern that can be put before and after others; None if no text matches.
    """
    count = len(items)
    takes_text = [i for i in range(count) if items[i : i + 1].getwidth()[1]]
    first, last = (takes_text[0], takes_text[-1]) if takes_text else (count, -1)
    parts: list[str] = []
    possible = True
    for i, (op, value) in enumerate(items):
        part = _node(op, value, flags, at_start and i <= first, at_end and i >= last)
        possible = possible and part is not None
        parts.append(part or "")
    return "".join(parts) if possible else None


def _node(op: Any, value: Any, flags: int, at_start: bool, at_end: bool) -> str | None:
    """What one node becomes; arguments and result as in `_sequence`."""
    match op:
        case sre.LITERAL:
            return _one_of(False, ((op, value),), flags)
        case sre.NOT_LITERAL:
            return _one_of(True, ((sre.LITERAL, value),), flags)
        case sre.ANY:
            return _one_of(True, () if flags & re.DOTALL else ((sre.LITERAL, ord("\n")),), flags)
        case sre.IN:
            negated = value[0][0] is sre.NEGATE
            return _one_of(negated, tuple(value[1:] if negated else value), flags)
        case sre.BRANCH:
            return _any_of([_sequence(branch, flags, at_start, at_end) for branch in value[1]])
        case sre.SUBPATTERN:
            _, added, removed, items = value
            flags = ((flags & ~_TYPES if added & _TYPES else flags) | added) & ~removed
            return _sequence(items, flags, at_start, at_end)
        case sre.MAX_REPEAT | sre.MIN_REPEAT:
            least, most, items = value
            once = most <= 1
            return _repeat(_sequence(items, flags, at_start and once, at_end and once), least, most)
        case sre.AT:
            _check_anchor(value, flags, at_start, at_end)
            return ("$" if value is sre.AT_END else "^") if flags & _IN_JSON else ""
    if op in (sre.ASSERT, sre.ASSERT_NOT) and value[0] < 0:
        raise ConstraintError(
            "a look-behind, (?<=...) or (?<!...), has no counterpart: write what comes before into the "
            r"pattern itself, or combine constraints, as in Regex(r'\w+') & ~Regex(r'\w*no')"
        )
    raise ConstraintError(_REFUSED.get(op, f"the construct {op} has no counterpart: write it without"))


def _any_of(branches: list[str | None]) -> str | None:
    possible = list(dict.fromkeys(branch for branch in branches if branch is not None))
    if len(possible) < 2:
        return possible[0] if possible else None
    return f"(?:{'|'.join(possible)})"


def _repeat(item: str | None, least: int, most: int) -> str | None:
    """A repeat, greedy or lazy: they differ in what they try first, not in which texts match."""
    if item is None:
        return "" if least == 0 else None
    return f"(?:{item}){{{least},{'' if most == sre.MAXREPEAT else most}}}"


def _check_anchor(anchor: Any, flags: int, at_start: bool, at_end: bool) -> None:
    """Refuse an anchor that says more than that the text begins or ends where it does."""
    if anchor in _REFUSED_AT:
        raise ConstraintError(_REFUSED_AT[anchor])
    by_line = flags & re.MULTILINE and anchor is not sre.AT_BEGINNING_STRING
    if (at_end if anchor is sre.AT_END else at_start) and not (by_line and flags & _IN_JSON):
        return
    name = _ANCHORS[anchor]
    place = "at the very end" if anchor is sre.AT_END else "at the very beginning"
    if by_line:
        but = "" if flags & _IN_JSON else f" but {place} of the pattern"
        raise ConstraintError(
            f"the anchor {name} under the MULTILINE flag has no counterpart{but}: "
            r"write the line breaks as \n"
        )
    raise ConstraintError(f"the anchor {name} has no counterpart but {place} of the pattern: leave it out")


# --- one character


@functools.lru_cache(maxsize=1024)
def _one_of(negated: bool, items: tuple[Any, ...], flags: int) -> str | None:
    """A set of characters, as a class of code points; None if it is empty."""
    found = _code_points(items, flags)
    # No text holds half of a surrogate pair.
    never = (_SURROGATES, *_NOT_IN_JSON) if flags & _IN_JSON else (_SURROGATES,)
    kept = _complement([*(found if negated else _complement(found)), *never])
    if not kept:
        return None
    if len(kept) == 1 and kept[0][0] == kept[0][1]:
        return _escaped(kept[0][0])
    return f"[{''.join(f'{_escaped(low)}-{_escaped(high)}' for low, high in kept)}]"


def _code_points(items: tuple[Any, ...], flags: int) -> _Ranges:
    """The code points that Python finds in a set, in no order."""
    plain: _Ranges = []
    source = ""
    for op, value in items:
        if op is sre.CATEGORY:
            plain += _category(_CATEGORIES[value], flags & re.ASCII)
            source += _CATEGORIES[value]
        else:
            ends = value if op is sre.RANGE else (value,)
            plain.append((ends[0], ends[-1]))
            source += "-".join(f"\\U{end:08x}" for end in ends)
    if not items or not flags & re.IGNORECASE:
        return plain
    # Case only adds characters to a set: Python is asked which, of those that have to do with case.
    matched = re.findall(f"[{source}]", _cased(), flags & (re.ASCII | re.IGNORECASE))
    return plain + [(ord(char), ord(char)) for char in matched]


@functools.cache
def _category(escape: str, ascii_only: int) -> _Ranges:
    r"""The code points of `\w` and the like, as Python finds them."""
    every = np.arange(_TOP + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    spans = (match.span() for match in re.finditer(f"{escape}+", every, ascii_only))
    return [(start, stop - 1) for start, stop in spans]


@functools.cache
def _cased() -> str:
    """Every character that is not its own lower and upper case."""
    blocks = ("".join(map(chr, range(start, start + 256))) for start in range(0, _TOP, 256))
    return "".join(
        char
        for block in blocks
        if block != block.lower() or block != block.upper()
        for char in block
        if char != char.lower() or char != char.upper()
    )


def _complement(ranges: Iterable[tuple[int, int]]) -> _Ranges:
    """The code points in none of the ranges, in order and as few ranges as may be."""
    gaps = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _TOP:
        gaps.append((start, _TOP))
    return gaps


def _escaped(point: int) -> str:
    char = chr(point)
    return char if char.isascii() and char.isalnum() else f"\\u{{{point:X}}}"
