"""A user's judge of texts, one text at a time or many at once."""

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import ArgumentError
from ..llms.batching import Batcher


class Critic:
    """Log-factors of texts, in nats, from a function or from an object with a method `batch`.

    With `batch`, the texts of all particles that ask at the same time are judged by one call, which runs
    on a thread of its own.
    """

    def __init__(self, judge: Any) -> None:
        """Raises: ArgumentError, for what is neither callable nor has a `batch`."""
        self._batcher: Batcher[str, float] | None = None
        self._judge: Callable[[str], Any] = judge
        batch = getattr(judge, "batch", None)
        if callable(batch):
            self._batch = batch
            self._batcher = Batcher(self._judge_all, lambda: sys.maxsize)
        elif not callable(judge):
            raise ArgumentError(
                f"a critic is a function from a text to a log-factor, or has a method batch(texts): {judge!r}"
            )

    async def __call__(self, text: str) -> float:
        """The log-factor of a text.

        Raises:
            ArgumentError: if the critic does not return a number.
        """
        if self._batcher is not None:
            return await self._batcher.request(text)
        answer = self._judge(text)
        return _number(await answer if inspect.isawaitable(answer) else answer)

    def _judge_all(self, texts: Sequence[str]) -> Sequence[float]:
        answer = self._batch(list(texts))
        if not isinstance(answer, Iterable):
            raise ArgumentError(f"critic.batch(texts) must return a log-factor for each text, not {answer!r}")
        factors = [_number(factor) for factor in answer]
        if len(factors) != len(texts):
            raise ArgumentError(f"critic.batch returned {len(factors)} log-factors for {len(texts)} texts")
        return factors

    def __deepcopy__(self, memo: dict[int, Any]) -> "Critic":
        return self


def _number(answer: Any) -> float:
    try:
        return float(answer)
    except (TypeError, ValueError):
        raise ArgumentError(f"a critic's log-factor is a number of nats, not {answer!r}") from None
