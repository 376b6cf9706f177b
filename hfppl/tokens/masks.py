"""The ready-made sets of tokens: words, punctuation, white space, length, end of text."""

import builtins
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .mask import TokenMask
from .token import HasVocabulary
from .vocabulary import Vocabulary

# Marks inside a sentence, each a token of its own: comma, colon, semicolon, hyphens and dashes, quotation
# marks, and what other scripts write for the first three (wide and half-width forms, Arabic, Ethiopic,
# Burmese).
_MID_PUNCTUATION = frozenset(',:;-"' + "‐‑‒–—―" + "“”„«»「」『』" + "，：；、､" + "،؛" + "፣፤፥" + "၊")

# Marks that end a sentence: full stop, exclamation and question mark, ellipsis, and what other scripts
# write for them (wide and half-width forms, Arabic and Urdu, Devanagari, Armenian, Greek, Ethiopic,
# Burmese, Khmer).
_END_PUNCTUATION = frozenset(
    ".!?" + "…‼‽⁇⁈⁉" + "。！？．｡" + "؟۔" + "।॥" + "։" + "\u037e" + "።፧" + "။" + "។៕"
)

# Unicode's punctuation, and the kinds of symbol to which the rest of ASCII's belong ($ + < = > ^ ` | ~).
# Other symbols, such as emoji, are no punctuation.
_PUNCTUATION_CATEGORIES = frozenset(("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm"))
_INVISIBLE_CATEGORIES = frozenset(("Cc", "Cf"))

_S = TypeVar("_S", str, bytes)

_WHITE_SPACE = re.compile(r"\s")
_APOSTROPHES = str.maketrans("", "", "'’")


