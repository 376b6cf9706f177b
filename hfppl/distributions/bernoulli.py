"""A coin."""

import math

from ..display import Bars
from ..errors import ArgumentError
from ..random import rng
from .distribution import Distribution


class Bernoulli(Distribution[bool]):
    """True with probability p."""

    def __init__(self, p: float) -> None:
        """Raises an ArgumentError unless 0 <= p <= 1."""
        if not 0 <= p <= 1:
            raise ArgumentError(f"the probability of a Bernoulli lies between 0 and 1, not at {p}")
        self.p = float(p)

    async def sample(self) -> tuple[bool, float]:
        """One uniform: True if it falls below p."""
        value = bool(rng().random() < self.p)
        return value, await self.log_prob(value)

    async def log_prob(self, x: bool) -> float:
        """Log p or log(1 - p)."""
        if x:
            return math.log(self.p) if self.p > 0 else -math.inf
        return math.log1p(-self.p) if self.p < 1 else -math.inf

    def support(self) -> list[bool]:
        """Both values."""
        return [False, True]

    async def argmax(self, idx: int) -> bool:
        """The likelier value for 0, the other for 1."""
        return (self.p > 0.5) == (idx == 0)

    def _bars(self) -> Bars:
        return Bars([("True", self.p), ("False", 1 - self.p)])

    def __repr__(self) -> str:
        return f"Bernoulli({self.p:g})"
