"""A bounded memory of logits rows, least recently used out first."""

import threading
import weakref
from collections import OrderedDict

from ..errors import ArgumentError
from ..logits import LogitsRow
from .prefix import Prefix


class RowCache:
    """Rows by sequence, up to a number of bytes. A row somebody still holds is found even after it left.

    Safe to use from several threads.
    """

    def __init__(self, max_bytes: int) -> None:
        """Raises an ArgumentError for a negative limit."""
        if max_bytes < 0:
            raise ArgumentError(f"row_cache_bytes is a number of bytes from 0 up, not {max_bytes}")
        self.max_bytes = max_bytes
        self.nbytes = 0
        self.hits = 0
        self.misses = 0
        self._rows: OrderedDict[Prefix, LogitsRow] = OrderedDict()
        self._generation = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, prefix: Prefix) -> LogitsRow | None:
        """The row of a sequence, if it is still in anybody's hands."""
        row = self.peek(prefix)
        with self._lock:
            if row is None:
                self.misses += 1
                return None
            self.hits += 1
            if prefix in self._rows:
                self._rows.move_to_end(prefix)
        return row

    def peek(self, prefix: Prefix) -> LogitsRow | None:
        """The same, for one who only looks: nothing is counted, and nothing stays longer for it."""
        if prefix.row is None or prefix.row[0] != self._generation:
            return None
        return prefix.row[1]()

    def put(self, prefix: Prefix, row: LogitsRow) -> None:
        """Remember a row."""
        with self._lock:
            prefix.row = (self._generation, weakref.ref(row))
            if prefix in self._rows:
                self.nbytes -= self._rows.pop(prefix).nbytes
            self._rows[prefix] = row
            self.nbytes += row.nbytes
            while self.nbytes > self.max_bytes:
                self.nbytes -= self._rows.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Forget every row, those too that only others still hold."""
        with self._lock:
            self._generation += 1
            self._rows.clear()
            self.nbytes = 0