class Masks:
    """Sets of the tokens of a vocabulary, each made when first asked for and then kept.

    All but `ALL_TOKENS`, `EOS`, `special` and the lengths are about text, and hold neither special tokens
    nor empty ones. A token whose bytes are not whole characters is in no set about words or punctuation:
    what it will be is not known until it is complete, so a word that needs such tokens cannot be spelled
    from these sets. `CONTAINS_WHITESPACE` looks at the whole characters of such a token.

    Attributes:
        vocabulary: the tokens.
    """

    def __init__(
        self,
        vocabulary: Vocabulary | HasVocabulary,
        eos_token_ids: "Iterable[int] | Callable[[], Iterable[int]]" = (),
    ) -> None:
        """Masks of a vocabulary, or of a language model, whose end tokens they then follow.

        Args:
            vocabulary: of which tokens.
            eos_token_ids: the ids that end a text, or a function that tells which they are now.
        """
        if isinstance(vocabulary, Vocabulary):
            self.vocabulary: Vocabulary = vocabulary
        else:
            lm: Any = vocabulary
            self.vocabulary = lm.vocabulary
            eos_token_ids = lambda: frozenset(lm.eos_token_ids)  # noqa: E731
        if callable(eos_token_ids):
            self._eos_token_ids: Callable[[], Iterable[int]] = eos_token_ids
        else:
            fixed = frozenset(eos_token_ids)
            self._eos_token_ids = lambda: fixed
        self._eos: tuple[frozenset[int], TokenMask] | None = None
        # Bounded: a model that counts down its characters asks for a new pair at each step.
        self._length_mask = functools.lru_cache(maxsize=64)(self._make_length_mask)

    @functools.cached_property
    def ALL_TOKENS(self) -> TokenMask:  # noqa: N802  # the historical name, as all in capitals here
        """Every token that exists."""
        return self._mask(self.vocabulary.exists)

    @functools.cached_property
    def STARTS_NEW_WORD(self) -> TokenMask:  # noqa: N802
        """A space, then something that is neither white space, punctuation nor invisible."""
        return self._of_text(lambda text: len(text) > 1 and text[0] == " " and _is_visible(text[1]))

    @functools.cached_property
    def CONTINUES_CURRENT_WORD(self) -> TokenMask:  # noqa: N802
        """Letters of any script, with their combining marks, and apostrophes (' and ’), nothing else."""
        return self._of_text(_is_letters)

    @functools.cached_property
    def MID_PUNCTUATION(self) -> TokenMask:  # noqa: N802
        """One mark inside a sentence, and nothing else: , : ; - " and their kin in Unicode."""
        return self._of_text(_MID_PUNCTUATION.__contains__)

    @functools.cached_property
    def END_PUNCTUATION(self) -> TokenMask:  # noqa: N802
        """One mark that ends a sentence, and nothing else: . ! ? and their kin in Unicode."""
        return self._of_text(_END_PUNCTUATION.__contains__)

    @functools.cached_property
    def PUNCTUATION(self) -> TokenMask:  # noqa: N802
        """`MID_PUNCTUATION` and `END_PUNCTUATION`."""
        return self.MID_PUNCTUATION.union(self.END_PUNCTUATION)

    @functools.cached_property
    def CONTAINS_WHITESPACE(self) -> TokenMask:  # noqa: N802
        """White space of any kind, anywhere in the token."""
        found = [_WHITE_SPACE.search(text) is not None for text in self.vocabulary.str_vocab]
        return self._mask(np.array(found, dtype=bool) & ~self.vocabulary.special)

    @property
    def EOS(self) -> TokenMask:  # noqa: N802
        """The tokens that end a text, as the language model has them now."""
        now = frozenset(self._eos_token_ids())
        if self._eos is None or self._eos[0] != now:
            self._eos = now, TokenMask.from_ids(self.vocabulary, now)
        return self._eos[1]

    @functools.cached_property
    def special(self) -> TokenMask:
        """The special tokens."""
        return self._mask(self.vocabulary.special)

    # --- by length

    @functools.cached_property
    def MAX_TOKEN_LENGTH(self) -> int:  # noqa: N802
        """The most characters that a token has."""
        return int(self._lengths.max(initial=0))

    def token_length_mask(self, min: int | None = None, max: int | None = None) -> TokenMask:
        """The tokens of at least `min` and at most `max` characters; special tokens have none.

        A character counts for the token in which it begins, so the lengths of the tokens of a text add
        up to the length of the text, and what completes a half character has length 0.
        """
        longest = self.MAX_TOKEN_LENGTH
        lowest = 0 if min is None else builtins.min(builtins.max(min, 0), longest + 1)
        highest = longest if max is None else builtins.min(builtins.max(max, -1), longest)
        return self._length_mask(lowest, highest)

    def _make_length_mask(self, lowest: int, highest: int) -> TokenMask:
        return self._mask((self._lengths >= lowest) & (self._lengths <= highest))

    @functools.cached_property
    def _lengths(self) -> NDArray[np.int64]:
        """(V,) characters that begin in each token."""
        data = np.frombuffer(b"".join(self.vocabulary.byte_vocab), dtype=np.uint8)
        begins = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))
        ends = np.cumsum([len(entry) for entry in self.vocabulary.byte_vocab], dtype=np.int64)
        lengths: NDArray[np.int64] = np.diff(begins[ends], prepend=0)
        lengths[self.vocabulary.special | ~self.vocabulary.exists] = 0
        return lengths

    # --- by content

    def bytes(self, strings: "Iterable[builtins.bytes]", *, special: bool = False) -> TokenMask:
        """Every token that has exactly the bytes of one of `strings`, however many have the same.

        Args:
            strings: a set or list of bytes, not one bytes.
            special: whether special tokens count too. Their bytes are a name, not text.

        Raises:
            ArgumentError: if `strings` holds anything but bytes.
        """
        wanted = self._strings(strings, builtins.bytes)
        ids = [i for entry in wanted for i in self._ids_of.get(entry, ())]
        mask = TokenMask.from_ids(self.vocabulary, ids)
        return mask if special else mask - self.special

    def text(self, strings: Iterable[str], *, special: bool = False) -> TokenMask:
        """Every token that has exactly the text of one of `strings`, as `bytes` does it.

        Raises:
            ArgumentError: if `strings` holds anything but text that can be written in UTF-8.
        """
        try:
            encoded = [string.encode() for string in self._strings(strings, str)]
        except UnicodeEncodeError as error:
            raise ArgumentError(f"no token has a lone surrogate in its text: {error}") from None
        return self.bytes(encoded, special=special)

    def starting_with(self, beginning: "builtins.bytes") -> TokenMask:
        """Every token whose bytes begin with `beginning`, itself included; no special ones."""
        found = [entry.startswith(beginning) for entry in self.vocabulary.byte_vocab]
        return self._mask(np.array(found, dtype=bool) & ~self.vocabulary.special)

    @functools.cached_property
    def _ids_of(self) -> "dict[builtins.bytes, list[int]]":
        ids_of: dict[builtins.bytes, list[int]] = {}
        for token_id, entry in enumerate(self.vocabulary.byte_vocab):
            ids_of.setdefault(entry, []).append(token_id)
        return ids_of

    @staticmethod
    def _strings(strings: "Iterable[_S]", kind: "type[_S]") -> "list[_S]":
        listed = list(strings)
        if isinstance(strings, str | builtins.bytes) or not all(isinstance(entry, kind) for entry in listed):
            raise ArgumentError(f"a set or a list of {kind.__name__} belongs here, not {strings!r}")
        return listed

    def _of_text(self, test: Callable[[str], bool]) -> TokenMask:
        """The tokens of whole characters, not special, whose text passes a test."""
        found = [bool(text) and test(text) for text in self.vocabulary.str_vocab]
        return self._mask(np.array(found, dtype=bool) & self._whole & ~self.vocabulary.special)

    @functools.cached_property
    def _whole(self) -> NDArray[np.bool_]:
        """(V,) whether the bytes are whole characters."""
        # Only what shows a U+FFFD can be broken, and it may also be that character itself.
        pairs = zip(self.vocabulary.str_vocab, self.vocabulary.byte_vocab, strict=True)
        return np.array(["\ufffd" not in text or text.encode() == data for text, data in pairs], dtype=bool)

    def _mask(self, allowed: NDArray[np.bool_]) -> TokenMask:
        return TokenMask(self.vocabulary, allowed & self.vocabulary.exists)

    def __deepcopy__(self, memo: dict[int, object]) -> "Masks":
        return self

    def __repr__(self) -> str:
        return f"<Masks of {self.vocabulary!r}>"


def _is_letters(text: str) -> bool:
    if text.isalpha():
        return True
    return all(c.isalpha() or _is_mark(c) for c in text.translate(_APOSTROPHES))


def _is_mark(character: str) -> bool:
    """Whether it combines with a letter: an accent, a vowel sign. Emoji and text style selectors do not."""
    return unicodedata.category(character) in ("Mn", "Mc") and character not in "\ufe0e\ufe0f"


def _is_visible(character: str) -> bool:
    category = unicodedata.category(character)
    return not (
        character.isspace() or category in _PUNCTUATION_CATEGORIES or category in _INVISIBLE_CATEGORIES
    )
