"""One of a list of texts, and grammars of one's own."""

import re
from collections.abc import Iterable

import numpy as np

from ..errors import ConstraintError
from ..tokens import Vocabulary
from .constraint import Beginning, State
from .grammar import Grammar


class Choice(Grammar):
    """One of the given texts, to the letter."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises: ConstraintError, for no texts at all, or what is not a text."""
        found = [] if isinstance(texts, str) or not isinstance(texts, Iterable) else list(texts)
        if not found or not all(isinstance(text, str) for text in found):
            raise ConstraintError(f"a choice is a list of texts, at least one, not {texts!r}")
        self.texts = list(dict.fromkeys(found))
        # One terminal: alternatives of a rule count against llguidance's limits.
        super().__init__(f"start: /(?:{'|'.join(_literal(text) for text in self.texts)})/")

    def _kind(self) -> str:
        return "the choice"

    def __repr__(self) -> str:
        return f"Choice({self.texts!r})"


class Lark(Grammar):
    """The texts of a context-free grammar, in the form of Lark that llguidance reads.

    Rules are in small letters, terminals in capitals, and the text is one `start`. A terminal takes all it
    can before what follows it gets a turn: `start: A "a"` with `A: /a+/` has no text at all. What is under
    `%ignore` may stand between terminals, not before the first or after the last. A special token is named as
    `<|name|>` or by its id as `<[5]>`; nothing else matches one, and an end token cannot be named, as it
    ends the text. What llguidance does not know of Lark (priorities, templates, look-around in a regular
    expression) is an error here, as is what it adds to Lark that is not about texts (`%llguidance`, rules
    with `[max_tokens=...]` and the like).
    """

    def __init__(self, grammar: str) -> None:
        """Raises: ConstraintError, with the place, for a grammar that cannot be read."""
        if not isinstance(grammar, str):
            raise ConstraintError(f"a Lark grammar is a text, not {grammar!r}")
        try:
            grammar.encode()
        except UnicodeEncodeError as error:
            raise ConstraintError(f"no text of tokens has a lone surrogate in it: {error}") from None
        self.grammar = grammar
        bare = _QUOTED.sub('""', grammar)
        for pattern, what in _NOT_ABOUT_TEXTS:
            found = pattern.search(bare)
            if found is not None:
                raise ConstraintError(f"the grammar cannot be used: {found[0].strip()!r}: {what}")
        self._special = _SPECIAL.findall(bare)
        super().__init__(grammar)

    def _start(self, beginning: Beginning) -> State:
        vocabulary = beginning.vocabulary
        for name in self._special:
            ids = _ids_of(name, vocabulary)
            if not ids or not all(i < vocabulary.size and vocabulary.exists[i] for i in ids):
                raise ConstraintError(f"the grammar names {name}: this vocabulary has no such token")
            if beginning.eos_token_ids.intersection(ids):
                raise ConstraintError(
                    f"the grammar names {name}, an end token here, which can only end a text: "
                    "leave it out, or take it from lm.eos_token_ids"
                )
        return super()._start(beginning)

    def __repr__(self) -> str:
        return f"Lark({self.grammar!r})"


_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"i?|/(?!/)(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/[a-z]*|//[^\n]*')
_SPECIAL = re.compile(r"<[^<>\n]+>")
_NOT_ABOUT_TEXTS = [
    (re.compile(r"%llguidance.*"), "options of llguidance are not taken"),
    (
        re.compile(r"^\s*[\w.]+\s*\[[^\]\n]*\]\s*:", re.MULTILINE),
        "attributes of rules say nothing about texts, or depend on how they are split into tokens; "
        "leave them out (TokenLimit counts tokens)",
    ),
]


def _ids_of(name: str, vocabulary: Vocabulary) -> list[int]:
    """The ids that a grammar means by `<|name|>` or `<[5]>`; none if it is not one of these."""
    if not name.startswith("<["):
        special = np.flatnonzero(vocabulary.special).tolist()
        return [i for i in special if vocabulary.byte_vocab[i] == name.encode()]
    ids: list[int] = []
    for part in name[2:-2].split(","):
        low, _, high = part.partition("-")
        if not low.strip().isdecimal() or not (high or low).strip().isdecimal():
            return []
        ids += range(int(low), int(high or low) + 1)
    return ids


def _literal(text: str) -> str:
    """A text as a regular expression."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConstraintError(f"no text of tokens has a lone surrogate in it: {error}") from None
    return "".join(c if c.isascii() and c.isalnum() else f"\\u{{{ord(c):x}}}" for c in text)
