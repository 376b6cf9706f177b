"""A choice among the tokens of a vocabulary, with probabilities of one's own."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..display import Bars
from ..errors import ArgumentError
from ..random import rng
from ..tokens import Token
from .distribution import Distribution
from .logcategorical import float_row
from .values import token_bars, token_id_of

if TYPE_CHECKING:
    from ..llms import CachedCausalLM


class TokenCategorical(Distribution[Token]):
    """A token of `lm`, with probabilities proportional to the exponentials of V logits."""

    def __init__(self, lm: "CachedCausalLM", logits: ArrayLike) -> None:
        """Args: `logits` is (V,) nats, unnormalised, V being `lm.vocab_size`.

        Raises:
            ArgumentError: for another number of logits.
        """
        self.lm = lm
        values = np.array(logits, dtype=np.float64)
        if values.shape != (lm.vocab_size,):
            raise ArgumentError(
                f"one logit for each of the {lm.vocab_size} token ids is needed, not an array of shape "
                f"{values.shape}"
            )
        values[~lm.vocabulary.exists] = -np.inf
        self._row = float_row(values)

    @property
    def log_probs(self) -> NDArray[np.float64]:
        """(V,) nats, normalised."""
        return self._row.logprobs()

    async def sample(self) -> tuple[Token, float]:
        """One uniform, by inversion."""
        mass = self._row.mass()
        token_id = self._row.draw(rng().random(), mass)
        return Token(self.lm, token_id), self._row.log_prob(token_id, mass)

    async def log_prob(self, x: Any) -> float:
        """Args: `x` is a token or a token id."""
        return self._row.log_prob(token_id_of(self.lm, x), self._row.mass())

    def support(self) -> list[Token]:
        """Every token that is possible."""
        return [Token(self.lm, int(i)) for i in np.flatnonzero(self._row.logits > -np.inf)]

    async def argmax(self, idx: int) -> tuple[Token, float]:
        """The token of rank `idx`, the likeliest first, and its log-probability."""
        token_id = int(np.argsort(-self._row.logits, kind="stable")[idx])
        return Token(self.lm, token_id), await self.log_prob(token_id)

    def _bars(self) -> Bars:
        return token_bars(self.lm, self.log_probs)

    def __repr__(self) -> str:
        return f"<TokenCategorical: {self._bars().in_words(3)}>"
