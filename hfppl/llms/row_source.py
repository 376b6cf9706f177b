"""From a sequence of token ids to its row of logits: by memory, by the batch that is gathering, or now."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import NumericalError
from ..logits import LogitsRow
from ..tokens import Vocabulary
from ..turn import current_turn
from .backend import Backend
from .batching import Batcher
from .dead import placeholder_row
from .prefix import Prefix
from .prompt import check_length
from .row_cache import RowCache

# A batch's rows are held until its particles have drawn; this many bytes of them at a time.
_BATCH_ROW_BYTES = 2**28


Answer = LogitsRow | Exception


@dataclass(frozen=True, slots=True)
class LMStats:
    """What a language model has done since it was made, and holds now.

    Attributes:
        requests: rows asked for; `row_hits` of them were answered from memory.
        forward_passes: calls of the model.
        tokens_evaluated: token positions computed; `tokens_reused` were not, being held already.
        row_bytes: bytes of logits rows held; `kv_bytes`, of keys and values.
        batch_sizes: how many batches there were of each size.
    """

    requests: int
    row_hits: int
    forward_passes: int
    tokens_evaluated: int
    tokens_reused: int
    row_bytes: int
    kv_bytes: int
    batch_sizes: dict[int, int]


class RowSource:
    """Answers requests for rows, from any number of event loops and threads.

    Attributes:
        root: the empty sequence; all others descend from it.
        batch_size: the most sequences evaluated together; None for all that wait.
        eos_token_ids: the ids that end a text.
    """

    def __init__(self, backend: Backend, vocabulary: Vocabulary, row_cache_bytes: int | None) -> None:
        self.root = Prefix.root()
        self.batch_size: int | None = None
        self.eos_token_ids: frozenset[int] = frozenset()
        self._backend = backend
        self._vocabulary = vocabulary
        self._cache = RowCache(_default_cache_bytes() if row_cache_bytes is None else row_cache_bytes)
        self._batcher: Batcher[Prefix, LogitsRow] = Batcher(self._evaluate, self._batch_limit)
        self._requests = 0
        self._batch_sizes: dict[int, int] = {}

    async def row(self, prefix: Prefix) -> LogitsRow:
        """The row of a sequence, from memory or with the next batch."""
        row = self._known(prefix)
        return await self._batcher.request(prefix) if row is None else row

    def row_now(self, prefix: Prefix) -> LogitsRow:
        """`row`, blocking."""
        row = self._known(prefix)
        if row is not None:
            return row
        answer = self._batcher.evaluate_now([prefix])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def peek(self, prefix: Prefix) -> LogitsRow | None:
        """The row of a sequence if it is in memory. Asks nothing, counts nothing."""
        return self._cache.peek(prefix)

    def keep(self, prefix: Prefix) -> None:
        """Evaluate a sequence, and keep what makes its continuations cheap."""
        check_length(self._backend.max_context, len(prefix))
        self._batcher.run(lambda: self._backend.keep(prefix))

    def clear(self, rows: bool) -> None:
        """Forget keys and values, and the rows too if asked to."""
        self._batcher.run(lambda: self._forget(rows))

    def reset(self) -> None:
        """Fail whatever is waiting for a batch."""
        self._batcher.reset()

    def stats(self) -> LMStats:
        """Counts so far."""
        counters = self._backend.counters()
        return LMStats(
            requests=self._requests,
            row_hits=self._cache.hits,
            forward_passes=counters["forward_passes"],
            tokens_evaluated=counters["tokens_evaluated"],
            tokens_reused=counters["tokens_reused"],
            row_bytes=self._cache.nbytes,
            kv_bytes=counters["kv_bytes"],
            batch_sizes=dict(sorted(self._batch_sizes.items())),
        )

    def _known(self, prefix: Prefix) -> LogitsRow | None:
        self._requests += 1
        turn = current_turn()
        if turn is not None and turn.dead:
            return placeholder_row(self._vocabulary, self.eos_token_ids, turn)
        row = self._cache.get(prefix)
        if row is None:
            check_length(self._backend.max_context, len(prefix))
        return row

    # --- on the worker's thread

    def _forget(self, rows: bool) -> None:
        if rows:
            self._cache.clear()
        self._backend.clear()

    def _batch_limit(self) -> int:
        by_memory = max(16, _BATCH_ROW_BYTES // (4 * self._vocabulary.size))
        return by_memory if self.batch_size is None else min(self.batch_size, by_memory)

    def _evaluate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        answers: dict[Prefix, Answer] = {}
        for prefix in prefixes:  # another event loop may have had it computed meanwhile
            row = self._cache.get(prefix)
            if row is not None:
                answers[prefix] = row
        missing = [prefix for prefix in prefixes if prefix not in answers]
        if missing:
            self._batch_sizes[len(missing)] = self._batch_sizes.get(len(missing), 0) + 1
            for prefix, logits in zip(missing, self._backend.evaluate(missing), strict=True):
                answers[prefix] = self._remember(prefix, logits)
        return [answers[prefix] for prefix in prefixes]

    def _remember(self, prefix: Prefix, logits: NDArray[np.floating] | Exception) -> Answer:
        """A row of V logits of its own memory; or what went wrong with it."""
        if isinstance(logits, Exception):
            return logits
        vocabulary = self._vocabulary
        fitted = np.empty(vocabulary.size, dtype=logits.dtype)
        n = min(vocabulary.size, len(logits))
        fitted[:n] = logits[:n]
        fitted[n:] = -np.inf
        if not vocabulary.all_exist:
            fitted[~vocabulary.exists] = -np.inf
        try:
            row = LogitsRow(fitted)
        except NumericalError as error:
            ids = prefix.token_ids()
            shown = f"{'... ' if len(ids) > 8 else ''}{ids[-8:]}"
            return NumericalError(f"the language model, asked what follows the tokens {shown}: {error}")
        self._cache.put(prefix, row)
        return row


def _default_cache_bytes() -> int:
    """A 256th of the machine's memory, between 64 MiB and 1 GiB.

    What particles are working on they hold themselves; beyond that, a row is asked for again only by
    another run from the same prompt, or never. And memory that is used again is much faster than new.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system: assume 16 GiB
        memory = 2**34
    return min(max(memory // 256, 2**26), 2**30)
