"""One of a list of texts, and grammars of one's own."""

from collections.abc import Iterable

from ..errors import ConstraintError
from .grammar import Grammar


class Choice(Grammar):
    """One of the given texts, to the letter."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises: ConstraintError, for no texts at all, or what is not a text."""
        self.texts = list(dict.fromkeys([texts] if isinstance(texts, str) else texts))
        if isinstance(texts, str) or not self.texts or not all(isinstance(text, str) for text in self.texts):
            raise ConstraintError(f"a choice is a list of texts, at least one, not {texts!r}")
        super().__init__("start: " + "\n  | ".join(_literal(text) for text in self.texts))

    def _kind(self) -> str:
        return "the choice"

    def __repr__(self) -> str:
        return f"Choice({self.texts!r})"


class Lark(Grammar):
    """The texts of a context-free grammar, in the form of Lark that llguidance reads.

    Rules are in small letters, terminals in capitals, and the text is one `start`. A special token is
    named as `<|name|>` or by its id as `<[5]>`; nothing else matches one. What llguidance does not know
    of Lark (priorities, templates, look-around in a regular expression) is an error here.
    """

    def __init__(self, grammar: str) -> None:
        """Raises: ConstraintError, with the place, for a grammar that cannot be read."""
        if not isinstance(grammar, str):
            raise ConstraintError(f"a Lark grammar is a text, not {grammar!r}")
        self.grammar = grammar
        super().__init__(grammar)

    def __repr__(self) -> str:
        return f"Lark({self.grammar!r})"


def _literal(text: str) -> str:
    """A text as a terminal."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConstraintError(f"no text of tokens has a lone surrogate in it: {error}") from None
    if not text:
        return '""'
    return "/" + "".join(c if c.isascii() and c.isalnum() else f"\\u{{{ord(c):x}}}" for c in text) + "/"
