"""A choice among 0 ... K-1."""

import math
import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..display import Bars, likeliest
from ..errors import ArgumentError
from ..logits import LogitsRow
from ..random import rng
from .distribution import Distribution


def float_row(logits: ArrayLike) -> LogitsRow:
    """A row of one's own from unnormalised log-probabilities.

    Raises:
        ArgumentError: unless they form a vector of at least one number.
        NumericalError: if one is NaN or +inf.
    """
    row = np.array(logits, dtype=np.float64)
    if row.ndim != 1 or row.size == 0:
        raise ArgumentError(f"logits form a vector of at least one number, not an array of shape {row.shape}")
    return LogitsRow(row)


class LogCategorical(Distribution[int]):
    """An index, with probabilities proportional to the exponentials of some logits."""

    def __init__(self, logits: ArrayLike) -> None:
        """Args: `logits` is (K,) nats, unnormalised; -inf for what is impossible."""
        self._row = float_row(logits)

    @property
    def log_probs(self) -> NDArray[np.float64]:
        """(K,) nats, normalised."""
        return self._row.logprobs()

    async def sample(self) -> tuple[int, float]:
        """One uniform, by inversion."""
        mass = self._row.mass()
        index = self._row.draw(rng().random(), mass)
        return index, self._row.log_prob(index, mass)

    async def log_prob(self, x: int) -> float:
        """-inf for what is not an index."""
        try:
            index = operator.index(x)
        except TypeError:
            return -math.inf
        if not 0 <= index < len(self._row.logits):
            return -math.inf
        return self._row.log_prob(index, self._row.mass())

    def support(self) -> list[int]:
        """Every index that is possible."""
        return [int(i) for i in np.flatnonzero(self._row.logits > -np.inf)]

    async def argmax(self, idx: int) -> int:
        """The index of rank `idx`, the likeliest first; of equals, the lower first."""
        return int(np.argsort(-self._row.logits, kind="stable")[idx])

    def _bars(self) -> Bars:
        return likeliest(np.exp(self.log_probs), str)

    def __repr__(self) -> str:
        return f"<LogCategorical of {len(self._row.logits)}: {self._bars().in_words(3)}>"
