"""A language model given by a Python function: for exact tests, for documentation, for teaching."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, VocabularyError
from .prefix import Prefix


class FunctionBackend:
    """Evaluates a function from token ids to a row of logits, one sequence after the other, in float64."""

    max_context = None
    device = "cpu"
    accepts_empty = True

    def __init__(self, next_logits: Callable[[list[int]], ArrayLike], n_logits: int) -> None:
        self.model = next_logits
        self.n_logits = n_logits
        self._forward_passes = 0
        self._evaluated = 0

    def evaluate(self, prefixes: Sequence[Prefix]) -> list[NDArray[np.float64] | Exception]:
        """One call of the function for each sequence; what it raises concerns that sequence only."""
        self._forward_passes += 1
        self._evaluated += len(prefixes)
        return [self._row(prefix.token_ids()) for prefix in prefixes]

    def _row(self, token_ids: list[int]) -> NDArray[np.float64] | Exception:
        try:
            row = np.array(self.model(token_ids), dtype=np.float64)
        except Exception as error:
            return error
        if row.shape != (self.n_logits,):
            return ArgumentError(
                f"next_logits must return {self.n_logits} numbers, one for each token, "
                f"but returned an array of shape {row.shape}"
            )
        return row

    def keep(self, prefix: Prefix) -> None:
        """Nothing makes a function cheaper."""

    def clear(self) -> None:
        """Nothing is kept."""

    def counters(self) -> Mapping[str, int]:
        """Calls of `evaluate`, and of the function."""
        return {
            "forward_passes": self._forward_passes,
            "tokens_evaluated": self._evaluated,
            "tokens_reused": 0,
            "kv_bytes": 0,
        }


class LongestMatchTokenizer:
    """Splits text into the longest tokens that match, from left to right. No merges, no special tokens."""

    bos_token_id: int | None = None
    chat_template = None

    def __init__(self, byte_vocab: Sequence[bytes], eos_token_ids: Iterable[int]) -> None:
        self._byte_vocab = list(byte_vocab)
        self.all_special_ids = sorted(set(eos_token_ids))
        self.eos_token_id = self.all_special_ids[0] if self.all_special_ids else None
        self._by_length: list[tuple[bytes, int]] = sorted(
            (
                (entry, i)
                for i, entry in enumerate(self._byte_vocab)
                if entry and i not in self.all_special_ids
            ),
            key=lambda pair: (-len(pair[0]), pair[1]),
        )

    def __len__(self) -> int:
        return len(self._byte_vocab)

    @property
    def eos_token(self) -> str | None:
        """The text of the first end token."""
        return None if self.eos_token_id is None else self.decode([self.eos_token_id])

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text.

        Raises:
            VocabularyError: at the first place where no token matches.
        """
        data = text.encode()
        ids, at = [], 0
        while at < len(data):
            for entry, token_id in self._by_length:
                if data.startswith(entry, at):
                    ids.append(token_id)
                    at += len(entry)
                    break
            else:
                raise VocabularyError(f"no token of this vocabulary begins {data[at : at + 20]!r}")
        return ids

    def decode(self, token_ids: Iterable[int], **_: Any) -> str:
        """The text of some tokens."""
        return b"".join(self._byte_vocab[i] for i in token_ids).decode(errors="replace")

    def convert_ids_to_tokens(self, token_id: int) -> str:
        """The text of one token."""
        return self.decode([token_id])
