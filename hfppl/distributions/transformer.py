"""The next token after a fixed prompt."""

from typing import TYPE_CHECKING, Any

from ..display import Bars, visible
from ..random import rng
from ..tokens import Token, decode
from .distribution import Distribution
from .values import check_temperature, token_bars, token_id_of, token_outcomes

if TYPE_CHECKING:
    from ..llms import CachedCausalLM


class Transformer(Distribution[Token]):
    """A token, with the probabilities a language model gives it after a prompt. Advances nothing."""

    def __init__(self, lm: "CachedCausalLM", prompt: Any, temp: float = 1.0) -> None:
        """Args: `prompt` is a text, token ids, tokens or a `TokenSequence`; `temp` as in `LMContext`."""
        self.lm = lm
        self.temp = check_temperature(temp)
        self._prefix = lm.prompt_prefix(prompt)

    @property
    def prompt(self) -> list[int]:
        """The token ids of the prompt."""
        return self._prefix.token_ids()

    async def sample(self) -> tuple[Token, float]:
        """One uniform, by inversion."""
        row = await self.lm.row(self._prefix)
        mass = row.mass(self.temp)
        token_id = row.draw(rng().random(), mass, self.temp)
        return Token(self.lm, token_id), row.log_prob(token_id, mass, self.temp)

    async def log_prob(self, x: Any) -> float:
        """Args: `x` is a token or a token id."""
        token_id = token_id_of(self.lm, x)
        row = await self.lm.row(self._prefix)
        return row.log_prob(token_id, row.mass(self.temp), self.temp)

    async def outcomes(self) -> list[tuple[Token, float]]:
        """Every token that is possible, and its log-probability."""
        logprobs = (await self.lm.row(self._prefix)).logprobs(self.temp)
        return token_outcomes(self.lm, logprobs)

    def __repr__(self) -> str:
        prompt = decode(self.lm.vocabulary.join(self.prompt))
        temp = f", temp={self.temp:g}" if self.temp != 1 else ""
        return f"<Transformer after {visible(prompt, 60, end=True)}{temp}>"

    def _bars(self) -> Bars | None:
        row = self.lm.known_row(self._prefix)
        return None if row is None else token_bars(self.lm, row.logprobs(self.temp))
