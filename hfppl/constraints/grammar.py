"""Constraints whose texts a grammar describes, matched token by token by the library `llguidance`.

llguidance is made to look at bytes alone: every way of splitting a text into tokens is allowed, not
only the tokenizer's own (`no_forcing`), and a text ends where the grammar accepts it, by an end token
of the language model, of which the grammar knows nothing.
"""

import functools
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConstraintError
from ..tokens import TokenMask, Vocabulary
from .constraint import Beginning, Constraint, State

_HEADER = '%llguidance {"no_forcing": true}\n'
_NO_TOKEN_FITS = {"NoExtension", "NoExtensionBias"}
_MASKS_KEPT = 256
_NO_TEXT = b"\xff"
# Ten times llguidance's own limit, which repeats inside repeats such as `(\w{1,20} ?){1,100}` soon pass.
_WORK_PER_MASK = 2_000_000


class Grammar(Constraint):
    """The texts of a grammar in llguidance's form of Lark; what the ready-made kinds are built on."""

    def __init__(self, lark: str) -> None:
        """Raises: ConstraintError, if llguidance refuses the grammar or warns of it."""
        import llguidance

        self._lark = _HEADER + lark
        self._grammar = llguidance.LLMatcher.grammar_from_lark(self._lark)
        _, messages = llguidance.LLMatcher.validate_grammar_with_warnings(self._grammar)
        # A special token can be looked up only in a vocabulary: when the first text begins.
        if messages and "no tokenizer" not in messages[0]:
            raise ConstraintError(f"{self._kind()} cannot be used: {_first_lines(messages[0])}")
        self._known: weakref.WeakKeyDictionary[Vocabulary, _Matchers] = weakref.WeakKeyDictionary()

    def _kind(self) -> str:
        return "the grammar"

    def _start(self, beginning: Beginning) -> State:
        matchers = self._known.get(beginning.vocabulary)
        if matchers is None:
            matchers = self._known[beginning.vocabulary] = _Matchers(self._grammar, beginning.vocabulary)
        return GrammarState(beginning, matchers, matchers.first.deep_copy())


class GrammarState(State):
    """Where a text stands in a grammar."""

    def __init__(self, beginning: Beginning, matchers: "_Matchers", matcher: Any) -> None:
        super().__init__(beginning)
        self._matchers = matchers
        self._matcher = matcher
        self._mask: TokenMask | None = None

    def _accepts(self) -> bool:
        return bool(self._matcher.is_accepting())

    def _text_mask(self) -> TokenMask:
        if self._mask is None:
            pieces = self._beginning.pieces if self._at_start else {}
            mask = self._matchers.mask(self._matcher, self._accepts(), pieces)
            ends = self._beginning.eos_token_ids
            self._mask = mask if not any(mask.allowed[i] for i in ends) else mask - self._end_mask
        return self._mask

    def _advance(self, token_id: int) -> bool:
        if self._mask is not None and not self._mask.allowed[token_id]:
            return False
        self._mask = None
        if self._at_start and token_id in self._beginning.pieces:
            return self._advance_bytes(self._beginning.pieces[token_id])
        if not self._beginning.vocabulary.byte_vocab[token_id]:
            return bool(self._beginning.vocabulary.exists[token_id])
        return self._matchers.consume(self._matcher, [token_id])

    def _advance_bytes(self, data: bytes) -> bool:
        self._mask = None
        return _NO_TEXT not in data and self._matchers.consume(
            self._matcher, self._matchers.tokens.bytes_as_ids(data)
        )

    def _part_ways(self) -> None:
        self._matcher = self._matcher.deep_copy()


