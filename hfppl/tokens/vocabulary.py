"""What a tokenizer's ids mean: their bytes, and which of them exist."""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import VocabularyError


class Vocabulary:
    """The tokens of one language model, by id. V is the highest id plus one. Immutable and shared.

    An id exists if the tokenizer has a token for it and the model a logit. An id that does not exist
    (a hole in the numbering, a token beyond the logits) keeps its place in every row, but has
    probability zero and is in no mask.

    Attributes:
        byte_vocab: V entries, the exact bytes of each token; `b""` for a hole.
        exists: (V,) bool, read-only.
        special: (V,) bool, read-only; tokens that stand for no text of their own, such as an end of text.
        strips_first_space: whether the tokenizer writes a space before the first word that its text lacks.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes | None],
        *,
        special_ids: Iterable[int] = (),
        strips_first_space: bool = False,
        n_logits: int | None = None,
    ) -> None:
        """Args: `token_bytes[i]` is None for a hole; `n_logits` is the length of the model's rows."""
        self.byte_vocab: list[bytes] = [b"" if entry is None else entry for entry in token_bytes]
        n_scored = len(token_bytes) if n_logits is None else n_logits
        self.exists = _frozen([entry is not None and i < n_scored for i, entry in enumerate(token_bytes)])
        special = np.zeros(len(token_bytes), dtype=bool)
        special[[i for i in special_ids if 0 <= i < len(token_bytes)]] = True
        self.special = _frozen(special)
        self.strips_first_space = strips_first_space

    @property
    def size(self) -> int:
        """V: the highest id plus one."""
        return len(self.byte_vocab)

    @functools.cached_property
    def str_vocab(self) -> list[str]:
        """V entries: the text of each token; U+FFFD where the bytes are not whole characters."""
        return [entry.decode("utf-8", errors="replace") for entry in self.byte_vocab]

    @functools.cached_property
    def all_exist(self) -> bool:
        """Whether every id below V exists."""
        return bool(self.exists.all())

    @functools.cached_property
    def digest(self) -> bytes:
        """A fingerprint: equal for equal vocabularies."""
        state = hashlib.blake2b(digest_size=16)
        state.update(self.exists.tobytes() + self.special.tobytes() + bytes([self.strips_first_space]))
        for entry in self.byte_vocab:
            state.update(len(entry).to_bytes(4, "little"))
            state.update(entry)
        return state.digest()

    def check_id(self, token_id: int) -> int:
        """`token_id` if it lies in 0 ... V-1; otherwise a VocabularyError."""
        if not 0 <= token_id < self.size:
            raise VocabularyError(
                f"there is no token {token_id}: the ids of this vocabulary are 0 to {self.size - 1}"
            )
        return token_id

    def check_same(self, other: "Vocabulary", what: str) -> None:
        """Raise a VocabularyError if `other`, the vocabulary of `what`, is not this one."""
        if self is not other and self != other:
            raise VocabularyError(
                f"{what} belongs to a language model with another vocabulary "
                f"({other.size} ids, here {self.size}); make it anew from its text with this one"
            )

    def join(self, token_ids: Iterable[int]) -> bytes:
        """The bytes of a whole text, from its first token on."""
        ids = list(token_ids)
        data = b"".join([self.byte_vocab[i] for i in ids])
        if self.strips_first_space:
            lead = 0
            for i in ids:
                if not self.special[i]:
                    if self.byte_vocab[i].startswith(b" "):
                        return data[:lead] + data[lead + 1 :]
                    break
                lead += len(self.byte_vocab[i])
        return data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self is other or (self.size == other.size and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Vocabulary":
        return self

    def __repr__(self) -> str:
        return f"<Vocabulary of {int(self.exists.sum())} tokens>"


def decode(data: bytes) -> str:
    """Text of token bytes; U+FFFD stands for what is not, or not yet, a whole character."""
    return data.decode("utf-8", errors="replace")


def _frozen(values: Sequence[bool] | NDArray[np.bool_]) -> NDArray[np.bool_]:
    row = np.array(values, dtype=bool)
    row.flags.writeable = False
    return row
