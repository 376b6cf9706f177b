"""The number of tries up to the first success."""

import math
import operator

from ..display import Bars
from ..errors import ArgumentError
from ..random import rng
from .distribution import Distribution


class Geometric(Distribution[int]):
    """1, 2, 3, ... with probability p (1 - p)^(n - 1)."""

    def __init__(self, p: float) -> None:
        """Raises an ArgumentError unless 0 < p <= 1."""
        if not 0 < p <= 1:
            raise ArgumentError(f"the success probability of a Geometric lies in (0, 1], not at {p}")
        self.p = float(p)

    async def sample(self) -> tuple[int, float]:
        """One draw of numpy's geometric."""
        n = int(rng().geometric(self.p))
        return n, await self.log_prob(n)

    async def log_prob(self, x: int) -> float:
        """-inf for what is not a whole number of at least 1."""
        try:
            n = operator.index(x)
        except TypeError:
            return -math.inf
        if n < 1:
            return -math.inf
        if self.p == 1:
            return 0.0 if n == 1 else -math.inf
        return math.log(self.p) + (n - 1) * math.log1p(-self.p)

    async def argmax(self, idx: int) -> int:
        """The value of rank `idx`, the likeliest first."""
        return idx + 1

    def _bars(self) -> Bars:
        rows = [(str(n), self.p * (1 - self.p) ** (n - 1)) for n in range(1, 11)]
        return Bars(rows, ("11 and more", (1 - self.p) ** 10))

    def __repr__(self) -> str:
        return f"Geometric({self.p:g})"
