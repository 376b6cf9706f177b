"""The seam between the language and the machinery that evaluates a language model."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .prefix import Prefix


class Backend(Protocol):
    """What a language model must be able to do: one row of logits for each sequence of token ids.

    Everything above (joining requests, the cache of rows, masks, temperature) is shared by all
    backends; everything below (padding, positions, keys and values) belongs to one. Calls come from
    one thread at a time, and never from an event loop's.
    """

    model: Any
    """What computes the logits, as its library knows it; None if there is no such thing."""

    n_logits: int
    """Length of the rows `evaluate` returns."""

    max_context: int | None
    """The longest sequence that can be evaluated, in tokens; None if there is no limit."""

    device: str
    """Where the model computes, in torch's words."""

    accepts_empty: bool
    """Whether the empty sequence has a next-token distribution."""

    def evaluate(self, prefixes: Sequence[Prefix]) -> Sequence[NDArray[np.floating] | Exception]:
        """One row of raw logits `(n_logits,)`, float32 or float64, for each sequence, in order.

        The sequences are distinct, within `max_context`, and not empty unless `accepts_empty`. An
        exception in a row's place concerns that sequence only; one that is raised fails the whole batch,
        and the backend must then be ready for the next call.
        """
        ...

    def keep(self, prefix: Prefix) -> None:
        """Hold on to whatever makes continuations of `prefix` cheap, until `clear`."""
        ...

    def clear(self) -> None:
        """Forget all that was kept between calls."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Running totals: `forward_passes`, `tokens_evaluated`, `tokens_reused`, `kv_bytes` (current)."""
        ...