class _Matchers:
    """One grammar over one vocabulary.

    Attributes:
        first: a matcher at the beginning of a text, to be copied.
        tokens: the vocabulary as llguidance reads it.
    """

    def __init__(self, grammar: str, vocabulary: Vocabulary) -> None:
        import llguidance

        self.tokens = _tokens_of(vocabulary)
        limits = llguidance.LLParserLimits(step_lexer_fuel=_WORK_PER_MASK)
        self.first = llguidance.LLMatcher(self.tokens.tokenizer, grammar, log_level=0, limits=limits)
        self._check(self.first, "cannot be used with this vocabulary")
        self._vocabulary = vocabulary
        self._masks: OrderedDict[bytes, TokenMask] = OrderedDict()

    def mask(self, matcher: Any, accepting: bool, pieces: Any) -> TokenMask:
        """The tokens that go on with the text of a matcher."""
        bits = matcher.compute_bitmask()
        if matcher.is_error():
            if matcher.stop_reason() not in _NO_TOKEN_FITS:
                self._check(matcher)
            bits = bytes(len(bits))
        if pieces:
            return self._first_mask(matcher, bits, pieces)
        # Particles stand at the same places of a grammar again and again: their masks are shared.
        key = bits + bytes([accepting])
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = TokenMask(self._vocabulary, self._allowed(bits, accepting))
            if len(self._masks) > _MASKS_KEPT:
                self._masks.popitem(last=False)
        else:
            self._masks.move_to_end(key)
        return mask

    def _allowed(self, bits: bytes, accepting: bool) -> NDArray[np.bool_]:
        size = self._vocabulary.size
        row = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=size, bitorder="little")
        allowed: NDArray[np.bool_] = row.view(np.bool_)
        if len(self.tokens.empty) and (accepting or allowed.any()):
            allowed[self.tokens.empty] = True  # they add nothing to the text, wherever it stands
        return allowed

    def _first_mask(self, matcher: Any, bits: bytes, pieces: Any) -> TokenMask:
        """The mask where some tokens add only a part of their bytes."""
        allowed = self._allowed(bits, True)
        found: dict[bytes, bool] = {b"": True}
        plain = allowed.copy()
        for token_id, piece in pieces.items():
            if piece not in found:
                twin = self.tokens.id_of.get(piece)
                if twin is not None:
                    found[piece] = bool(plain[twin])
                else:
                    ids = self.tokens.bytes_as_ids(piece)
                    found[piece] = _NO_TEXT not in piece and matcher.validate_tokens(ids) == len(ids)
            allowed[token_id] = found[piece]
        return TokenMask(self._vocabulary, allowed)

    def consume(self, matcher: Any, ids: list[int]) -> bool:
        """Whether a matcher could go on with all of `ids`; if so, it has."""
        if matcher.is_error() or (ids and matcher.validate_tokens(ids) < len(ids)):
            self._check(matcher)
            return False
        done = not ids or matcher.consume_tokens(ids)
        self._check(matcher)
        return bool(done)

    def _check(self, matcher: Any, what: str = "is too much for llguidance") -> None:
        """Raise a ConstraintError if a matcher has given up, not merely run out of tokens."""
        if matcher.is_error() and matcher.stop_reason() not in _NO_TOKEN_FITS:
            raise ConstraintError(f"the grammar {what}: {_first_lines(matcher.get_error())}")


class _Tokens:
    """A vocabulary for llguidance: its own ids, one that never comes as the end, then one for each byte.

    The last are for texts that do not come in tokens. What holds a byte 0xFF takes no part: no text
    does, and llguidance marks special tokens with it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance

        size = vocabulary.size
        self.bos_token_id = None
        self.eos_token_id = size
        self.special_token_ids = [*np.flatnonzero(vocabulary.special).tolist(), size]
        ours = [
            entry if exists and (special or _NO_TEXT not in entry) else b""
            for entry, exists, special in zip(
                vocabulary.byte_vocab, vocabulary.exists, vocabulary.special, strict=True
            )
        ]
        self.tokens = [*ours, b"<the end>", *(bytes([byte]) for byte in range(255))]
        self.id_of = {entry: i for i, entry in enumerate(ours) if entry and not vocabulary.special[i]}
        lengths = np.array([len(entry) for entry in vocabulary.byte_vocab])
        self.empty = np.flatnonzero((lengths == 0) & vocabulary.exists & ~vocabulary.special)
        self._first_byte = size + 1
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self))

    def __call__(self, text: bytes) -> list[int]:
        """How a text is tokenized, which llguidance need not know for a mask but asks."""
        return self.bytes_as_ids(text)

    def bytes_as_ids(self, data: bytes) -> list[int]:
        """Ids, one a byte, that llguidance reads as `data`."""
        return [self._first_byte + byte for byte in data]


@functools.lru_cache(maxsize=8)
def _tokens_of(vocabulary: Vocabulary) -> _Tokens:
    return _Tokens(vocabulary)


def _first_lines(message: str) -> str:
    """What of llguidance's message is meant for a reader: not the state of its parser."""
    return message.split("<state>")[0].split("\n<")[0].strip()
