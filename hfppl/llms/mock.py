"""A free language model over a real vocabulary: deterministic pseudo-random logits, for tests and timing."""

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .prefix import Prefix

_SPREAD = 3.0  # nats: about as peaked as a small language model


class MockBackend:
    """Logits that depend on the last few tokens only, and cost next to nothing.

    Each row is a window into one fixed table of normal variates, at an offset hashed from the last
    four ids. So equal contexts have equal rows on every machine and in every run.
    """

    model = None
    device = "cpu"
    accepts_empty = False

    def __init__(self, n_logits: int, max_context: int | None = None) -> None:
        self.n_logits = n_logits
        self.max_context = max_context
        table = np.random.Generator(np.random.PCG64(20230605)).standard_normal(2 * n_logits + 4096)
        self._table: NDArray[np.float32] = (_SPREAD * table).astype(np.float32)
        self._forward_passes = 0
        self._evaluated = 0

    def evaluate(self, prefixes: Sequence[Prefix]) -> list[NDArray[np.float32]]:
        """One window of the table for each sequence."""
        self._forward_passes += 1
        self._evaluated += len(prefixes)
        rows = []
        for prefix in prefixes:
            recent = np.array(prefix.token_ids(max(0, len(prefix) - 4)), dtype=np.int64)
            offset = zlib.crc32(recent.tobytes()) % (self.n_logits + 4096)
            rows.append(self._table[offset : offset + self.n_logits])
        return rows

    def keep(self, prefix: Prefix) -> None:
        """Nothing makes it cheaper."""

    def clear(self) -> None:
        """Nothing is kept."""

    def counters(self) -> Mapping[str, int]:
        """Calls of `evaluate`, and sequences evaluated."""
        return {
            "forward_passes": self._forward_passes,
            "tokens_evaluated": self._evaluated,
            "tokens_reused": 0,
            "kv_bytes": 0,
        }
