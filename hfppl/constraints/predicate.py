"""Any checker written in Python, as a constraint."""

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..tokens import TokenMask
from .constraint import Beginning, Constraint, State

_ANSWERS_KEPT = 2**16


class Predicate(Constraint):
    """The texts that Python functions let pass.

    A text is one of them if `prefix` holds for what it was after each of its tokens, up to the last
    whole character, and `complete` at its end. The empty beginning is not asked about. Both are taken to
    depend on the text alone: the latest 65,536 answers are remembered.

    A mask tests every token there is, which is slow; `steer` and `next_allowed_token` test only
    candidates that the language model proposes, and those that other constraints let through.
    """

    def __init__(self, prefix: Callable[[str], Any], complete: Callable[[str], Any] | None = None) -> None:
        """Args:
        prefix: whether a text can be the beginning of a valid one.
        complete: whether a text is valid as it stands; by default, `prefix`.
        """
        for function in (prefix, prefix if complete is None else complete):
            if not callable(function) or any(
                map(inspect.iscoroutinefunction, (function, type(function).__call__))
            ):
                raise ArgumentError(
                    f"a predicate is a plain function from a text to a bool, not {function!r}"
                )
        self._prefix = _Remembered(prefix)
        self._complete = self._prefix if complete is None else _Remembered(complete)

    def _start(self, beginning: Beginning) -> State:
        return PredicateState(beginning, self._prefix, self._complete)

    def __repr__(self) -> str:
        return f"Predicate({self._prefix!r}, {self._complete!r})"


class PredicateState(State):
    """A text whose every beginning has passed."""

    def __init__(self, beginning: Beginning, prefix: "_Remembered", complete: "_Remembered") -> None:
        super().__init__(beginning)
        self._prefix = prefix
        self._complete = complete
        self._data = b""

    @property
    def is_lazy(self) -> bool:
        """Always."""
        return True

    def candidates(self) -> TokenMask:
        """Every token of text, and the end tokens."""
        return self._no_tokens if self._ended else self._text_tokens | self._end_mask

    def allows(self, token_id: int) -> bool:
        """Whether the checker accepts a token, asked about this one alone."""
        if self._ended:
            return False
        if token_id in self._beginning.eos_token_ids:
            return self.can_end
        vocabulary = self._beginning.vocabulary
        if vocabulary.special[token_id] or not vocabulary.exists[token_id]:
            return False
        return self._passes(self._data + self._piece(token_id))

    def _accepts(self) -> bool:
        text, rest = whole_characters(self._data)
        return text is not None and not rest and self._complete(text)

    def _text_mask(self) -> TokenMask:
        return self._text_mask_among(self._text_tokens)

    def _text_mask_among(self, mask: TokenMask) -> TokenMask:
        allowed = np.zeros(self._beginning.vocabulary.size, dtype=bool)
        ends = self._beginning.eos_token_ids
        for token_id in mask:
            allowed[token_id] = token_id not in ends and self.allows(token_id)
        return TokenMask(self._beginning.vocabulary, allowed)

    def _advance(self, token_id: int) -> bool:
        return self.allows(token_id) and self._advance_bytes(self._piece(token_id))

    def _advance_bytes(self, data: bytes) -> bool:
        if not self._passes(self._data + data):
            return False
        self._data += data
        return True

    def _passes(self, data: bytes) -> bool:
        text, rest = whole_characters(data)
        if text is None:
            return False
        if len(data) - len(rest) <= len(self._data) and data != self._data:
            return True  # no character more than before
        return not text or self._prefix(text)

    @property
    def _text_tokens(self) -> TokenMask:
        return text_tokens(self._beginning)


def whole_characters(data: bytes) -> tuple[str | None, bytes]:
    """The text of `data` up to its last whole character, and the rest; None if it is not UTF-8."""
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        rest = data[error.start :]
        if error.reason != "unexpected end of data" or len(rest) > 3:
            return None, rest
        return data[: error.start].decode(), rest


def text_tokens(beginning: Beginning) -> TokenMask:
    """Every token that stands for text."""
    vocabulary = beginning.vocabulary
    allowed = vocabulary.exists & ~vocabulary.special
    allowed[list(beginning.eos_token_ids)] = False
    return TokenMask(vocabulary, allowed)


class _Remembered:
    """A checker and its latest answers."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        self._function = function
        self._answers: OrderedDict[str, bool] = OrderedDict()

    def __call__(self, text: str) -> bool:
        answer = self._answers.get(text)
        if answer is None:
            found = self._function(text)
            if inspect.isawaitable(found):
                if inspect.iscoroutine(found):
                    found.close()
                raise ArgumentError(
                    f"{self!r} answers with an awaitable: a predicate is a plain function that says yes or no"
                )
            answer = self._answers[text] = bool(found)
            if len(self._answers) > _ANSWERS_KEPT:
                self._answers.popitem(last=False)
        return answer

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))
