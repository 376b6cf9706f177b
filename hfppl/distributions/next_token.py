"""The two distributions that advance a generation."""

import math
from typing import TYPE_CHECKING, Any

from ..display import Bars
from ..errors import ArgumentError, NoMassError
from ..logits import LogitsRow, Mass
from ..random import rng
from ..tokens import Token, TokenMask
from ..turn import current_turn
from .distribution import Distribution
from .values import token_id_of, token_outcomes

if TYPE_CHECKING:
    from .lmcontext import LMContext


class LMNextToken(Distribution[Token]):
    """The next token of a context. Reads the context when used, not when made."""

    def __init__(self, context: "LMContext") -> None:
        self._context = context

    async def sample(self) -> tuple[Token, float]:
        """Draw a token and add it to the context.

        Raises:
            NoMassError: if no token is possible. (In a model, the particle dies instead.)
        """
        context = self._context
        row = await context._row()
        mask, mass = context._state.mask, context._mass(row)
        turn = current_turn()
        if turn is not None and turn.dead and mass.log_total == -math.inf:
            mask, mass = None, row.mass(context._temp)
        factors = None if mask is None else mask.factors
        token_id = row.draw(rng().random(), mass, context._temp, factors)
        log_prob = row.log_prob(token_id, mass, context._temp)
        context._append(token_id)
        return Token(context.lm, token_id), log_prob

    async def log_prob(self, x: Any) -> float:
        """Log-probability of a token, which is then added to the context unless it is impossible.

        Args:
            x: a token or a token id.
        """
        context = self._context
        token_id = token_id_of(context.lm, x)
        mask = context._state.mask
        if mask is not None and not mask.allowed[token_id]:
            return -math.inf
        row = await context._row()
        log_prob = row.log_prob(token_id, context._mass(row), context._temp)
        if log_prob > -math.inf:
            context._append(token_id)
        return log_prob

    async def outcomes(self) -> list[tuple[Token, float]]:
        """Every token that is possible, and its log-probability. Leaves the context as it is."""
        return token_outcomes(self._context.lm, await self._context.logprobs())

    async def intervene(self, x: Any) -> bool:
        """Add a token to the context, whatever its probability. Asks the language model nothing."""
        self._context._append(token_id_of(self._context.lm, x))
        return True

    def _bars(self) -> Bars | None:
        return self._context._known_bars()

    def __repr__(self) -> str:
        return f"<next token of {self._context!r}>"


class LMTokenMask(Distribution[bool]):
    """Whether the next token of a context is in a mask. Reads the context when used, not when made."""

    def __init__(self, context: "LMContext", mask: TokenMask) -> None:
        self._context = context
        self.mask = mask

    async def sample(self) -> tuple[bool, float]:
        """Decide, and narrow the context's mask accordingly.

        Raises:
            NoMassError: if no token is possible. (In a model, the particle dies instead.)
        """
        context = self._context
        row = await context._row()
        inside, mass, log_prob = self._outcome(row, True)
        # One uniform decides; where one side has no mass, it has no say.
        if rng().random() >= math.exp(log_prob):
            outside, outside_mass, outside_log_prob = self._outcome(row, False)
            if outside_log_prob > -math.inf:
                context._narrow(outside, row, outside_mass)
                return False, outside_log_prob
        if log_prob == -math.inf:
            return self._nothing_possible()
        context._narrow(inside, row, mass)
        return True, log_prob

    async def log_prob(self, x: bool) -> float:
        """Log-probability of the answer, which then narrows the context's mask unless it is impossible."""
        if x not in (True, False):
            raise ArgumentError(f"whether the next token is in a mask is True or False, not {x!r}")
        row = await self._context._row()
        mask, mass, log_prob = self._outcome(row, bool(x))
        if log_prob > -math.inf:
            self._context._narrow(mask, row, mass)
        return log_prob

    async def intervene(self, x: bool) -> bool:
        """Narrow the context's mask; False if that leaves no token."""
        return await self.log_prob(x) > -math.inf

    async def outcomes(self) -> list[tuple[bool, float]]:
        """Both answers and their log-probabilities. Leaves the context as it is."""
        row = await self._context._row()
        return [(answer, self._outcome(row, answer)[2]) for answer in (True, False)]

    def _outcome(self, row: LogitsRow, inside: bool) -> tuple[TokenMask, Mass, float]:
        """The context's mask after an answer, its mass, and the answer's log-probability."""
        context = self._context
        state = context._state
        if state.mask is not None:
            mask = state.mask & self.mask if inside else state.mask - self.mask
        else:
            mask = self.mask if inside else ~self.mask
        mass, before = row.mass(context._temp, mask.factors), context._mass(row)
        if mass.log_total == -math.inf:
            return mask, mass, -math.inf
        return mask, mass, min(0.0, mass.log_total - before.log_total)

    def _nothing_possible(self) -> tuple[bool, float]:
        turn = current_turn()
        if turn is not None and turn.dead:
            return bool(rng().random() < 0.5), -math.inf
        raise NoMassError("nothing is possible here: every token is masked out or has probability zero")

    def _bars(self) -> Bars | None:
        row = self._context._known_row()
        if row is None:
            return None
        return Bars([(str(answer), math.exp(self._outcome(row, answer)[2])) for answer in (True, False)])

    def __repr__(self) -> str:
        return f"<is the next token of {self._context!r} in {self.mask!r}?>"
