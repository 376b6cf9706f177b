"""Texts that match a regular expression of Python's."""

import re

from ..errors import ConstraintError
from .grammar import Grammar
from .regex_dialect import translate


class Regex(Grammar):
    r"""The texts that match a regular expression as a whole: `re.fullmatch(pattern, text)`.

    The dialect is that of Python's `re`, as far as it says which texts match:

    - characters, escapes (`\n`, `\x41`, `\u00e9`, `\N{...}`), sets `[a-z_]` and `[^"]`, `.`, alternatives,
      groups of every kind that only groups, and repeats `*`, `+`, `?`, `{m,n}`, greedy or lazy (`*?`): they
      match the same texts;
    - `\d`, `\w`, `\s`, `\D`, `\W`, `\S` mean ASCII, and `(?i)` makes only ASCII letters equal, as under
      Python's `re.ASCII`; with `ascii=False`, or inside `(?u:...)`, they mean what they do to Python;
    - the flags `i`, `s`, `m`, `x`, `a`, `u`, for the whole pattern or as in `(?i:...)` and `(?-i:...)`;
      `(?u)` for the whole goes with `ascii=False` only;
    - `.` excludes the newline alone, and with `(?s)` nothing;
    - `^` and `\A` at the very beginning and `$` at the very end, of the pattern or of an alternative, say
      nothing that is not so anyway, and may be written or left out.

    Refused, with a message that names it and says what to write: look-ahead and look-behind, `\b`, `\B`,
    back-references, conditional groups, possessive repeats, atomic groups, `\Z`, anchors anywhere else,
    POSIX classes (`[[:alpha:]]`), and what other engines read as an operation on sets (`[a-c&&b]`). A
    pattern that no text matches is refused, too. What the pattern matches is text: never a special token,
    and never half of a surrogate pair.

    Repeats cost nothing until they are reached, however large. Only where a text can be divided among
    repeats inside repeats in very many ways, as by `(a{1,500}){0,500}`, may a long text become too much
    for llguidance: then `mask` or `advance` raises a ConstraintError.

    Args:
        pattern: a pattern, or one that `re.compile` made, with its flags.
        ascii: whether `\d`, `\w`, `\s` and `(?i)` are about ASCII alone. A compiled pattern is, all the same,
            if it has the flag `re.ASCII`.

    Raises:
        ConstraintError: if the pattern is refused, or has a mistake (Python's message and position).
    """

    def __init__(self, pattern: str | re.Pattern[str], *, ascii: bool = True) -> None:
        source = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
        if not isinstance(source, str):
            raise ConstraintError(f"a Regex needs a pattern of str, not {pattern!r}: texts are str")
        self.pattern = pattern
        self.ascii = ascii
        flags = pattern.flags if isinstance(pattern, re.Pattern) else 0
        if ascii:
            flags |= re.ASCII
        try:
            translated = translate(source, flags)
        except ConstraintError as error:
            raise ConstraintError(f"{self._kind()} cannot be used: {error}") from error.__cause__
        super().__init__(f"start: /{translated or '(?:)'}/")  # `//` would begin a comment

    def _kind(self) -> str:
        return f"the regex {self.pattern!r}"

    def __repr__(self) -> str:
        return f"Regex({self.pattern!r}{'' if self.ascii else ', ascii=False'})"
