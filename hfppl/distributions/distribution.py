"""What a model can sample from and observe."""

import html
from typing import Generic, TypeVar

from ..display import Bars, bars_html
from ..errors import ModelError

T = TypeVar("T")


class Distribution(Generic[T]):
    """A distribution over values of type `T`. Subclass it to bring your own.

    Draw random numbers from `hfppl.rng()`, asked for anew at each draw, so that a run's seed fixes
    them. A subclass that is only ever sampled, or only ever observed, may leave the other method out.
    One that can list its values offers `support()`, which returns them, so that it can be enumerated.
    """

    async def sample(self) -> tuple[T, float]:
        """A value and its log-probability, in nats."""
        raise ModelError(f"{type(self).__name__} cannot be sampled: it has no `async def sample(self)`")

    async def log_prob(self, x: T) -> float:
        """Log-probability of a value, in nats; -inf if it is impossible."""
        raise ModelError(f"{type(self).__name__} has no `async def log_prob(self, x)`")

    async def outcomes(self) -> list[tuple[T, float]]:
        """Every value and its log-probability, for enumeration. Asks, and does not act.

        Raises:
            ModelError: if the values cannot be listed.
        """
        if not hasattr(self, "support"):
            raise ModelError(
                f"the values of {self!r} cannot be listed, so sample(...) from it cannot be enumerated; "
                "give the distribution a support()"
            )
        return [(x, await self.log_prob(x)) for x in self.support()]

    async def intervene(self, x: T) -> bool:
        """Do what drawing `x` would do besides; False if that cannot be done."""
        await self.log_prob(x)
        return True

    def _bars(self) -> Bars | None:
        """What a notebook shows: probabilities known without asking anybody. None for no picture."""
        return None

    def _repr_html_(self) -> str | None:
        bars = self._bars()
        return None if bars is None else f"<code>{html.escape(repr(self))}</code>{bars_html(bars)}"
