"""A set of token ids, held as a row of booleans."""

import functools
import operator
from collections.abc import Collection, Iterable, Iterator, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..display import token_label
from ..errors import VocabularyError
from .token import Token
from .vocabulary import Vocabulary


class TokenMask(Set[int]):
    """Which token ids may come next: a set of ints, immutable, that costs V bytes and is tested in bulk.

    It takes part in `in`, `&`, `|`, `-`, `^`, `~`, `len`, iteration and comparison like any set of
    ints; both sides may be a mask or a Python set. `~mask` is every token that exists and is not in
    `mask`. Make one with `lm.token_mask(ids)`, once, and share it.
    """

    __slots__ = ("__dict__", "allowed", "vocabulary")

    allowed: NDArray[np.bool_]  # (V,) read-only
    vocabulary: Vocabulary

    def __init__(self, vocabulary: Vocabulary, allowed: NDArray[np.bool_]) -> None:
        """Args: `allowed` is (V,) bool, kept and made read-only; ids that do not exist drop out."""
        if allowed.shape != (vocabulary.size,) or allowed.dtype != np.bool_:
            raise VocabularyError(
                f"a mask is a row of {vocabulary.size} booleans, not {allowed.dtype} of shape {allowed.shape}"
            )
        if not vocabulary.all_exist:
            allowed = allowed & vocabulary.exists
        allowed.flags.writeable = False
        self.allowed = allowed
        self.vocabulary = vocabulary

    @classmethod
    def from_ids(cls, vocabulary: Vocabulary, ids: "Iterable[int | Token]") -> "TokenMask":
        """A mask of token ids or tokens; a mask of the same vocabulary is returned as it is.

        Raises:
            VocabularyError: for an id outside 0 ... V-1, or anything that is not an id.
        """
        if isinstance(ids, TokenMask):
            vocabulary.check_same(ids.vocabulary, "the mask")
            return ids
        if isinstance(ids, str | bytes):
            raise VocabularyError(
                f"a mask is made of token ids, not of text ({ids!r}); "
                "`lm.masks.bytes({...})` finds the tokens that have given bytes"
            )
        allowed = np.zeros(vocabulary.size, dtype=bool)
        if isinstance(ids, np.ndarray) and ids.dtype == np.bool_:
            return cls(vocabulary, ids.copy())
        try:
            items = ids if isinstance(ids, Collection) else list(ids)
            index = np.fromiter(map(operator.index, items), dtype=np.int64, count=len(items))
        except (TypeError, OverflowError) as error:
            raise VocabularyError(f"a mask is made of token ids (ints or tokens): {error}") from None
        # Plain ids are the common case, and told apart in bulk.
        kinds = set() if isinstance(ids, np.ndarray) else set(map(type, items))
        if bool in kinds or np.bool_ in kinds:
            raise VocabularyError("a mask is made of token ids, not of True and False; pass a boolean array")
        if any(issubclass(kind, Token) for kind in kinds):
            for item in items:
                if isinstance(item, Token):
                    vocabulary.check_same(item.lm.vocabulary, f"the token {item!r}")
        if index.size:
            vocabulary.check_id(int(index.min()))
            vocabulary.check_id(int(index.max()))
            allowed[index] = True
        return cls(vocabulary, allowed)

    # --- a set of ints

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Token):
            self.vocabulary.check_same(item.lm.vocabulary, f"the token {item!r}")
        try:
            token_id = operator.index(item)  # type: ignore[arg-type]  # anything else is simply not in the set
        except TypeError:
            return False
        return 0 <= token_id < len(self.allowed) and bool(self.allowed[token_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids.tolist())

    def __len__(self) -> int:
        return self._length

    @functools.cached_property
    def _length(self) -> int:
        return int(np.count_nonzero(self.allowed))

    @functools.cached_property
    def factors(self) -> NDArray[np.float32]:
        """(V,) 1 where allowed, 0 elsewhere: what a row of probabilities is multiplied by."""
        return self.allowed.astype(np.float32)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids in the set, ascending."""
        return np.flatnonzero(self.allowed)

    def __and__(self, other: Any) -> Any:
        return self._combine(np.logical_and, self._without_strangers(other))

    def __or__(self, other: Any) -> Any:
        return self._combine(np.logical_or, other)

    def __xor__(self, other: Any) -> Any:
        return self._combine(np.logical_xor, other)

    def __sub__(self, other: Any) -> Any:
        return self._combine(np.greater, self._without_strangers(other))

    def __rsub__(self, other: Any) -> Any:
        return self._combine(np.less, other)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __invert__(self) -> "TokenMask":
        return TokenMask(self.vocabulary, ~self.allowed)

    def union(self, *others: Iterable[int]) -> "TokenMask":
        """This set and all the others, each any iterable of ids."""
        return functools.reduce(lambda mask, ids: mask | self._coerce(ids), others, self)

    def intersection(self, *others: Iterable[int]) -> "TokenMask":
        """What this set and all the others hold, each any iterable of ids."""
        return functools.reduce(lambda mask, ids: mask & self._coerce(ids), others, self)

    def difference(self, *others: Iterable[int]) -> "TokenMask":
        """What this set holds and none of the others, each any iterable of ids."""
        return functools.reduce(lambda mask, ids: mask - self._coerce(ids), others, self)

    def issubset(self, other: Iterable[int]) -> bool:
        """Whether everything in this set is in `other`, any iterable of ids."""
        return self <= set(other)

    def issuperset(self, other: Iterable[int]) -> bool:
        """Whether everything in `other`, any iterable of ids, is in this set."""
        return all(item in self for item in other)

    def symmetric_difference(self, other: Iterable[int]) -> "TokenMask":
        """What is in one of the two and not in the other."""
        return TokenMask(self.vocabulary, self.allowed ^ self._coerce(other).allowed)

    def copy(self) -> "TokenMask":
        """Itself: it never changes."""
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TokenMask):
            return self.vocabulary == other.vocabulary and bool(np.array_equal(self.allowed, other.allowed))
        return super().__eq__(other)

    def __hash__(self) -> int:
        return self._cached_hash

    @functools.cached_property
    def _cached_hash(self) -> int:
        return self._hash()  # that of an equal frozenset

    def __deepcopy__(self, memo: dict[int, Any]) -> "TokenMask":
        return self

    def __repr__(self) -> str:
        shown = ", ".join(token_label(self.vocabulary.byte_vocab[i]) for i in self.ids[:6])
        return f"<TokenMask of {len(self)} tokens: {shown}{', ...' if len(self) > 6 else ''}>"

    def _without_strangers(self, other: Any) -> Any:
        """What of a set of ids can matter to an intersection or a difference."""
        if isinstance(other, TokenMask) or not isinstance(other, Set):
            return other
        return {item for item in other if not isinstance(item, int) or 0 <= item < len(self.allowed)}

    def _coerce(self, ids: "Iterable[int | Token]") -> "TokenMask":
        return TokenMask.from_ids(self.vocabulary, ids)

    def _combine(self, operation: np.ufunc, other: object) -> Any:
        if not isinstance(other, Set):
            return NotImplemented
        return TokenMask(self.vocabulary, operation(self.allowed, self._coerce(other).allowed))
