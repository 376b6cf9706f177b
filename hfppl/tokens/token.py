"""One token, and a sequence of them, as values of a user's model."""

import operator
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from ..errors import ArgumentError, VocabularyError
from .vocabulary import Vocabulary, decode


class HasVocabulary(Protocol):
    """A language model, as far as its tokens need to know it."""

    @property
    def vocabulary(self) -> Vocabulary: ...  # noqa: D102

    @property
    def tokenizer(self) -> Any: ...  # noqa: D102


class Token:
    """A token of a language model's vocabulary.

    Equal to a token of the same id within one vocabulary, and to its id; never to a string. Hashed by
    its id. `text + token` is a str, `token + token` a `TokenSequence`.

    Attributes:
        lm: the language model it belongs to.
        token_id: its id.
    """

    __slots__ = ("lm", "token_id")

    def __init__(self, lm: HasVocabulary, token_id: int, token_str: str | None = None) -> None:
        """Args: `token_str` is accepted for older scripts and ignored: the text is the vocabulary's.

        Raises:
            VocabularyError: if there is no such id.
        """
        self.lm = lm
        try:
            self.token_id = lm.vocabulary.check_id(operator.index(token_id))
        except TypeError:
            raise VocabularyError(f"a token has an int for its id, not {token_id!r}") from None

    @property
    def byte_string(self) -> bytes:
        """The exact bytes, which need not be whole characters."""
        return self.lm.vocabulary.byte_vocab[self.token_id]

    @property
    def token_str(self) -> str:
        """The text: `str(token)`."""
        return self.lm.vocabulary.str_vocab[self.token_id]

    def __str__(self) -> str:
        return self.lm.vocabulary.str_vocab[self.token_id]

    def __int__(self) -> int:
        return self.token_id

    def __index__(self) -> int:
        return self.token_id

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Token):
            return self.token_id == other.token_id and self.lm.vocabulary == other.lm.vocabulary
        try:
            return self.token_id == operator.index(other)  # type: ignore[arg-type]
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.token_id)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, str):
            return str(self) + other
        return TokenSequence(self.lm, [self]) + other

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, str):
            return other + str(self)
        return TokenSequence(self.lm, [self]).__radd__(other)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Token":
        return self

    def __repr__(self) -> str:
        return f"<{str(self)!r}|{self.token_id}>"


class TokenSequence:
    """A growing list of token ids that knows its text.

    `+` makes a new sequence, `+=` extends this one. The other side is a sequence, a token, an id, or a
    str, which is encoded by the tokenizer (the one place where text is turned into tokens for you).

    Attributes:
        lm: the language model whose tokens these are.
        seq: list of ids.
    """

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __init__(
        self, lm: HasVocabulary, seq: "str | Iterable[int | Token] | TokenSequence | None" = None
    ) -> None:
        """Args: `seq` is ids, tokens, or text to encode; without it, the start token alone.

        Raises:
            ArgumentError: if `seq` is left out and the tokenizer has no start token.
            VocabularyError: for an id that does not exist, or a token of another vocabulary.
        """
        self.lm = lm
        if seq is None:
            start = getattr(lm.tokenizer, "bos_token_id", None)
            if start is None:
                raise ArgumentError("this tokenizer has no start token: give the sequence something to hold")
            self.seq: list[int] = [start]
        elif isinstance(seq, str):
            self.seq = list(lm.tokenizer.encode(seq))
        else:
            self.seq = self._ids(seq)

    def _ids(self, other: Any) -> list[int]:
        vocabulary = self.lm.vocabulary
        if isinstance(other, TokenSequence):
            vocabulary.check_same(other.lm.vocabulary, "the sequence")
            return list(other.seq)
        if isinstance(other, Token):
            vocabulary.check_same(other.lm.vocabulary, f"the token {other!r}")
            return [other.token_id]
        if isinstance(other, str):
            return list(self.lm.tokenizer.encode(other, add_special_tokens=False))
        if isinstance(other, Iterable):
            return [token_id for item in other for token_id in self._ids_of_one(item)]
        return self._ids_of_one(other)

    def _ids_of_one(self, item: Any) -> list[int]:
        if isinstance(item, str):
            raise VocabularyError(f"token ids belong here, not text ({item!r})")
        if isinstance(item, Token):
            return self._ids(item)
        try:
            return [self.lm.vocabulary.check_id(operator.index(item))]
        except TypeError:
            raise VocabularyError(f"neither a token nor a token id: {item!r}") from None

    def __iadd__(self, other: Any) -> "TokenSequence":
        self.seq.extend(self._ids(other))
        return self

    def __add__(self, other: Any) -> "TokenSequence":
        return TokenSequence(self.lm, self.seq + self._ids(other))

    def __radd__(self, other: Any) -> "TokenSequence":
        return TokenSequence(self.lm, self._ids(other) + self.seq)

    def __len__(self) -> int:
        return len(self.seq)

    def __iter__(self) -> Iterator[int]:
        return iter(self.seq)

    def __getitem__(self, index: Any) -> Any:
        return self.seq[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenSequence):
            return NotImplemented
        return self.seq == other.seq and self.lm.vocabulary == other.lm.vocabulary

    def __bytes__(self) -> bytes:
        return self.lm.vocabulary.join(self.seq)

    def __str__(self) -> str:
        return decode(bytes(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> "TokenSequence":
        return TokenSequence(self.lm, list(self.seq))

    def __repr__(self) -> str:
        return f"<TokenSequence {str(self)!r}>"
